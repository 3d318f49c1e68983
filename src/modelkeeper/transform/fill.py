"""How can units that a norm takes its statistics over become any number, and not just a multiple?

Copies in unequal numbers would move the mean and the variance. So all units are copied equally often, and the
rest is filled with units that move neither: layer norms get the mean of the others, which every maker of the
space yields when its new row is the mean of its rows; RMS norms get zero. Only the number that a norm divides
by has grown then, by 1 / η² with η² = units that are copies / all units. With all that is made on the space
divided by η, and all that reads it multiplied by η, the norm sees the statistics that it saw before, epsilon
included:

    makers, biases   times 1 / η
    readers          times η; a layer norm's new unit is not read, an RMS norm's may be: it is zero
    gains            as they are; those of new units copy others, so that the new units part in training
    a tied reader    is a maker as well: the gain before it, which carries its shares, takes η², the bias η

That is exact where only sums and norms lie between makers, norms and readers. A layer norm's own output is no
such mean: where it runs into the next norm (post-norm transformers), or where something else happens to the
units, gains take η and nothing else is scaled, and the plan says that it is approximate. From norm to norm it
cannot be exact: a unit that moves no statistic of the first sits at the mean, so it leaves that norm as its
bias, a constant; for the second it would have to be the mean over all units of gain times normalised input,
which varies with the input unless all gains are equal, and no norm mixes units, to make it so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from modelkeeper.graph import Atom, Concat, Edge, Graph, Layer, Tensor, consumers, leaves
from modelkeeper.graph.vocabulary import MAKERS, PROJECTIONS, SCALE, SUMS, kind_of, read_step
from modelkeeper.patience import go_on

MEANS, ZEROS = "the mean", "zero"
_FILLS = {"mean": MEANS, "zero": ZEROS, "": ""}


@dataclass(frozen=True)
class Fill:
    """What new units of one space are, and what else changes for their sake."""

    new: str  # the mean, zero
    gains: frozenset[str]  # tensors that multiply units
    unread: frozenset[str] = frozenset()  # tensors of norms, which may do to new units what they like
    doubt: str = ""  # why it is not exact; empty if it is

    def exponent(self, tensor: Tensor, degree: int) -> int:
        """The power of η that a tensor takes, by the degree of the axis that it has on the space."""
        if self.doubt:
            return int(tensor.name in self.gains)
        return 2 * degree if tensor.name in self.gains else 2 * degree - 1


class Fills:
    """For each space of a graph how it can be filled, each found when it is asked for."""

    def __init__(self, child: Graph, matched: Collection[int], silent: Collection[int]) -> None:
        self._graph, self._matched, self._silent = child, matched, silent
        self._readers = consumers(child)
        self._known: dict[int, Fill | None] = {}

    def of(self, space: int) -> Fill | None:
        """How a space can be filled; None if there is no norm whose statistics could be kept."""
        if space not in self._known:
            self._known[space] = _Walk(self._graph, space, self._matched, self._silent, self._readers).fill()
        return self._known[space]


class _Problem(Exception):
    """Why new units would not stay what they are."""


class _Walk:
    """Follows the units of one space through the graph."""

    def __init__(
        self,
        graph: Graph,
        space: int,
        matched: Collection[int],
        silent: Collection[int],
        readers: tuple[tuple[int, ...], ...],
    ) -> None:
        self._graph, self._space, self._matched, self._silent = graph, space, matched, silent
        self._consumers = readers
        self._gains: set[str] = set()
        self._unread: set[str] = set()

    def fill(self) -> Fill | None:
        """How the space can be filled, with a doubt where that is not exact; None: it has no norm."""
        norms = {
            self._normed(layer): layer
            for layer in self._graph.layers
            if self._normed(layer) and self._gain(layer)
        }
        if not norms:
            return None
        new = next(iter(norms))
        try:
            if len(norms) > 1:
                raise _Problem("norms of two kinds are on it")
            self._follow(new)
        except _Problem as problem:
            gains = frozenset(
                name for layer in self._graph.layers if self._normed(layer) for name in self._gain(layer)
            )
            return Fill(new, gains, doubt=str(problem))
        return Fill(new, frozenset(self._gains), frozenset(self._unread))

    # -- following ------------------------------------------------------------------------------

    def _follow(self, new: str) -> None:
        """Check that everything on this space is a maker, a reader, a sum or a norm, or raise a problem."""
        state: dict[int, str] = {}  # made: the new unit is what it should be; normed: out of a norm
        for number, layer in enumerate(self._graph.layers):
            go_on()
            arriving = {edge: state[edge.source] for edge in layer.inputs if edge.source in state}
            if not arriving and not self._on_space(layer):
                continue
            if layer.tensors and number not in self._matched and number not in self._silent:
                raise _Problem(f"{layer.kind} {layer.name} is new")
            if arriving and self._reads(layer):
                self._check_reader(layer, arriving)
                arriving = {}
                if not self._makes(layer):
                    continue
            handed_on = self._output(layer, arriving, new)
            if handed_on:
                state[number] = handed_on

    def _output(self, layer: Layer, arriving: Mapping[Edge, str], new: str) -> str:
        """What a layer that is no reader hands on: made or normed units."""
        where = f"{layer.kind} {layer.name}"
        if not arriving:
            if layer.kind in MAKERS and self._whole(layer) and layer.attributes.get("groups", 1) == 1:
                return "made"
            raise _Problem(f"{where} makes it in another way")
        if len(arriving) != len(layer.inputs):
            raise _Problem(f"{where} joins it with something else")
        if not self._whole(layer):
            raise _Problem(f"{where} takes it together with another space")
        norm = self._normed(layer)
        for edge, state in arriving.items():
            steps = edge.via[:-1] if norm and layer.kind == SCALE else edge.via
            for text in steps:
                step = read_step(text)
                if not step.has("linear") and not (kind_of(layer.kind).fills and step.has("reduces")):
                    raise _Problem(f"{text} is applied to it before {where}")
            if state == "normed" and new == MEANS:
                raise _Problem(
                    f"what a layer norm makes runs into {where}: a new unit leaves the one as a constant, "
                    "and would have to enter the other as the mean of its neighbours, which varies"
                )
        if norm:
            if new == MEANS and any(len(t.axes) > 1 for t in layer.tensors if t.name in self._gain(layer)):
                raise _Problem(f"{where} takes its statistics over places, too")
            self._gains.update(self._gain(layer))
            self._unread.update(tensor.name for tensor in layer.tensors)
            return "normed"
        if layer.kind in SUMS:
            return "made"
        if layer.kind == SCALE and (new == ZEROS or not self._gain(layer)):
            self._gains.update(self._gain(layer))
            return "made"
        raise _Problem(f"{where} changes it")

    def _check_reader(self, layer: Layer, arriving: Mapping[Edge, str]) -> None:
        """Check that a layer reads the units as a plain projection, or raise a problem."""
        where = f"{layer.kind} {layer.name}"
        if layer.kind not in PROJECTIONS or layer.attributes.get("groups", 1) != 1:
            raise _Problem(f"{where} reads it in another way")
        if any(
            isinstance(axis.of, Concat)
            for tensor in layer.tensors
            for axis in tensor.axes
            if axis.role == "in"
        ):
            raise _Problem(f"{where} reads it together with another space")
        for edge in arriving:
            for text in edge.via:
                step = read_step(text)
                if not (step.has("linear") or step.has("reduces") or step.has("homogeneous")):
                    raise _Problem(f"{text} is applied to it before {where}")

    # -- what a layer has on the space ------------------------------------------------------------

    def _axes(self, layer: Layer, *roles: str) -> list[bool]:
        """For each axis of these roles (none: of all) that has the space, whether it has nothing else."""
        return [
            axis.of == Atom(self._space, axis.size)
            for tensor in layer.tensors
            if tensor.live
            for axis in tensor.axes
            if (not roles or axis.role in roles)
            and any(isinstance(leaf, Atom) and leaf.space == self._space for leaf in leaves(axis.of))
        ]

    def _on_space(self, layer: Layer) -> bool:
        """Does any tensor of a layer have an axis on the space?"""
        return bool(self._axes(layer))

    def _reads(self, layer: Layer) -> bool:
        """Does a layer read units of the space?"""
        return bool(self._axes(layer, "in"))

    def _makes(self, layer: Layer) -> bool:
        """Does a layer make units of the space?"""
        return bool(self._axes(layer, "out", "other"))

    def _whole(self, layer: Layer) -> bool:
        """Have all axes of a layer on the space, its inputs aside, nothing but the space?"""
        return all(self._axes(layer, "out", "other", "row", "kernel"))

    def _gain(self, layer: Layer) -> list[str]:
        """The names of the tensors by which a layer multiplies units of the space."""
        return [
            tensor.name
            for tensor in layer.tensors
            if tensor.role == "gain" and any(axis.of == Atom(self._space, axis.size) for axis in tensor.axes)
        ]

    def _normed(self, layer: Layer) -> str:
        """What new units are to a norm over this space; empty if it is none."""
        if not self._gain(layer):
            return ""
        if layer.kind == SCALE and len(layer.inputs) == 1:
            via = layer.inputs[0].via
            return ZEROS if via and read_step(via[-1]).is_rms_norm else ""
        return _FILLS[kind_of(layer.kind).fills]
