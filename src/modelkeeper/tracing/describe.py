"""From a trace to a graph: which axes go together, where shares belong, which steps are layers.

    trace (what a front end recorded) -> spaces (which axes go together)
           -> degrees (where shares belong) -> assemble (layers and edges) -> Graph

Nothing here knows a framework: whoever delivers a `Trace` over the vocabulary has a front end.
"""

from dataclasses import dataclass

from modelkeeper.graph import Graph, Note
from modelkeeper.graph.vocabulary import MISFITS
from modelkeeper.tracing import rules
from modelkeeper.tracing.assemble import Assembly
from modelkeeper.tracing.counts import counts_of
from modelkeeper.tracing.degrees import infer_degrees
from modelkeeper.tracing.infer_spaces import Inference
from modelkeeper.tracing.terms import Solver
from modelkeeper.tracing.trace import Trace, Value

assert rules.RULES  # importing them registers them
MOST_NOTES = 12


@dataclass(frozen=True, slots=True)
class Account:
    """A graph together with the evidence for it: what ran, and which term each of its axes is."""

    graph: Graph
    trace: Trace
    solver: Solver
    spaces: dict[int, int]  # the number of an atom -> the space it is in the graph
    values: dict[int, Value]  # the number of a layer -> its output, for layers that data flows through


def describe(trace: Trace) -> Graph:
    """The graph of what a trace says."""
    return account_for(trace).graph


def account_for(trace: Trace) -> Account:
    """What `describe` does, with all that it knew when it wrote the graph."""
    inference = Inference()
    inference.walk(trace)
    degrees, conflicts = infer_degrees(trace, inference.solver)
    inference.solver.settle()
    assembly = Assembly(inference.solver, degrees)
    assembly.build(trace, trace.input_names or ["input"] * len(trace.inputs))
    assembly.leftover(trace.tensors, trace.touched)
    counts = counts_of(trace, inference.solver, assembly.tensors.numbers)
    notes = [*trace.notes, *assembly.constants.note(trace, counts)]
    opaque = inference.opaque.items()  # behind a "#" stands how it is set, which tells people nothing
    notes += [Note("opaque", where, name.partition("#")[0]) for name, where in opaque]
    misfits = [str(pin) for pin in inference.solver.opaque if pin.code in MISFITS]
    notes += [
        Note("opaque", "", text.removeprefix("opaque").lstrip(": ")[:400]) for text in misfits[:MOST_NOTES]
    ]
    notes += [Note("conflict", where, "no placement of shares is exact here") for where in conflicts]
    graph = Graph(trace.framework, tuple(assembly.layers), tuple(assembly.tensors.spaces), tuple(notes))
    return Account(graph, trace, inference.solver, assembly.tensors.numbers, assembly.values)
