"""What should the running statistics of batch norms be? Averages over batches, as training would take them.

After an inexact transfer the statistics belong to other activations. Each batch runs through the program as
in training: every batch norm on the way normalises by the batch itself.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from modelkeeper.frontends.calibrating.regression import in_rows
from modelkeeper.frontends.programs.names import layer_kind
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.passes import Engine, Pass
from modelkeeper.frontends.programs.program import Hole, Program
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.weights import Array


def batch_statistics(
    engine: Engine, program: Program, tensors: Mapping[str, Array], batches: Iterable[Sequence[Array]]
) -> dict[str, Array]:
    """Means and variances of all batch norms, by the names of the tensors that hold them.

    Args:
        engine: Runs the program.
        program: Of the model.
        tensors: Of the model, by name.
        batches: The inputs of the program, in its order.
    """
    norms = _norms(program)
    totals: dict[str, Array] = {}
    count = 0
    for batch in batches:
        held = dict(tensors)
        one = Pass(engine, program, held, batch)
        for step, (mean, variance) in norms.items():
            one.to(step)
            rows = in_rows(one.array(step, "input"), 1).astype(np.float64)
            for name, value in ((mean, rows.mean(0)), (variance, rows.var(0))):
                totals[name] = totals.get(name, 0.0) + value
                held[name] = value.astype(tensors[name].dtype)
        count += 1
    return {name: (total / count).astype(tensors[name].dtype) for name, total in totals.items()}


def _norms(program: Program) -> dict[int, tuple[str, str]]:
    """The steps that are batch norms with statistics of the model, and the names of these."""
    first = len(program.inputs)
    found = {}
    for number, step in enumerate(program.steps):
        known = signature(step.operation)
        if known is None or layer_kind(step.operation) != BATCH_NORM:
            continue
        given = known.named(step.arguments)
        places = [
            hole.v - first for hole in (given["running_mean"], given["running_var"]) if isinstance(hole, Hole)
        ]
        names = [program.tensors[place].name for place in places if 0 <= place < len(program.tensors)]
        if len(names) == 2:
            found[number] = (names[0], names[1])
    return found
