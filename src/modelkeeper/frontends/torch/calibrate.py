"""Fit a PyTorch child's layers to its parent's activations, on a few of the user's own examples.

    calibrate(child, planner, parent's program, parent's tensors, batches)  ->  Calibration

How layers are fitted is the business of `frontends.calibrating`; here both models become programs.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from modelkeeper.frontends.calibrating.calibrate import calibrate as calibrate_programs
from modelkeeper.frontends.calibrating.examples import Examples
from modelkeeper.frontends.calibrating.side_by_side import Models
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, Progress
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.torch.examples import collect
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.read_load import as_array, load
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.recorder import map_tensors
from modelkeeper.frontends.torch.run_program import ENGINE
from modelkeeper.frontends.torch.side_effects import own_forward, unwrap

EXAMPLES = Budget.examples


def calibrate(
    child: nn.Module,
    planner: FitPlanner,
    parent: Program | nn.Module,
    tensors: Mapping[str, Any],
    batches: Any,
    *,
    labels: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child to its parent's activations, in place.

    Args:
        child: The model, with the weights of a plan in it.
        planner: Says what is to be fitted, when the parent's units are ranked.
        parent: The parent's program, or the parent itself, which is then recorded. A program may come from
            anywhere: it runs in a process of its own, unless the budget trusts it.
        tensors: The parent's tensors or arrays by name.
        batches: See `examples`, or what `collect` made of them. Both models have to run on them.
        labels: Of the batches, if they do not hold them: for a head that the parent cannot teach.
        budget: How many examples, seconds and bytes it may take.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
        NoProgram: The child cannot be taken apart layer by layer.
        InvalidProgram: The parent's program does not run on the examples.
    """
    budget = budget or Budget()
    examples = collect(batches, labels, budget.examples)
    return calibrate_programs(
        _models(child, parent, tensors, examples),
        planner,
        examples,
        load=lambda weights: load(child, weights),
        budget=budget,
        progress=progress,
    )


def example_of(model: nn.Module, inputs: Inputs) -> Inputs:
    """Inputs to describe or record on: two examples, and no caches that a language model would hand out."""
    few = map_tensors(inputs.args, lambda t: t[:2]), map_tensors(dict(inputs.kwargs), lambda t: t[:2])
    extra = (
        {"use_cache": False}
        if "use_cache" in inspect.signature(own_forward(unwrap(model))).parameters
        else {}
    )
    return Inputs(few[0], tuple({**extra, **few[1]}.items()))


def _models(
    child: nn.Module, parent: Program | nn.Module, tensors: Mapping[str, Any], examples: Examples
) -> Models:
    """Both models as programs, and copies or views of their tensors."""
    foreign = isinstance(parent, Program)  # not recorded here: it may come from anyone
    program = record_program(child, example_of(child, examples.inputs)).shortcuts_first()
    if not isinstance(parent, Program):
        parent = record_program(parent, example_of(parent, examples.inputs))
    own = {name: as_array(name, named.tensor) for named in named_tensors(child) for name in named.names}
    lent = {
        held.name: as_array(held.name, given) if isinstance(given, Tensor) else np.asarray(given)
        for held in parent.tensors
        if (given := tensors.get(held.name)) is not None
    }
    taken, beside = examples.fitting(program), examples.fitting(parent)
    return Models(ENGINE, program, own, taken, parent, lent, beside, foreign)
