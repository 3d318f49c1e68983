"""What would a model be if it were wider or narrower, deeper or shallower? From one graph to another.

    resize(graph, width=1.5)                 every width that may change is half as large again
    resize(graph, blocks=(6, 4))             six and four blocks where `stages(graph)` has found some
    with_sizes(graph, {3: 64})               the same layers over spaces of other sizes
    changeable(graph), unchangeable(graph)   which spaces may change; which may not, and why

A width may change if its space is free: what inputs and outputs, vocabularies and the like decide stays. Of
the spaces that make up one axis together (heads x units of a head) one changes, so that the axis grows by the
factor and not by its square: a space that another axis has by itself, else one that is the only free one of
some axis, else the last. So groups keep their number and grow, and heads of a fixed size become more.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, leaves
from modelkeeper.graph.repeats import repeated, stages
from modelkeeper.graph.structure import Axis, Graph, Layer, Tensor, walk
from modelkeeper.graph.vocabulary import CONV_TRANSPOSE

LEAST = 2  # units of a space that gets smaller: a single one is no space
OF_AN_AXIS = "another space of the same axis changes in its place"


class Unchangeable(Struct, frozen=True):
    """A space that keeps its width: the first layer that knows it, how many units it has, and why."""

    layer: str
    size: int
    why: str


def resize(graph: Graph, *, width: float = 1.0, blocks: Sequence[int] = ()) -> Graph:
    """A graph with other widths, and other numbers of blocks in its stages.

    Args:
        graph: What it is made from; it is what comes back if nothing changes.
        width: The factor of every width that may change, rounded to whole units.
        blocks: For each of `stages(graph)`, in order, how many blocks there are to be; those at the end may
            be left out, and stay as they are.

    Raises:
        InvalidGraph: It would be too large.
        ValueError: A stage is to have no block, or there are fewer stages than numbers.
    """
    found = stages(graph)
    if len(blocks) > len(found):
        raise ValueError(f"{len(blocks)} numbers of blocks for {len(found)} stages")
    for stage, count in reversed(list(zip(found, blocks, strict=False))):  # the last first: others stay put
        graph = repeated(graph, stage, count)
    sizes = {space: _scaled(graph.spaces[space].size, width) for space in changeable(graph)}
    changed = {space: size for space, size in sizes.items() if size != graph.spaces[space].size}
    return with_sizes(graph, changed) if changed else graph


def _scaled(size: int, factor: float) -> int:
    return max(LEAST, int(size * factor + 0.5))


def changeable(graph: Graph) -> frozenset[int]:
    """The spaces whose width may change."""
    free = {number for number, space in enumerate(graph.spaces) if space.free and space.size >= LEAST}
    wanted: set[int] = set()
    products: dict[tuple[int, ...], None] = {}
    used: set[int] = set()
    for _, _, axis in walk(graph):
        for part in axis.of.parts if isinstance(axis.of, Concat) else (axis.of,):
            spaces = tuple(
                leaf.space for leaf in leaves(part) if isinstance(leaf, Atom) and leaf.space in free
            )
            used.update(spaces)
            if len(spaces) == 1:
                wanted.update(spaces)
            elif spaces:
                products[spaces] = None
    dropped: set[int] = set()
    for factors in products:
        left = [space for space in factors if space not in dropped]
        preferred = [space for space in left if space in wanted] or left
        dropped.update(set(left) - set(preferred[-1:]))
    return frozenset((free & used) - dropped)


def unchangeable(graph: Graph) -> Iterator[Unchangeable]:
    """The spaces that keep their widths, each once."""
    seen = set(changeable(graph))
    for layer, _, axis in walk(graph):
        for leaf in leaves(axis.of):
            if isinstance(leaf, Atom) and leaf.space not in seen:
                seen.add(leaf.space)
                pins = graph.spaces[leaf.space].pins
                yield Unchangeable(layer.name, leaf.size, str(pins[0]) if pins else OF_AN_AXIS)


def with_sizes(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """The same layers over spaces of other sizes, by their numbers."""
    return _Resizing(graph, sizes).graph()


class _Resizing:
    """A graph whose spaces get other sizes; what was one object before is one object again."""

    def __init__(self, graph: Graph, sizes: Mapping[int, int]) -> None:
        self._graph, self._sizes = graph, sizes
        self._known: dict[Any, Any] = {}

    def graph(self) -> Graph:
        """The same layers over the new sizes."""
        graph = self._graph
        spaces = tuple(
            msgspec.structs.replace(space, size=self._sizes.get(number, space.size))
            for number, space in enumerate(graph.spaces)
        )
        return msgspec.structs.replace(graph, layers=tuple(map(self._layer, graph.layers)), spaces=spaces)

    def _layer(self, layer: Layer) -> Layer:
        attributes = layer.attributes
        groups = attributes.get("groups", 1)
        if isinstance(groups, int) and groups != 1:
            attributes = attributes | {"groups": self._groups(layer, groups)}
        tensors = tuple(map(self._tensor, layer.tensors))
        return msgspec.structs.replace(layer, tensors=tensors, attributes=attributes)

    def _groups(self, layer: Layer, groups: int) -> int:
        """How many groups there are now: as many as the first factors of the axis that all of them share."""
        role = "in" if layer.kind == CONV_TRANSPOSE else "out"
        for axis in (axis for tensor in layer.tensors for axis in tensor.axes if axis.role == role):
            before: int = 1
            now: int = 1
            for factor in axis.of.factors if isinstance(axis.of, Product) else (axis.of,):
                before, now = before * factor.size, now * self._expression(factor).size
                if before == groups:
                    return now
        return groups

    def _tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._known:
            axes = tuple(map(self._axis, tensor.axes))
            self._known[id(tensor)] = msgspec.structs.replace(tensor, axes=axes)
        made: Tensor = self._known[id(tensor)]
        return made

    def _axis(self, axis: Axis) -> Axis:
        if axis not in self._known:
            degrees = tuple(each for each in axis.degrees if self._sizes.get(each[0]) != 1)
            self._known[axis] = msgspec.structs.replace(axis, of=self._expression(axis.of), degrees=degrees)
        made: Axis = self._known[axis]
        return made

    def _expression(self, expression: Expression) -> Any:
        match expression:
            case Atom(space, size):
                resized = self._sizes.get(space, size)
                single = resized == 1 != size  # graphs have no space of a single unit
                return Fixed(1, "one") if single else Atom(space, resized)
            case Product(factors):
                return Product(tuple(map(self._expression, factors)))
            case Concat(parts):
                return Concat(tuple(map(self._expression, parts)))
            case Fixed():
                return expression
