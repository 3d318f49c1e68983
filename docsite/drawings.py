"""Which drawings do the pages on concepts show? Made by the code that they explain: `make pictures`.

DRAWINGS            by file below docs/images: a function that draws it
python -m docsite.drawings          write all of them
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from modelkeeper.drawings import COLOURS, LINES, Box, Picture, Wire, links
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.graph.expressions import Atom, leaves
from modelkeeper.matching import align
from modelkeeper.transform import make_plan
from modelkeeper.transform.units import widen

IMAGES = Path(__file__).parent.parent / "docs" / "images"


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(width, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner)
        self.second, self.norm2 = nn.Conv2d(inner, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add to what passes by."""
        within = torch.relu(self.norm1(self.first(x)))
        return torch.relu(x + self.norm2(self.second(within)))


class Network(nn.Module):
    """A small residual network."""

    def __init__(self, width: int, inner: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width, inner) for _ in range(blocks)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Ten scores for each image."""
        scores: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return scores


def graph_of(width: int, inner: int, blocks: int) -> Graph:
    """The graph of such a network."""
    return describe(Network(width, inner, blocks), torch.zeros(1, 3, 8, 8))


def spaces() -> Picture:
    """A residual network: on the left its tensors, on the right the spaces that their axes lie in."""
    graph = graph_of(8, 16, 1)
    tensors = [
        (layer.name, tensor) for layer in graph.layers for tensor in layer.tensors if tensor.role == "weight"
    ]
    left = [
        Box(f"{name}.{tensor.role}".removeprefix("."), "×".join(map(str, tensor.shape)))
        for name, tensor in tensors
    ]
    right = [
        Box(f"space {number}", f"{space.size} units, {'free' if space.free else 'pinned'}", _colour(number))
        for number, space in enumerate(graph.spaces)
    ]
    wires = {
        Wire(row, space, _colour(space)): None
        for row, (_, tensor) in enumerate(tensors)
        for axis in tensor.axes
        for space in (leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom))
    }
    return links(("weights", "spaces"), left, right, wires, "what a wire leads to must change width together")


def _colour(number: int) -> str:
    return LINES[number % len(LINES)]


def alignment() -> Picture:
    """Two networks, of which the second is deeper: which layer is matched with which?"""
    parent, child = graph_of(8, 16, 1), graph_of(8, 24, 2)
    found = align(parent, child)
    wires = [
        Wire(p, c, COLOURS["copied"] if _shapes(parent, p) == _shapes(child, c) else COLOURS["widened"])
        for p, c in found.pairs
    ]
    sides = [
        [Box(layer.name or layer.kind, layer.kind) for layer in graph.layers] for graph in (parent, child)
    ]
    said = f"similarity {found.similarity:.3f}: what is not matched was skipped"
    return links(("parent", "child"), sides[0], sides[1], wires, said)


def _shapes(graph: Graph, number: int) -> list[tuple[int, ...]]:
    return [tensor.shape for tensor in graph.layers[number].tensors]


def growth() -> Picture:
    """Four units become six: which are copies, and by which share is each read?"""
    units = widen(4, 6, (0,))
    left = [Box(f"unit {number}", "of the parent", _colour(number)) for number in range(4)]
    right = [
        Box(f"unit {number}", f"read by {share:.2f}", _colour(int(source)))
        for number, (source, share) in enumerate(zip(units.source, units.share, strict=True))
    ]
    wires = [Wire(int(source), number, _colour(int(source))) for number, source in enumerate(units.source)]
    return links(("parent", "child"), left, right, wires, "shares of copies sum to one, and differ")


def plan() -> Picture:
    """A small residual network lends to a wider and deeper one."""
    parent, child = graph_of(8, 16, 1), graph_of(12, 24, 2)
    return make_plan(parent, child, align(parent, child)).plot()


DRAWINGS: dict[str, Callable[[], Picture]] = {
    "concept-spaces.svg": spaces,
    "concept-alignment.svg": alignment,
    "concept-growth.svg": growth,
    "concept-plan.svg": plan,
}


def main() -> None:
    """Write all of them."""
    for name, draw in DRAWINGS.items():
        print(draw().save(IMAGES / name))


if __name__ == "__main__":
    main()
