"""The fingerprint's laws: equal for the same architecture however it is written, else different.

The judge is networkx: fingerprints are equal exactly when it finds the labelled graphs isomorphic.
"""

import random
from collections.abc import Callable
from time import process_time

import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from modelkeeper.graph import (
    Atom,
    Axis,
    Concat,
    Edge,
    Expression,
    Fixed,
    Graph,
    Layer,
    Note,
    Pin,
    Product,
    Tensor,
    leaves,
)
from tests.helpers.strategies import graphs

randoms = st.randoms(use_true_random=False)


# What a fingerprint must not see.


@given(graphs(), randoms)
def test_names_do_not_matter(graph: Graph, rng: random.Random) -> None:
    prefix = f"renamed{rng.random()}"
    assert (
        on_tensors(
            replace(
                graph, layers=tuple(replace(layer, name=f"{prefix}.{layer.name}") for layer in graph.layers)
            ),
            lambda tensor: replace(tensor, name=prefix + tensor.name),
        ).fingerprint
        == graph.fingerprint
    )


@given(graphs(), randoms)
def test_the_order_in_which_it_was_written_does_not_matter(graph: Graph, rng: random.Random) -> None:
    assert reordered(graph, rng).fingerprint == graph.fingerprint


@given(graphs())
def test_what_does_not_shape_the_model_does_not_matter(graph: Graph) -> None:
    changed = on_tensors(
        graph, lambda tensor: replace(tensor, dtype="float16", trainable=not tensor.trainable)
    )
    pins = (Pin("other", "", "for another reason"),)
    spaces = tuple(replace(space, pins=pins, averaged=False) for space in graph.spaces)
    changed = replace(changed, framework="onnx", notes=(Note("dead", "", "new"),), spaces=spaces)
    assert changed.fingerprint == graph.fingerprint


@given(graphs())
def test_tensors_that_only_count_do_not_matter(graph: Graph) -> None:
    """One framework keeps them, another does not."""
    layers = tuple(replace(layer, tensors=tuple(counted(layer))) for layer in graph.layers)
    assert replace(graph, layers=layers).fingerprint == graph.fingerprint


# What it must see. Each change alters a count (of layers, steps, sizes, uses ...), so that no
# relabelling could make up for it.


def on_layer(
    change: Callable[[Layer], Layer], eligible: Callable[[Layer], bool] = lambda _: True
) -> Callable[..., Graph]:
    """The change of one eligible layer, chosen at random."""

    def apply(graph: Graph, rng: random.Random) -> Graph:
        numbers = [number for number, layer in enumerate(graph.layers) if eligible(layer)]
        assume(numbers)
        number = rng.choice(numbers)
        return replace(
            graph, layers=(*graph.layers[:number], change(graph.layers[number]), *graph.layers[number + 1 :])
        )

    return apply


def has_inputs(layer: Layer) -> bool:
    return bool(layer.inputs)


def has_tensors(layer: Layer) -> bool:
    return any(tensor.role != "count" for tensor in layer.tensors)


def last_edge(layer: Layer, **fields: object) -> Layer:
    return replace(layer, inputs=(*layer.inputs[:-1], replace(layer.inputs[-1], **fields)))


def counted(layer: Layer) -> list[Tensor]:
    """The tensors that are a part of the architecture."""
    return [tensor for tensor in layer.tensors if tensor.role != "count"]


def last_tensor(layer: Layer, **fields: object) -> Layer:
    return replace(layer, tensors=(*counted(layer)[:-1], replace(counted(layer)[-1], **fields)))


def with_axis(layer: Layer) -> Layer:
    return last_tensor(layer, name="untied", axes=(*counted(layer)[-1].axes, Axis("other", Fixed(1, ""))))


def widened(graph: Graph, rng: random.Random) -> Graph:
    """One space that a tensor uses, one unit wider."""
    used = {
        atom.space
        for layer in graph.layers
        for tensor in layer.tensors
        for axis in tensor.axes
        for atom in atoms(axis)
    }
    assume(used)
    chosen = rng.choice(sorted(used))
    spaces = tuple(replace(s, size=s.size + (number == chosen)) for number, s in enumerate(graph.spaces))
    return on_spaces(graph, lambda atom: Atom(atom.space, spaces[atom.space].size), spaces)


def untied(graph: Graph, rng: random.Random) -> Graph:
    uses = [(number, tensor.name) for number, layer in enumerate(graph.layers) for tensor in counted(layer)]
    names = [name for _, name in uses]
    tied = [(number, name) for number, name in uses if names.count(name) > 1]
    assume(tied)
    chosen, name = rng.choice(tied)
    return on_tensors(graph, lambda t: replace(t, name=name + "'") if t.name == name else t, only=chosen)


CHANGES = {
    "kind": on_layer(lambda layer: replace(layer, kind=layer.kind + "'")),
    "attribute added": on_layer(lambda layer: replace(layer, attributes={**layer.attributes, "new": 1})),
    "attribute removed": on_layer(
        lambda layer: replace(layer, attributes={}), lambda layer: bool(layer.attributes)
    ),
    "attribute changed": on_layer(
        lambda layer: replace(layer, attributes=dict.fromkeys(layer.attributes, "changed here")),
        lambda layer: bool(layer.attributes),
    ),
    "edge removed": on_layer(lambda layer: replace(layer, inputs=layer.inputs[:-1]), has_inputs),
    "edge doubled": on_layer(
        lambda layer: replace(layer, inputs=(*layer.inputs, layer.inputs[0])), has_inputs
    ),
    "step on an edge": on_layer(
        lambda layer: last_edge(layer, via=(*layer.inputs[-1].via, "tanh")), has_inputs
    ),
    "tensor removed": on_layer(lambda layer: replace(layer, tensors=tuple(counted(layer)[:-1])), has_tensors),
    "tensor's role": on_layer(lambda layer: last_tensor(layer, role="changed"), has_tensors),
    "buffer or parameter": on_layer(
        lambda layer: last_tensor(layer, buffer=not counted(layer)[-1].buffer), has_tensors
    ),
    "dead or alive": on_layer(
        lambda layer: last_tensor(layer, live=not counted(layer)[-1].live), has_tensors
    ),
    "number of axes": on_layer(with_axis, has_tensors),
    "layer added": lambda graph, rng: replace(graph, layers=(*graph.layers, Layer("", "input"))),
    "width of a space": widened,
    "tie undone": untied,
}


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=40)
@given(graph=graphs(), rng=randoms)
def test_a_change_of_structure_changes_it(change: str, graph: Graph, rng: random.Random) -> None:
    assert CHANGES[change](graph, rng).fingerprint != graph.fingerprint


@given(graphs(), randoms)
def test_rewired_is_equal_exactly_if_isomorphic(graph: Graph, rng: random.Random) -> None:
    changed = rng.choice([rewired, swapped, retied])(graph, rng)
    changed = reordered(changed, rng)
    assert (changed.fingerprint == graph.fingerprint) == isomorphic(changed, graph)


def test_two_diamonds_are_not_a_crossed_octagon() -> None:
    """From every single layer, both look alike: only the whole tells them apart."""
    sources = [Layer("", "input"), Layer("", "input")]
    branches = [Layer("", "linear", (Edge(source),)) for source in (0, 0, 1, 1)]
    apart = [Layer("", "add", (Edge(a), Edge(b))) for a, b in ((2, 3), (4, 5))]
    crossed = [Layer("", "add", (Edge(a), Edge(b))) for a, b in ((2, 4), (3, 5))]
    diamonds = Graph("torch", (*sources, *branches, *apart))
    octagon = Graph("torch", (*sources, *branches, *crossed))
    assert diamonds.fingerprint != octagon.fingerprint


def test_which_tensors_are_tied_matters() -> None:
    """Two layers that own two tensors of one role and shape: tied straight, or crosswise."""

    def pair(first: str, second: str) -> Layer:
        axes = (Axis("other", Fixed(2, "")),)
        return Layer(
            "",
            "gate",
            (),
            (Tensor(first, "weight", "float32", axes), Tensor(second, "weight", "float32", axes)),
        )

    straight = Graph("torch", (pair("a", "b"), pair("a", "c")))
    crosswise = Graph("torch", (pair("a", "b"), pair("c", "a")))
    assert straight.fingerprint != crosswise.fingerprint


def test_operands_of_an_ordered_merge_keep_their_order() -> None:
    def merge(kind: str, *sources: int) -> str:
        layers = (
            Layer("", "input"),
            Layer("", "linear", (Edge(0),)),
            Layer("", kind, tuple(map(Edge, sources))),
        )
        return Graph("torch", layers).fingerprint

    assert merge("attention", 0, 1) != merge("attention", 1, 0)
    assert merge("add", 0, 1) == merge("add", 1, 0)


@pytest.mark.parametrize("size", [1_000, 45_000])
def test_a_fence_takes_no_longer_than_its_length(size: int) -> None:
    """Each picket looks like its neighbours: telling them apart to the end would take quadratic time."""
    pickets = [Layer("", "input") for _ in range(size + 1)]
    rails = [Layer("", "add", (Edge(n), Edge(n + 1))) for n in range(size)]
    fence = Graph("torch", (*pickets, *rails))
    start = process_time()
    assert reordered(fence, random.Random(0)).fingerprint == fence.fingerprint
    assert process_time() - start < 20


# Ways to write the same model, and ways to change it.


def reordered(graph: Graph, rng: random.Random) -> Graph:
    """The same model in another topological order, with other numbers for its spaces."""
    waiting = [len({edge.source for edge in layer.inputs}) for layer in graph.layers]
    users: list[set[int]] = [set() for _ in graph.layers]
    for number, layer in enumerate(graph.layers):
        for edge in layer.inputs:
            users[edge.source].add(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    place: dict[int, int] = {}
    while ready:
        chosen = rng.randrange(len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        number = ready.pop()
        place[number] = len(place)
        for user in sorted(users[number]):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    layers = []
    for number in place:
        layer = graph.layers[number]
        inputs = [Edge(place[edge.source], edge.via) for edge in layer.inputs]
        if layer.kind in ("add", "multiply", "concat"):
            rng.shuffle(inputs)
        layers.append(replace(layer, inputs=tuple(inputs)))
    seats = list(range(len(graph.spaces)))
    rng.shuffle(seats)
    spaces = tuple(graph.spaces[seats.index(seat)] for seat in range(len(seats)))
    return on_spaces(
        replace(graph, layers=tuple(layers)), lambda atom: Atom(seats[atom.space], atom.size), spaces
    )


def rewired(graph: Graph, rng: random.Random) -> Graph:
    """One edge taken from another layer."""
    number = rng.choice([number for number, layer in enumerate(graph.layers) if layer.inputs] or [0])
    assume(number)
    inputs = list(graph.layers[number].inputs)
    which = rng.randrange(len(inputs))
    inputs[which] = replace(inputs[which], source=rng.randrange(number))
    return with_inputs(graph, number, inputs)


def swapped(graph: Graph, rng: random.Random) -> Graph:
    """The operands of one layer in another order."""
    number = rng.choice([number for number, layer in enumerate(graph.layers) if len(layer.inputs) > 1] or [0])
    assume(number)
    inputs = list(graph.layers[number].inputs)
    rng.shuffle(inputs)
    return with_inputs(graph, number, inputs)


def retied(graph: Graph, rng: random.Random) -> Graph:
    """One use of a tensor replaced by another tensor of the same description."""
    uses = [(number, tensor) for number, layer in enumerate(graph.layers) for tensor in layer.tensors]
    assume(uses)
    number, tensor = rng.choice(uses)
    others = [t for _, t in uses if t.axes == tensor.axes and t.dtype == tensor.dtype]
    name = rng.choice(others).name
    return on_tensors(graph, lambda t: replace(t, name=name) if t == tensor else t, only=number)


def with_inputs(graph: Graph, number: int, inputs: list[Edge]) -> Graph:
    layers = list(graph.layers)
    layers[number] = replace(layers[number], inputs=tuple(inputs))
    return replace(graph, layers=tuple(layers))


def on_tensors(graph: Graph, change: Callable[[Tensor], Tensor], only: int | None = None) -> Graph:
    layers = [
        replace(layer, tensors=tuple(map(change, layer.tensors))) if only in (None, number) else layer
        for number, layer in enumerate(graph.layers)
    ]
    return replace(graph, layers=tuple(layers))


def on_spaces(graph: Graph, change: Callable[[Atom], Atom], spaces: tuple[object, ...]) -> Graph:
    def leaf(of: Atom | Fixed) -> Atom | Fixed:
        return change(of) if isinstance(of, Atom) else of

    def product(of: Product) -> Product:
        return Product(tuple(concat(each) if isinstance(each, Concat) else leaf(each) for each in of.factors))

    def concat(of: Concat) -> Concat:
        return Concat(tuple(product(each) if isinstance(each, Product) else leaf(each) for each in of.parts))

    def expression(of: Expression) -> Expression:
        match of:
            case Product():
                return product(of)
            case Concat():
                return concat(of)
        return leaf(of)

    def axis(each: Axis) -> Axis:
        degrees = tuple((change(Atom(space, 0)).space, degree) for space, degree in each.degrees)
        return Axis(each.role, expression(each.of), degrees)

    layers = tuple(
        replace(layer, tensors=tuple(replace(t, axes=tuple(map(axis, t.axes))) for t in layer.tensors))
        for layer in graph.layers
    )
    return replace(graph, layers=layers, spaces=spaces)


def atoms(axis: Axis) -> list[Atom]:
    return [leaf for leaf in leaves(axis.of) if isinstance(leaf, Atom)]


def isomorphic(one: Graph, two: Graph) -> bool:
    match = (
        nx.isomorphism.categorical_node_match("label", None),
        nx.isomorphism.categorical_multiedge_match("label", None),
    )
    return bool(nx.is_isomorphic(network(one), network(two), *match))


def network(graph: Graph) -> "nx.MultiDiGraph[object]":
    """The structure of a graph for networkx; tensors are nodes, fed by their users. Not what only counts."""
    found: nx.MultiDiGraph[object] = nx.MultiDiGraph()
    for number, layer in enumerate(graph.layers):
        tensors = [
            (t.role, t.buffer, t.live, [(axis.role, axis.of.size) for axis in t.axes]) for t in counted(layer)
        ]
        found.add_node(number, label=repr((layer.kind, sorted(layer.attributes.items()), tensors)))
        for position, edge in enumerate(layer.inputs):
            ordered = layer.kind not in ("add", "multiply", "concat")
            found.add_edge(edge.source, number, label=repr((edge.via, position if ordered else None)))
        for position, tensor in enumerate(counted(layer)):
            found.add_node(tensor.name, label="tensor")
            found.add_edge(number, tensor.name, label=repr(position))
    return found
