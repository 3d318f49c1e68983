"""The laws of an alignment, over networks of every kind of wiring."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.helpers.differences import CHANGES, TANGLED, count
from modelkeeper.graph import Graph, Layer
from modelkeeper.graph.structure import Attribute
from modelkeeper.matching import Alignment, align, prepare
from modelkeeper.matching.similarity import EDGE
from tests.helpers import generated as net

pairs = st.tuples(net.networks | net.tangles(), net.networks | net.tangles())
seeds = st.integers(0, 2**32)


def ancestors(graph: Graph) -> list[set[int]]:
    before: list[set[int]] = []
    for layer in graph.layers:
        before.append(
            set().union(*({e.source} | before[e.source] for e in layer.inputs)) if layer.inputs else set()
        )
    return before


def is_isomorphism(parent: Graph, child: Graph, alignment: Alignment) -> bool:
    image = {c: p for p, c in alignment.pairs}
    if len(image) != len(child.layers) or len(child.layers) != len(parent.layers):
        return False
    for c, layer in enumerate(child.layers):
        parent_layer = parent.layers[image[c]]
        arriving = sorted((image[e.source], e.via) for e in layer.inputs)
        shapes = [t.shape for t in layer.tensors], [t.shape for t in parent_layer.tensors]
        if (
            layer.kind != parent_layer.kind
            or shapes[0] != shapes[1]
            or layer.attributes != parent_layer.attributes
        ):
            return False
        if arriving != sorted((e.source, e.via) for e in parent_layer.inputs):
            return False
    return True


@given(pairs)
def test_each_layer_is_used_once_and_similarity_is_a_share(both: tuple[Graph, Graph]) -> None:
    alignment = align(*both)
    assert (
        len({p for p, _ in alignment.pairs}) == len({c for _, c in alignment.pairs}) == len(alignment.pairs)
    )
    assert 0.0 <= alignment.similarity <= 1.0
    assert sorted([*alignment.skipped_parent, *(p for p, _ in alignment.pairs)]) == list(
        range(len(both[0].layers))
    )
    assert sorted([*alignment.skipped_child, *(c for _, c in alignment.pairs)]) == list(
        range(len(both[1].layers))
    )
    assert (alignment.similarity == 1.0) == (both[0].fingerprint == both[1].fingerprint)


@given(net.networks | net.tangles(), seeds)
def test_the_same_architecture_maps_onto_itself(graph: Graph, seed: int) -> None:
    twin, _ = net.shuffled(graph, random.Random(seed))
    alignment = align(graph, twin)
    assert alignment.similarity == 1.0
    assert is_isomorphism(graph, twin, alignment)
    assert align(graph, graph).pairs == tuple((v, v) for v in range(len(graph.layers)))


@given(pairs)
def test_nothing_is_mapped_against_the_data_flow(both: tuple[Graph, Graph]) -> None:
    before, behind = ancestors(both[0]), ancestors(both[1])
    for (p1, c1), (p2, c2) in combinations(align(*both).pairs, 2):
        assert not (p1 in before[p2] and c2 in behind[c1])
        assert not (p2 in before[p1] and c1 in behind[c2])


@given(st.tuples(net.networks, net.networks), seeds)
def test_names_numbers_and_branch_order_do_not_matter(both: tuple[Graph, Graph], seed: int) -> None:
    rng = random.Random(seed)
    (parent, parent_order), (child, child_order) = net.shuffled(both[0], rng), net.shuffled(both[1], rng)
    first, second = align(*both), align(parent, child)
    assert first.similarity == second.similarity
    kinds = [
        sorted(
            (g.layers[p].kind, h.layers[c].kind, str([t.shape for t in h.layers[c].tensors]))
            for p, c in alignment.pairs
        )
        for g, h, alignment in ((*both, first), (parent, child, second))
    ]
    assert kinds[0] == kinds[1]
    assert sorted(parent_order) == list(range(len(parent.layers)))
    assert sorted(child_order) == list(range(len(child.layers)))


@given(pairs)
def test_no_score_exceeds_what_either_model_scores_alone(both: tuple[Graph, Graph]) -> None:
    alignment = align(*both)
    assert 0 <= alignment.edge_score <= EDGE * min(prepare(graph).edges for graph in both)
    assert (
        0
        <= alignment.layer_score + alignment.edge_score
        <= min(alignment.parent_total, alignment.child_total)
    )


def grown(graph: Graph, rng: random.Random) -> Graph:
    """A further layer somewhere, unlike any other."""
    number = rng.choice([v for v, layer in enumerate(graph.layers) if layer.kind != "output"])
    return net.lengthened(
        graph, number, lambda b, v: b.add("conv_transpose", v, shapes={"weight": (7, 7, 5, 5)})
    )


def changed(graph: Graph, rng: random.Random, done: set[tuple[int, int]]) -> Graph | None:
    """One further axis of one convolution made different."""
    choices = [
        (v, axis)
        for v, layer in enumerate(graph.layers)
        if layer.kind in ("conv", "linear")
        for axis in range(2)
        if (v, axis) not in done
    ]
    if not choices:
        return None
    number, axis = rng.choice(choices)
    done.add((number, axis))
    return net.widened(graph, number, axis, rng.choice([3.25, 5.5]))  # a width that no other layer has


@given(net.series_parallel, seeds)
def test_every_further_layer_lowers_the_similarity(graph: Graph, seed: int) -> None:
    rng = random.Random(seed)
    child, last = graph, 1.0
    for _ in range(4):
        child = grown(child, rng)
        now = align(graph, child).similarity
        assert now < last
        assert align(child, graph).similarity < 1.0
        last = now


def convolutions(graph: Graph) -> list[int]:
    return [v for v, layer in enumerate(graph.layers) if layer.kind == "conv" and len(layer.inputs) == 1]


@given(st.lists(net.widths, min_size=2, max_size=6), seeds)
def test_every_skipped_layer_of_a_chain_lowers_the_similarity(widths: list[int], seed: int) -> None:
    rng = random.Random(seed)
    graph = net.vgg(widths)
    child, last = graph, 1.0
    while len(convolutions(child)) > 1:
        child = net.without(child, rng.choice(convolutions(child)))
        now = align(graph, child).similarity
        assert now < last
        last = now


@given(net.series_parallel, seeds)
def test_a_skipped_layer_lowers_the_similarity(graph: Graph, seed: int) -> None:
    """One; with branches, a second removal may take away a layer that only fitted badly after the first."""
    if convolutions(graph):
        child = net.without(graph, random.Random(seed).choice(convolutions(graph)))
        assert align(graph, child).similarity < 1.0
        assert align(child, graph).similarity < 1.0


@given(net.series_parallel, seeds)
def test_every_differing_axis_lowers_the_similarity(graph: Graph, seed: int) -> None:
    rng = random.Random(seed)
    child: Graph | None = graph
    last, done = 1.0, set[tuple[int, int]]()
    for _ in range(4):
        assert child is not None
        child = changed(child, rng, done)
        if child is None:
            break
        now = align(graph, child).similarity
        assert 0.0 < now < last
        last = now


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", TANGLED)
def test_further_differences_lower_the_similarity_of_tangled_networks(family: str, change: str) -> None:
    """The law again where no regions describe a graph. Nothing proves it there: it holds for networks of this
    size (`benchmarks/matching_laws.py` counts more of them), so the sample is a fixed one."""
    counts = count(family, change, 8)
    assert counts["steps"] > 20
    assert counts["not lower"] == 0


def test_a_wider_twin_earns_part_of_the_credit() -> None:
    narrow, wide, wider = (net.resnet((2, 2, 2), width) for width in (16, 24, 32))
    near, far = align(narrow, wide), align(narrow, wider)
    assert is_complete(near)
    assert is_complete(far)
    assert 1.0 > near.similarity > far.similarity > 0.3


def is_complete(alignment: Alignment) -> bool:
    return not alignment.skipped_child and not alignment.skipped_parent


def by_kind(graph: Graph, alignment: Alignment, other: Graph) -> set[tuple[str, str]]:
    return {(graph.layers[p].kind, other.layers[c].kind) for p, c in alignment.pairs}


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (net.resnet((1, 1, 1)), net.resnet((3, 3, 3))),
        (net.resnet((1, 1), squeeze=True), net.resnet((2, 2), 24, squeeze=True)),
        (net.inception(1, 8), net.inception(3, 16)),
        (net.densenet(2, 8), net.densenet(5, 8)),
        (net.transformer(1, 32), net.transformer(3, 64, 128)),
        (
            net.bench201([("conv3", "skip", "conv1", "none", "conv3", "skip")]),
            net.bench201([("conv3", "skip", "conv1", "none", "conv3", "skip")] * 3, 24),
        ),
    ],
    ids=["resnet", "squeeze-excite", "inception", "dense", "attention", "nas-cell"],
)
def test_shortcuts_map_to_shortcuts_and_branches_to_branches(parent: Graph, child: Graph) -> None:
    alignment = align(parent, child)
    assert not alignment.skipped_parent
    image = dict(alignment.pairs)
    for _p, layer in enumerate(parent.layers):
        if (
            len(layer.inputs) > 1
        ):  # a merge: whatever feeds it feeds its image, by no detour that skips a branch
            fed = {image[e.source] for e in layer.inputs}
            assert len(fed) == len({e.source for e in layer.inputs})
    before, behind = ancestors(parent), ancestors(child)
    for (p1, c1), (p2, c2) in combinations(alignment.pairs, 2):
        assert (p1 in before[p2]) == (c1 in behind[c2])  # series stays series, parallel stays parallel


def layers_lent(parent: int, child: int, kind: str = "attention", masked: bool = False) -> list[int]:
    """Of two transformers of so many layers: which layer of the parent lends to each of the child's?"""
    nets = [net.transformer(layers, 16, 32, masked=masked) for layers in (parent, child)]
    places = [[v for v, layer in enumerate(g.layers) if layer.kind == kind] for g in nets]
    image = {c: p for p, c in align(*nets).pairs}
    return [places[0].index(image[c]) for c in places[1] if c in image]


@pytest.mark.parametrize("masked", [False, True])
def test_of_more_layers_alike_the_first_and_the_last_ones_lend(masked: bool) -> None:
    assert layers_lent(6, 3, masked=masked) == [0, 4, 5]
    assert layers_lent(6, 5, masked=masked) == [0, 2, 3, 4, 5]
    assert layers_lent(6, 1, masked=masked) == [5]
    assert layers_lent(12, 6, masked=masked) == [0, 7, 8, 9, 10, 11]
    deep, shallow = net.resnet((1, 6)), net.resnet((1, 3))
    image = {c: p for p, c in align(deep, shallow).pairs}
    adds = [[v for v, layer in enumerate(g.layers) if layer.kind == "add"] for g in (deep, shallow)]
    assert [adds[0].index(image[c]) for c in adds[1]] == [
        0,
        1,
        2,
        6,
    ]  # the second halves the image, and is unlike the others


@pytest.mark.parametrize("layers", [6, 16])
def test_a_mask_that_feeds_every_layer_leaves_the_layers_as_they_are(layers: int) -> None:
    """It is not what layers are matched by: a model twice as deep takes all of the parent's layers."""
    plain, masked = (net.transformer(layers, 16, 32, masked=m) for m in (False, True))
    deeper = net.transformer(2 * layers, 16, 32, masked=True)
    for parent in (plain, masked):
        assert not align(parent, deeper).skipped_parent
    image = dict(align(masked, deeper).pairs)
    for name, position in (("attention", 3), ("multiply", 1)):
        for v, layer in enumerate(masked.layers):
            if layer.kind == name:
                assert image[layer.inputs[position].source] == deeper.layers[image[v]].inputs[position].source


def test_queries_lend_to_queries() -> None:
    small, large = net.transformer(2, 32, 64), net.transformer(2, 48, 96)
    image = {c: p for p, c in align(small, large).pairs}
    for c, layer in enumerate(large.layers):
        if layer.kind == "attention":
            assert [image[e.source] for e in layer.inputs] == [
                e.source for e in small.layers[image[c]].inputs
            ]


def test_a_pointwise_convolution_lends_to_a_linear_layer() -> None:
    b, c = net.Builder(), net.Builder()
    b.add("output", b.conv(b.add("input"), 32, 16, 1, norm=False))
    c.add("output", c.add("linear", c.add("input"), shapes={"weight": (32, 16)}))
    alignment = align(b.graph(), c.graph())
    assert alignment.pairs == ((0, 0), (1, 1), (2, 2))
    assert alignment.similarity < 1.0


def test_what_cannot_be_reused_does_not_match() -> None:
    def one(out: int, into: int, **attributes: Attribute) -> Graph:
        b = net.Builder()
        b.add("output", b.conv(b.add("input"), out, into, 3, norm=False, **attributes))
        return b.graph()

    depthwise, dense = one(32, 1, groups=32), one(32, 32)
    assert (1, 1) not in align(depthwise, dense).pairs
    assert (1, 1) in align(depthwise, one(64, 1, groups=64)).pairs
    assert (1, 1) not in align(one(96, 8, groups=3), one(96, 8, groups=4)).pairs
    assert (1, 1) in align(one(96, 8, groups=4), one(96, 8, groups=8)).pairs


def test_a_huge_layer_weighs_more_than_a_tiny_one() -> None:
    def two(small: int, huge: int) -> Graph:
        b = net.Builder()
        b.add("output", b.linear(b.linear(b.add("input"), small, 8), huge, huge))
        return b.graph()

    child = two(8, 4096)
    assert align(two(16, 4096), child).similarity > align(two(8, 512), child).similarity + 0.2


@pytest.mark.parametrize(
    ("parent", "child"), [((10, 2), (8, 3)), ((8, 3), (12, 2)), ((8, 1), (16, 3)), ((8, 2), (12, 1))]
)
@pytest.mark.parametrize("pooled", [True, False])
def test_stages_go_with_stages(parent: tuple[int, int], child: tuple[int, int], pooled: bool) -> None:
    """Plain networks of other widths and depths: like widths in another stage do not tempt."""
    from torch import nn

    from modelkeeper.frontends.torch import describe

    def plain(width: int, depth: int) -> nn.Module:
        layers: list[nn.Module] = []
        before = 3
        for stage in range(3):
            for number in range(depth):
                stride = 2 if not pooled and stage and not number else 1
                layers += [nn.Conv2d(before, width << stage, 3, stride, 1), nn.ReLU()]
                before = width << stage
            layers += [nn.MaxPool2d(2)] if pooled and stage < 2 else []
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))

    first, second = describe(plain(*parent)), describe(plain(*child))
    stages = [[stage for stage in range(3) for _ in range(depth)] for depth in (parent[1], child[1])]
    places = [
        {
            number: place
            for place, number in enumerate(n for n, x in enumerate(graph.layers) if x.kind == "conv")
        }
        for graph in (first, second)
    ]
    for parent_number, child_number in align(first, second).pairs:
        if first.layers[parent_number].kind == "conv":
            assert stages[0][places[0][parent_number]] == stages[1][places[1][child_number]]


def test_attributes_and_what_lies_on_an_edge_matter() -> None:
    plain = net.vgg((8, 8))
    layer = plain.layers[3]
    strided = net.replaced(
        plain, 3, Layer(layer.name, layer.kind, layer.inputs, layer.tensors, {"stride": (2, 2)})
    )
    assert 0.85 < align(plain, strided).similarity < 1.0
    rewired = net.replaced(
        plain, 3, Layer(layer.name, layer.kind, (net.Edge(layer.inputs[0].source, ("tanh",)),), layer.tensors)
    )
    assert 0.9 < align(plain, rewired).similarity < 1.0


@given(pairs)
@settings(max_examples=25)
def test_an_alignment_is_the_same_every_time(both: tuple[Graph, Graph]) -> None:
    assert align(*both) == align(*both)
