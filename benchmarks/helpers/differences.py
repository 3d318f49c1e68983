"""Networks of many families, changed step by step: does every further difference lower the similarity?"""

import random
from collections.abc import Callable

from benchmarks.helpers.wiring import (
    Builder,
    bench201,
    darts,
    densenet,
    inception,
    lengthened,
    resnet,
    towers,
    transformer,
    vgg,
    widened,
    without,
)
from modelkeeper.graph import Graph
from modelkeeper.matching import align

STEPS = 4
WIDTHS = (4, 8, 12, 16, 24, 32)


def tangle(rng: random.Random, most: int = 12) -> Graph:
    """Any wiring at all: every layer takes any earlier ones."""
    b = Builder()
    b.add("input")
    for _ in range(rng.randint(1, most)):
        count = rng.randint(1, min(3, len(b.layers)))
        sources = rng.sample(range(len(b.layers)), count)
        if count == 1:
            norm = rng.random() < 0.5
            b.conv(sources[0], rng.choice(WIDTHS), rng.choice(WIDTHS), rng.choice([1, 3]), norm=norm)
        else:
            b.add(rng.choice(["add", "concat", "subtract"]), *sources)
    return b.graph()


def cells(rng: random.Random) -> Graph:
    """Cells of NAS-Bench-201."""
    operations = [rng.choices(["conv3", "conv1", "skip", "none"], k=6) for _ in range(rng.randint(1, 3))]
    return bench201(operations, rng.choice(WIDTHS))


FAMILIES: dict[str, Callable[[random.Random], Graph]] = {
    "chains": lambda r: vgg([r.choice(WIDTHS) for _ in range(r.randint(1, 6))], r.random() < 0.5),
    "residual": lambda r: resnet(
        [r.randint(1, 3) for _ in range(r.randint(1, 3))],
        r.choice(WIDTHS),
        r.random() < 0.5,
        r.random() < 0.5,
    ),
    "dense": lambda r: densenet(r.randint(1, 5), r.choice(WIDTHS)),
    "inception": lambda r: inception(r.randint(1, 3), r.choice(WIDTHS)),
    "transformers": lambda r: transformer(
        r.randint(1, 3), r.choice(WIDTHS), r.choice(WIDTHS), masked=r.random() < 0.5
    ),
    "NAS-Bench-201": cells,
    "DARTS": lambda r: darts(r.randint(1, 4), r.choice(WIDTHS)),
    "towers": lambda r: towers(r.randint(1, 3), r.randint(1, 3), r.choice(WIDTHS)),
    "wired at random": tangle,
}
TANGLED = ("NAS-Bench-201", "DARTS", "towers", "wired at random")


class Insertions:
    """A further layer somewhere, unlike any other."""

    def __call__(self, graph: Graph, rng: random.Random) -> Graph | None:
        number = rng.choice([v for v, layer in enumerate(graph.layers) if layer.kind != "output"])
        return lengthened(
            graph, number, lambda b, v: b.add("conv_transpose", v, shapes={"weight": (7, 7, 5, 5)})
        )


class Axes:
    """One further axis made different, to a width that no other layer has."""

    def __init__(self) -> None:
        self.done: set[tuple[int, int]] = set()

    def __call__(self, graph: Graph, rng: random.Random) -> Graph | None:
        choices = [
            (v, axis)
            for v, layer in enumerate(graph.layers)
            if layer.kind in ("conv", "linear")
            for axis in range(2)
            if (v, axis) not in self.done
        ]
        if not choices:
            return None
        chosen = rng.choice(choices)
        self.done.add(chosen)
        return widened(graph, *chosen, rng.choice([3.25, 5.5]))


class Removals:
    """A convolution taken out."""

    def __call__(self, graph: Graph, rng: random.Random) -> Graph | None:
        choices = [
            v for v, layer in enumerate(graph.layers) if layer.kind == "conv" and len(layer.inputs) == 1
        ]
        return without(graph, rng.choice(choices)) if choices else None


CHANGES: dict[str, Callable[[], Callable[[Graph, random.Random], Graph | None]]] = {
    "layers put in": Insertions,
    "axes made different": Axes,
    "layers taken out": Removals,
}


def count(family: str, change: str, graphs: int) -> dict[str, int]:
    """Steps of one kind on networks of one family."""
    found = {"steps": 0, "not lower": 0, "score rose": 0}
    for number in range(graphs):
        rng = random.Random(f"{family} {change} {number}")
        graph = FAMILIES[family](rng)
        step, now = CHANGES[change](), graph
        last = [(1.0, align(graph, graph))] * 2
        for _ in range(STEPS):
            changed = step(now, rng)
            if changed is None:
                break
            now = changed
            for side, (parent, child) in enumerate(((graph, now), (now, graph))):
                made, before = align(parent, child), last[side][1]
                found["steps"] += 1
                if made.similarity >= last[side][0]:
                    found["not lower"] += 1
                    score = made.layer_score + made.edge_score
                    found["score rose"] += score > before.layer_score + before.edge_score
                last[side] = made.similarity, made
    return found
