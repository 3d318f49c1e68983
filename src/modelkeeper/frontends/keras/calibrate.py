"""Fit a Keras child's layers to its parent's activations, on a few of the user's own examples.

How layers are fitted is the business of `frontends.calibrating`; here both models become programs, which
Keras runs on the active backend. The parent may be a program of another framework: images go into it as it
takes them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.calibrating.calibrate import calibrate as calibrate_programs
from modelkeeper.frontends.calibrating.examples import Examples
from modelkeeper.frontends.calibrating.side_by_side import Models
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, Progress
from modelkeeper.frontends.keras.examples import collect, example_of
from modelkeeper.frontends.keras.read_load import load, read
from modelkeeper.frontends.keras.record_program import Recorded, arranged, fixed_sizes, record
from modelkeeper.frontends.keras.run_program import ENGINE
from modelkeeper.frontends.programs.program import Program
from modelkeeper.weights import Array


def calibrate(
    child: Any,
    planner: FitPlanner,
    parent: Any,
    tensors: Mapping[str, Array],
    batches: Any,
    *,
    budget: Budget,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child to its parent's activations, in place.

    Args:
        child: The model, with the weights of a plan in it.
        planner: Says what is to be fitted, when the parent's units are ranked.
        parent: The parent's program, or the parent itself, which is then recorded. A program may come from
            anywhere: it runs in a process of its own, unless the budget trusts it.
        tensors: The parent's, by name.
        batches: See `examples`, or what `collect` made of them. Both models have to run on them.
        budget: How many examples, seconds and bytes it may take.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
        NoProgram: The child cannot be taken apart layer by layer.
        InvalidProgram: The parent's program does not run on the examples, or not in Keras.
    """
    examples = collect(batches, None, budget.examples)
    own = record(child, example_of(child, examples.inputs))
    lender = parent if isinstance(parent, Program) else record(parent, example_of(parent, examples.inputs))
    return calibrate_programs(
        _models(child, own, lender, tensors, examples),
        planner,
        examples,
        load=lambda weights: load(child, weights),
        budget=budget,
        progress=progress,
    )


def _models(
    child: Any, own: Recorded, lender: Recorded | Program, tensors: Mapping[str, Array], examples: Examples
) -> Models:
    parent = lender if isinstance(lender, Program) else lender.program
    program = own.program.shortcuts_first()
    orders = [own.input_orders] if isinstance(lender, Program) else [lender.input_orders]
    beside = [arranged(examples.fitting(parent), parent, order) for order in [*orders, None]]
    fitting = [arrays for arrays in beside if arrays is not None]
    if not fitting:
        wanted = ", ".join("x".join(map(str, fixed_sizes(taken))) for taken in parent.inputs)
        raise CannotCalibrate(
            f"the parent takes examples of {wanted}, which these are not",
            "Give examples that both models take",
        )
    taken = arranged(examples.fitting(program), program, own.input_orders)
    assert taken is not None  # it was recorded with them
    lent = {held.name: np.asarray(tensors[held.name]) for held in parent.tensors if held.name in tensors}
    weights = {name: np.array(array) for name, array in read(child)}
    foreign = isinstance(lender, Program)  # not recorded here: it may come from anyone
    return Models(ENGINE, program, weights, taken, parent, lent, fitting[0], foreign)
