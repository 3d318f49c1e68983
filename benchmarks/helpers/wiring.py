"""Networks as graphs, written by hand: the shapes of wiring that matching must get right.

Tests and benchmarks of matching are made of them. Each is a function of widths and depths, so that
relatives are easy to make. `shuffled` writes the same architecture down in another way; `widened`,
`lengthened` and `without` change it by one step.
"""

import random
from collections.abc import Callable, Sequence

from modelkeeper.graph import Axis, Edge, Fixed, Graph, Layer, Tensor, consumers
from modelkeeper.graph.structure import Attribute
from modelkeeper.graph.vocabulary import COMMUTATIVE

AXIS_ROLES = ("out", "in", "kernel", "kernel", "kernel")


class Builder:
    """Layers one after another; each method returns the number of the layer it added."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def add(
        self,
        kind: str,
        *sources: int | Edge,
        shapes: dict[str, Sequence[int]] | None = None,
        **attributes: Attribute,
    ) -> int:
        name = f"{kind}{len(self.layers)}"
        tensors = tuple(
            Tensor(
                f"{name}.{role}",
                role,
                "float32",
                tuple(
                    Axis("out" if len(sizes) == 1 else AXIS_ROLES[i], Fixed(size, "test"))
                    for i, size in enumerate(sizes)
                ),
                buffer=role in ("mean", "variance"),
            )
            for role, sizes in (shapes or {}).items()
        )
        inputs = tuple(source if isinstance(source, Edge) else Edge(source) for source in sources)
        self.layers.append(Layer(name, kind, inputs, tensors, dict(attributes)))
        return len(self.layers) - 1

    def conv(
        self, source: int, out: int, into: int, kernel: int = 3, norm: bool = True, **attributes: Attribute
    ) -> int:
        at = self.add("conv", source, shapes={"weight": (out, into, kernel, kernel)}, **attributes)
        return self.norm(at, out) if norm else at

    def norm(self, source: int, width: int, kind: str = "batch_norm") -> int:
        return self.add(
            kind, source, shapes={"gain": (width,), "bias": (width,), "mean": (width,), "variance": (width,)}
        )

    def linear(self, source: int | Edge, out: int, into: int) -> int:
        return self.add("linear", source, shapes={"weight": (out, into), "bias": (out,)})

    def relu(self, source: int) -> Edge:
        return Edge(source, ("relu",))

    def graph(self) -> Graph:
        return Graph("test", tuple(self.layers))


def _finish(b: Builder, last: int, width: int, classes: int = 10) -> Graph:
    b.add("output", b.linear(Edge(last, ("relu", "avg_pool2d[8x8,1x1]")), classes, width))
    return b.graph()


def vgg(widths: Sequence[int] = (16, 32, 64), norm: bool = True) -> Graph:
    """Convolutions in a row."""
    b = Builder()
    last, into = b.add("input"), 3
    for width in widths:
        last, into = b.conv(last, width, into, norm=norm), width
    return _finish(b, last, into)


def resnet(
    blocks: Sequence[int] = (2, 2, 2), width: int = 16, squeeze: bool = False, bottleneck: bool = False
) -> Graph:
    """Residual blocks, in stages of twice the width."""
    b = Builder()
    last, into = b.conv(b.add("input"), width, 3), width
    for stage, count in enumerate(blocks):
        out = width * 2**stage
        for _ in range(count):
            if bottleneck:
                body = b.conv(b.conv(b.conv(last, out // 4, into, 1), out // 4, out // 4), out, out // 4, 1)
            else:
                body = b.conv(b.conv(last, out, into), out, out)
            if squeeze:
                gate = b.conv(
                    b.conv(body, max(1, out // 4), out, 1, norm=False), out, max(1, out // 4), 1, norm=False
                )
                body = b.add("multiply", body, Edge(gate, ("sigmoid",)))
            shortcut = last if into == out else b.conv(last, out, into, 1)
            last, into = b.add("add", body, b.relu(shortcut)), out
    return _finish(b, last, into)


def densenet(layers: int = 4, growth: int = 12) -> Graph:
    """Each layer reads all that came before."""
    b = Builder()
    last, width = b.conv(b.add("input"), 2 * growth, 3), 2 * growth
    for _ in range(layers):
        fresh = b.conv(b.norm(last, width), growth, width, norm=False)
        last, width = b.add("concat", last, fresh), width + growth
    return _finish(b, last, width)


def inception(modules: int = 2, width: int = 16) -> Graph:
    """Modules of four branches."""
    b = Builder()
    last, into = b.conv(b.add("input"), width, 3), width
    for _ in range(modules):
        parts = [
            b.conv(last, width, into, 1),
            b.conv(b.conv(last, width, into, 1), 2 * width, width, 3),
            b.conv(b.conv(b.conv(last, width // 2, into, 1), width, width // 2, 3), width, width, 3),
            b.conv(last, width, into, 1),
        ]
        last, into = b.add("concat", *parts), 5 * width
    return _finish(b, last, into)


def bench201(cells: Sequence[Sequence[str]], width: int = 16) -> Graph:
    """Cells of four nodes, an operation on each of the six edges: conv3, conv1, skip or none."""
    b = Builder()
    last = b.conv(b.add("input"), width, 3)
    for cell in cells:
        nodes, operations = [last], iter(cell)
        for target in range(1, 4):
            arriving = []
            for source in range(target):
                operation = next(operations)
                if operation == "skip":
                    arriving.append(nodes[source])
                elif operation != "none":
                    arriving.append(b.conv(nodes[source], width, width, int(operation[-1])))
            nodes.append(b.add("add", *arriving) if arriving else nodes[0])
        last = nodes[-1]
    return _finish(b, last, width)


def darts(cells: int = 3, width: int = 16) -> Graph:
    """Each cell takes the two cells before it: no node is crossed by every path."""
    b = Builder()
    older = last = b.conv(b.add("input"), width, 3)
    for cell in range(cells):
        out = width * 2 ** (cell // 2)
        a, c = b.conv(older, out, width, 1), b.conv(last, out, width, 1)
        n1 = b.add("add", b.conv(a, out, out), b.conv(c, out, out, 5))
        n2 = b.add("add", b.conv(n1, out, out), c)
        older, last = last, b.add("concat", n1, n2, b.conv(a, out, out, 5))
    return _finish(b, last, 3 * width)


def transformer(
    layers: int = 2, width: int = 32, hidden: int = 64, vocabulary: int = 100, masked: bool = False
) -> Graph:
    """`masked`: a mask goes to every attention, and to the mean over tokens at the end."""
    b = Builder()
    mask = (b.add("input"),) if masked else ()
    last = b.add("embedding", b.add("input"), shapes={"weight": (vocabulary, width)})
    for _ in range(layers):
        q, k, v = (b.linear(last, width, width) for _ in range(3))
        mixed = b.linear(b.add("attention", q, k, v, *mask, heads=4), width, width)
        last = b.norm(b.add("add", last, mixed), width, "layer_norm")
        grown = b.linear(b.relu(b.linear(last, hidden, width)), width, hidden)
        last = b.norm(b.add("add", last, grown), width, "layer_norm")
    last = b.linear(last, vocabulary, width)
    b.add("output", b.add("multiply", last, *mask) if masked else last)
    return b.graph()


def towers(left: int = 2, right: int = 3, width: int = 16) -> Graph:
    """Two inputs, two outputs, and something shared in between."""
    b = Builder()
    ends = []
    for depth in (left, right):
        last, into = b.add("input"), 3
        for _ in range(depth):
            last, into = b.conv(last, width, into), width
        ends.append(last)
    shared = b.add("concat", *ends)
    b.add("output", b.linear(shared, 10, 2 * width))
    b.add("output", b.linear(ends[1], 5, width))
    return b.graph()


def shuffled(graph: Graph, rng: random.Random) -> tuple[Graph, list[int]]:
    """The same architecture with other names, another numbering and merges written another way round;
    and for each of its layers the number it had."""
    behind = consumers(graph)
    waiting = [len({edge.source for edge in layer.inputs}) for layer in graph.layers]
    ready, order = [v for v, count in enumerate(waiting) if not count], []
    while ready:
        v = ready.pop(rng.randrange(len(ready)))
        order.append(v)
        for w in behind[v]:
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    place = {v: i for i, v in enumerate(order)}
    names: dict[str, str] = {}
    layers = []
    for v in order:
        layer = graph.layers[v]
        inputs = [Edge(place[edge.source], edge.via) for edge in layer.inputs]
        if layer.kind in COMMUTATIVE:
            rng.shuffle(inputs)
        tensors = tuple(
            Tensor(
                names.setdefault(t.name, f"t{len(names)}"),
                t.role,
                t.dtype,
                t.axes,
                t.trainable,
                t.buffer,
                t.live,
            )
            for t in layer.tensors
        )
        layers.append(Layer(f"l{rng.random()}", layer.kind, tuple(inputs), tensors, layer.attributes))
    return Graph(graph.framework, tuple(layers), graph.spaces), order


def widened(graph: Graph, number: int, axis: int, factor: float = 2.0) -> Graph:
    """One axis of one layer's weight made wider (or narrower)."""
    layer = graph.layers[number]
    first = layer.tensors[0]
    axes = list(first.axes)
    axes[axis] = Axis(axes[axis].role, Fixed(max(1, round(axes[axis].size * factor)), "test"))
    tensor = Tensor(first.name, first.role, first.dtype, tuple(axes), first.trainable, first.buffer)
    return replaced(
        graph,
        number,
        Layer(layer.name, layer.kind, layer.inputs, (tensor, *layer.tensors[1:]), layer.attributes),
    )


def replaced(graph: Graph, number: int, layer: Layer) -> Graph:
    """One layer exchanged for another."""
    return Graph(graph.framework, (*graph.layers[:number], layer, *graph.layers[number + 1 :]), graph.spaces)


def lengthened(graph: Graph, number: int, made: Callable[[Builder, int], int]) -> Graph:
    """A layer put behind layer `number`, before everything that takes its output."""
    b = Builder()
    b.layers = list(graph.layers[: number + 1])
    end = made(b, number)
    grown = end - number
    for layer in graph.layers[number + 1 :]:
        moved = tuple(
            Edge(end if e.source == number else e.source + grown * (e.source > number), e.via)
            for e in layer.inputs
        )
        tensors = tuple(
            Tensor(f"_{t.name}", t.role, t.dtype, t.axes, t.trainable, t.buffer, t.live)
            for t in layer.tensors
        )
        b.layers.append(Layer(layer.name, layer.kind, moved, tensors, layer.attributes))
    return b.graph()


def without(graph: Graph, number: int) -> Graph:
    """A layer with one input taken out; its consumers take its input instead."""
    source = graph.layers[number].inputs[0].source
    layers = []
    for v, layer in enumerate(graph.layers):
        if v == number:
            continue
        inputs = tuple(
            Edge((lambda s: s - (s > number))(source if e.source == number else e.source), e.via)
            for e in layer.inputs
        )
        layers.append(Layer(layer.name, layer.kind, inputs, layer.tensors, layer.attributes))
    return Graph(graph.framework, tuple(layers), graph.spaces)
