"""Which layers of a graph come again right behind themselves, and what is it with more or fewer of them?

    stages(graph)                   where blocks repeat: from which layer, how many layers each, how often
    repeated(graph, stage, 6)       the same graph with six of these blocks
    runs([9, 1, 2, 1, 2, 1, 2])     the same of any values: [(1, 2, 2)], from 1, two of them, twice more

Blocks are alike if their layers are, one by one: kind, attributes, tensors with their sizes, and where they
are fed from, as seen from the layer itself (what nothing feeds and several layers read, as inputs are, is the
same for all blocks). Where a block begins does not matter: one that repeats from its middle to its middle is
as good. Further blocks get spaces and tensors of their own wherever the blocks before them have; what all
blocks share, they share as well. Stages in which that cannot be told are left out.
"""

import itertools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.graph.expressions import Atom, Concat, Expression, Product, leaves
from modelkeeper.graph.structure import Axis, Edge, Graph, Layer, consumers

LONGEST = 200  # layers of a block
LONGEST_NAME = 900
_NUMBER = re.compile(r"[0-9]{1,18}")


class Stage(Struct, frozen=True):
    """Blocks that are alike, one behind the other."""

    start: int  # the first layer
    period: int  # layers of a block
    count: int  # blocks

    @property
    def end(self) -> int:
        """The first layer behind all of them."""
        return self.start + self.period * self.count


def runs(values: Sequence[Any], longest: int = LONGEST, least: int = 1) -> list[tuple[int, int, int]]:
    """Where values repeat: from which on, how many together, and how often they come again after that.

    What covers most values goes first; of equals the shorter period, then the earlier. Runs never overlap.

    Args:
        values: What is looked through; equal ones are alike.
        longest: How many values may repeat together.
        least: How many values must be a repetition of those before them.
    """
    numbers: dict[Any, int] = {}
    signs = [numbers.setdefault(value, len(numbers)) for value in values]
    found: list[tuple[int, int, int]] = []
    taken = bytearray(len(signs))
    for _, period, start, end in sorted(_stretches(signs, longest, least)):
        while start < end and taken[start]:
            start += 1
        while start < end and taken[end - 1]:
            end -= 1
        again = (end - start) // period - 1
        if again * period >= least and again > 0 and taken.find(1, start, end) < 0:
            found.append((start, period, again))
            taken[start : start + period * (again + 1)] = b"\1" * (period * (again + 1))
    return sorted(found)


def _stretches(signs: Sequence[int], longest: int, least: int) -> Iterator[tuple[int, int, int, int]]:
    """Where signs are what they were a period before: less what that covers, period, start and end."""
    for period in range(1, min(longest, len(signs) // 2) + 1):
        alike = bytes(map(operator.eq, signs[period:], signs))
        start = alike.find(1)
        while start >= 0:
            end = alike.find(0, start)
            end = len(alike) if end < 0 else end
            covered = (end - start) // period * period
            if covered >= max(least, 1):
                yield -covered, period, start, end + period
            start = alike.find(1, end)


def stages(graph: Graph) -> tuple[Stage, ...]:
    """Where blocks of a graph repeat, and more or fewer of them can be had."""
    looks = _looks(graph)
    found = (_begin(graph, looks, Stage(start, period, again + 1)) for start, period, again in runs(looks))
    return tuple(stage for stage in found if _Blocks(graph, stage).sound())


def _begin(graph: Graph, looks: Sequence[object], stage: Stage) -> Stage:
    """The same blocks, from where the layers of the first have most of their names in common."""
    end = stage.end
    while end < min(len(looks), stage.end + stage.period - 1) and looks[end] == looks[end - stage.period]:
        end += 1
    starts = range(stage.start, stage.start + end - stage.end + 1)
    best = max(starts, key=lambda start: len(_shared_name(graph.layers[start : start + stage.period])))
    return msgspec.structs.replace(stage, start=best)


def _shared_name(layers: Sequence[Layer]) -> str:
    """What the names of all layers that own tensors begin with."""
    names = [layer.name for layer in layers if layer.tensors]
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)


def repeated(graph: Graph, stage: Stage, count: int) -> Graph:
    """A graph with another number of blocks in one of its stages; fewer: the last ones go.

    Raises:
        InvalidGraph: It would be too large.
        ValueError: There would be no block.
    """
    if count < 1:
        raise ValueError(f"a stage has at least one block, not {count}")
    return graph if count == stage.count else _Blocks(graph, stage).repeated(count)


# -- what a layer looks like -------------------------------------------------------------------------------


def _looks(graph: Graph) -> list[object]:
    """What each layer looks like, whatever it is called and wherever it stands."""
    common = _common(graph)
    axes: dict[Axis, object] = {}

    def look(axis: Axis) -> object:
        if axis not in axes:
            degrees = sorted(degree for _, degree in axis.degrees)
            axes[axis] = (axis.role, _form(axis.of, graph), tuple(degrees))
        return axes[axis]

    return [
        (
            layer.kind,
            tuple(sorted((key, repr(value)) for key, value in layer.attributes.items())),
            tuple((e.source if e.source in common else e.source - n - 1, e.via) for e in layer.inputs),
            tuple(
                (t.role, t.dtype, t.trainable, t.buffer, t.live, t.stored, tuple(map(look, t.axes)))
                for t in layer.tensors
            ),
        )
        for n, layer in enumerate(graph.layers)
    ]


def _common(graph: Graph) -> set[int]:
    """The layers that are fed by none and read by several: they stand for all blocks in one place."""
    readers = consumers(graph)
    return {n for n, layer in enumerate(graph.layers) if not layer.inputs and len(readers[n]) > 1}


def _form(expression: Expression, graph: Graph) -> object:
    """What an expression is made of, whatever the numbers of its spaces are."""
    match expression:
        case Atom(space, size):
            known = graph.spaces[space]
            return size, known.averaged, tuple(sorted(pin.code for pin in known.pins))
        case Product(parts) | Concat(parts):
            return type(expression).__name__, tuple(_form(part, graph) for part in parts)
    return expression


# -- more and fewer blocks ---------------------------------------------------------------------------------


def _spaces(layers: Sequence[Layer]) -> Iterator[int]:
    """The spaces of layers, one after the other, as they stand on their axes."""
    for layer in layers:
        for tensor in layer.tensors:
            for axis in tensor.axes:
                yield from (leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom))


def _function(before: Sequence[int], after: Sequence[int]) -> dict[int, int] | None:
    """Which space takes the place of which; None: one would have to be two, or two one."""
    found: dict[int, int] = {}
    for old, new in zip(before, after, strict=True):
        if found.setdefault(old, new) != new:
            return None
    return found if len(set(found.values())) == len(found) else None


class _Blocks:
    """The blocks of one stage: which of their spaces and tensors are shared, and what is behind them."""

    def __init__(self, graph: Graph, stage: Stage) -> None:
        self.graph, self.stage = graph, stage
        edges = range(stage.start, stage.end + 1, stage.period)
        self.blocks = [graph.layers[a:b] for a, b in itertools.pairwise(edges)]
        self.before, self.behind = graph.layers[: stage.start], graph.layers[stage.end :]
        self.of_block = [list(_spaces(block)) for block in self.blocks]
        self.common = {number for number in _common(graph) if number < stage.start}

    def sound(self) -> bool:
        """Can it be told what another block would share with those that are there?"""
        last = self.stage.end - self.stage.period
        inside = range(self.stage.start, self.stage.end)
        for layer in self.blocks[-1]:
            if any(edge.source < inside.start and edge.source not in self.common for edge in layer.inputs):
                return False
        for layer in self.behind:
            if any(edge.source in inside and edge.source < last for edge in layer.inputs):
                return False
        return self._spaces_are_sound() and self._tensors_are_sound()

    def _spaces_are_sound(self) -> bool:
        shared = set(self.of_block[0])  # by all blocks, each in the same places
        for before, after in itertools.pairwise(self.of_block):
            follows = _function(before, after)
            if follows is None:
                return False
            shared &= {old for old, new in follows.items() if old == new}
        known = set[int]().union(*self.of_block) - shared - self._own()
        return known.isdisjoint(_spaces(self.behind))

    def _own(self) -> set[int]:
        """The spaces that no layer before the last block knows."""
        return set(self.of_block[-1]) - set(_spaces(self.before)) - set[int]().union(*self.of_block[:-1])

    def _tensors_are_sound(self) -> bool:
        """Is each tensor of a block its own, or one of all of them?"""
        owners: dict[str, set[int]] = {}
        for number, layers in enumerate((self.before, *self.blocks, self.behind)):
            for layer in layers:
                for tensor in layer.tensors:
                    owners.setdefault(tensor.name, set()).add(number)
        everywhere = set(range(1, len(self.blocks) + 1))
        return all(
            len(where) == 1 or where >= everywhere or not where & everywhere for where in owners.values()
        )

    def repeated(self, count: int) -> Graph:
        """The graph with so many blocks."""
        kept = self.blocks[: min(count, self.stage.count)]
        layers = [*self.before, *itertools.chain(*kept)]
        copying = _Copying(self.graph)
        before, last = (list(block) for block in self.blocks[-2:])
        spaces_before, spaces = self.of_block[-2], self.of_block[len(kept) - 1]
        for number in range(self.stage.count, count):
            spaces_before, spaces = spaces, copying.next_spaces(spaces_before, spaces)
            copy = copying.block(self.blocks[-1], (before, last), self._replacing(spaces))
            before, last = last, copy
            layers += [self._shifted(layer, number + 1) for layer in copy]
        own = self._own()
        behind = {old: new for old, new in self._replacing(spaces).items() if old in own}
        layers += [self._shifted(copying.layer(layer, behind), count) for layer in self.behind]
        return _compact(
            msgspec.structs.replace(self.graph, layers=tuple(layers), spaces=tuple(copying.spaces))
        )

    def _replacing(self, spaces: Sequence[int]) -> dict[int, int]:
        """Which spaces a block has in the place of those that the last one has."""
        return dict(zip(self.of_block[-1], spaces, strict=True))

    def _shifted(self, layer: Layer, count: int) -> Layer:
        """A layer of the last block, or behind it, in a graph with so many blocks up to there."""
        shift = (count - self.stage.count) * self.stage.period
        inputs = tuple(
            Edge(edge.source + shift * (edge.source >= self.stage.start), edge.via) for edge in layer.inputs
        )
        return msgspec.structs.replace(layer, inputs=inputs)


class _Copying:
    """What copies of blocks are called, and which spaces they have."""

    def __init__(self, graph: Graph) -> None:
        self.spaces = list(graph.spaces)
        self._taken = {layer.name for layer in graph.layers} | set(graph.tensors)

    def next_spaces(self, before: Sequence[int], last: Sequence[int]) -> list[int]:
        """The spaces of the block behind two others: shared, handed on, or new."""
        known = dict(zip(before, last, strict=True))
        for space in last:
            if space not in known:
                known[space] = len(self.spaces)
                self.spaces.append(self.spaces[space])
        return [known[space] for space in last]

    def block(
        self,
        made_from: Sequence[Layer],
        others: tuple[Sequence[Layer], Sequence[Layer]],
        spaces: Mapping[int, int],
    ) -> list[Layer]:
        """Another block, over these spaces, and under the names that come after those of two others."""
        names: dict[str, str] = {}  # by the tensors that it is made from
        for layer, *two in zip(made_from, *others, strict=True):
            for tensor, before, last in zip(layer.tensors, *(one.tensors for one in two), strict=True):
                if tensor.name not in names:
                    shared = before.name == last.name
                    names[tensor.name] = tensor.name if shared else self._name(before.name, last.name)
        return [
            self.layer(layer, spaces, names, self._name(before.name, last.name))
            for layer, before, last in zip(made_from, *others, strict=True)
        ]

    def layer(
        self, layer: Layer, spaces: Mapping[int, int], names: Mapping[str, str] | None = None, name: str = ""
    ) -> Layer:
        """A layer over other spaces, and under other names."""
        tensors = tuple(
            msgspec.structs.replace(
                tensor,
                name=names[tensor.name] if names else tensor.name,
                axes=tuple(_over(axis, spaces) for axis in tensor.axes),
            )
            for tensor in layer.tensors
        )
        return msgspec.structs.replace(layer, tensors=tensors, name=name or layer.name)

    def _name(self, before: str, last: str) -> str:
        """What comes after two names: the next number, if they differ in one; else the last one, again."""
        name = _next(before, last)
        number = 2
        while not name or name in self._taken:
            name = f"{last[:LONGEST_NAME].partition('@')[0] or 'layer'}@{number}"
            number += 1
        self._taken.add(name)
        return name


def _next(before: str, last: str) -> str:
    """body.4.conv for body.2.conv and body.3.conv; "": they differ in something else than numbers."""
    if _NUMBER.split(before) != _NUMBER.split(last):
        return ""
    pairs = [(int(a), int(b)) for a, b in zip(_NUMBER.findall(before), _NUMBER.findall(last), strict=True)]
    if len({b - a for a, b in pairs if a != b}) != 1:
        return ""
    numbers = iter(b + (b - a) for a, b in pairs)
    return _NUMBER.sub(lambda _: str(next(numbers)), last)


def _over(axis: Axis, spaces: Mapping[int, int]) -> Axis:
    """An axis over other spaces of the same sizes."""
    degrees = tuple((spaces.get(space, space), degree) for space, degree in axis.degrees)
    return msgspec.structs.replace(axis, of=_moved(axis.of, spaces), degrees=degrees)


def _moved(expression: Expression, spaces: Mapping[int, int]) -> Any:
    match expression:
        case Atom(space, size):
            return Atom(spaces.get(space, space), size)
        case Product(factors):
            return Product(tuple(_moved(factor, spaces) for factor in factors))
        case Concat(parts):
            return Concat(tuple(_moved(part, spaces) for part in parts))
    return expression


def _compact(graph: Graph) -> Graph:
    """The same graph without the spaces that no layer knows any more."""
    used = {space: number for number, space in enumerate(sorted(set(_spaces(graph.layers))))}
    copying = _Copying(graph)
    layers = tuple(copying.layer(layer, used) for layer in graph.layers)
    spaces = tuple(graph.spaces[space] for space in used)
    return msgspec.structs.replace(graph, layers=layers, spaces=spaces)
