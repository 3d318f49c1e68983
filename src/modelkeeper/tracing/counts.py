"""How often is something repeated along places, how are they grouped and cut, how many are picked?

Two models of the same layers may differ in such a count alone, and then compute different things. Widths have
spaces, and pictures and texts bring how many places they have; what is left are numbers of the code, which
the note on a model's constants holds like any other:

    repeat 3              each place three times
    expand input 0.1      as often as the first input has places along its second axis, however many they are
    view 2                places in groups of two
    split 1 rest          the first place, and all others
    windows 3/2 3/2       resized to one and a half times as many places, in both directions
    index 3               three places, the constants say which ones

A count that equals an extent of an input is taken to follow from it: the same model, described on longer
inputs, is the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction

from modelkeeper.tracing.infer_spaces import chosen, position
from modelkeeper.tracing.named_rules import registering
from modelkeeper.tracing.terms import ATOM, Solver, Term, aligned
from modelkeeper.tracing.trace import Step, Trace, Value


class Extents:
    """What decides how long an axis is: an input, a width of the model, or the code alone."""

    def __init__(self, inputs: Sequence[Value], solver: Solver, widths: Collection[int]) -> None:
        self._solver, self._widths = solver, widths
        self._axes: dict[int, list[tuple[int, int]]] = {}  # by extent: an input, one of its axes
        for number, value in enumerate(inputs):
            for axis, extent in enumerate(value.shape):
                if extent != 1:
                    self._axes.setdefault(extent, []).append((number, axis))

    def said(self, count: int, of: int = 1, *, batch: bool = True) -> str:
        """A count in words: by an axis of an input that is as long, or as a number, `of` others.

        Args:
            batch: May it be an axis that counts examples?
        """
        axes = [(number, axis) for number, axis in self._axes.get(count, ()) if axis or batch]
        return "input {}.{}".format(*axes[0]) if axes else str(Fraction(count, of))

    def brought(self, counts: Sequence[int]) -> bool:
        """Do inputs have as many axes of these extents?"""
        return all(counts.count(count) <= len(self._axes.get(count, ())) for count in counts)

    def is_width(self, axis: Term) -> bool:
        return any(atom.number in self._widths for atom in self._solver.atoms(axis))

    def loose(self, axis: Term) -> bool:
        """Is it said nowhere else how long an axis is that a step made?"""
        return self._solver.resolve(axis).kind == ATOM and not self.is_width(axis)


Rule = Callable[[Extents, Step], Iterator[str]]
RULES: dict[str, Rule] = {}  # by the names that the vocabulary gives to what happens to axes
rule = registering(RULES)


def counts_of(trace: Trace, solver: Solver, widths: Collection[int]) -> Iterable[str]:
    """The counts of a trace, in words. `widths`: the numbers of all atoms that are widths of the model."""
    extents = Extents(trace.inputs, solver, widths)
    for step in trace.steps:
        name = step.operation.axes
        if name in RULES and (words := " ".join(RULES[name](extents, step))):
            yield f"{name} {words}"


@rule("expand")
def _expanded(extents: Extents, step: Step) -> Iterator[str]:
    after = step.outputs[0]
    for n, count in enumerate(after.shape):
        if count != 1 and _single(step, n) and extents.loose(after.axes[n]):
            yield extents.said(count)


@rule("repeat")
def _repeated(extents: Extents, step: Step) -> Iterator[str]:
    for n, count in enumerate(step.arguments["repeats"]):
        if count != 1 and (not _single(step, n) or extents.loose(step.outputs[0].axes[n])):
            yield extents.said(count)


def _single(step: Step, n: int) -> bool:
    """Had an axis of the result one place, or was it not there at all?"""
    before = step.inputs[0].shape
    n -= len(step.outputs[0].shape) - len(before)
    return n < 0 or before[n] == 1


@rule("view")
def _grouped(extents: Extents, step: Step) -> Iterator[str]:
    """How long groups are; how many there are follows."""
    axes = [axis for axis in step.inputs[0].axes if axis.size != 1]
    if 0 not in step.outputs[0].shape:
        for old, new in aligned(axes, step.outputs[0].shape):
            if not any(map(extents.is_width, old)):
                groups = [size for size in new if size != 1]
                batch = extents.brought(
                    groups
                )  # what was flattened is as it was; else a 2 is no batch of two
                yield from (extents.said(size, batch=batch) for size in groups[1:])


@rule("windows")
def _resized(extents: Extents, step: Step) -> Iterator[str]:
    if step.has("sized"):
        for before, after in zip(step.inputs[0].shape, step.outputs[0].shape, strict=True):
            if before != after:
                yield extents.said(after, before)


@rule("cat")
def _joined(extents: Extents, step: Step) -> Iterator[str]:
    """How many places a constant adds."""
    dim = position(step.arguments.get("dim", 0), step.outputs[0])
    for value in step.inputs:
        if not value.active and value.shape != (0,) and not extents.is_width(value.axes[dim]):
            yield extents.said(value.shape[dim])


@rule("reduce")
def _reduced(extents: Extents, step: Step) -> Iterator[str]:
    """Over how many places of a constant a sum goes, or the like."""
    source = step.inputs[0]
    if not source.active:
        for n in chosen(step, source, "dim"):
            if not extents.is_width(source.axes[n]):
                yield extents.said(source.shape[n])


@rule("split")
def _cut(extents: Extents, step: Step) -> Iterator[str]:
    """Parts of one size are told by how many there are; of others, the last is what is left."""
    source = step.inputs[0]
    dim = position(step.arguments.get("dim", 0), source)
    sizes = [part.shape[dim] for part in step.outputs]
    if len(set(sizes)) > 1 and not extents.is_width(source.axes[dim]):
        yield from map(extents.said, sizes[:-1])
        yield "rest"


@rule("pick")
@rule("index")
def _picked(extents: Extents, step: Step) -> Iterator[str]:
    for index in step.inputs[1:]:
        if not index.active and not index.floating:
            yield from map(extents.said, index.shape)
