"""The PyTorch front end: a module becomes a Graph, weights come out of it and go into it.

    graph = describe(model)                    one pass on shapes: nothing is computed
    for name, array in read(model): ...        views of the weights, not copies
    load(model, {name: array})                 in place, all or nothing
    difference(model, other)                   do they compute the same?
    recalibrate(model, batches)                statistics of batch norms, from data
    program = record_program(model)            what it computes, to be run without its code: `run`
    calibrate(child, ...)                      fit layers to a parent's activations, on examples
    FRONTEND                                   all of it behind the protocol that every front end follows

Names are those of the user's own code, whatever wraps the model; tied tensors go by their first name.
"""

from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.torch.behaviour import difference, recalibrate
from modelkeeper.frontends.torch.calibrate import EXAMPLES, calibrate, example_of
from modelkeeper.frontends.torch.describe import describe, example
from modelkeeper.frontends.torch.examples import collect
from modelkeeper.frontends.torch.frontend import FRONTEND, TorchFrontend
from modelkeeper.frontends.torch.read_load import load, read
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.run_program import run
from modelkeeper.frontends.torch.trials import duplicate, labelled

__all__ = [
    "EXAMPLES",
    "FRONTEND",
    "Program",
    "TorchFrontend",
    "calibrate",
    "collect",
    "describe",
    "difference",
    "duplicate",
    "example",
    "example_of",
    "labelled",
    "load",
    "read",
    "recalibrate",
    "record_program",
    "run",
]
