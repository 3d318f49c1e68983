"""Narrowing: what matters does not depend on scale; a unit that has a double can be dropped for nothing."""

import tracemalloc
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modelkeeper import transfer
from modelkeeper.frontends.torch import describe, difference, load, read
from modelkeeper.graph import (
    Atom,
    Axis,
    Concat,
    Edge,
    Expression,
    Fixed,
    Graph,
    Layer,
    Product,
    Space,
    Tensor,
)
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform import apply, importance, make_plan
from modelkeeper.transform.importance import Importance, folded
from modelkeeper.weights import Array
from tests.helpers.perceptrons import chain, weights_of

seeds = st.integers(0, 1000)
IMAGE = torch.randn(4, 3, 6, 6)


def plain(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3)).eval()


def normed(width: int) -> nn.Sequential:
    body = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*body, nn.Conv2d(width, 5, 3), nn.Flatten(), nn.Linear(80, 2)).eval()


def flattened(width: int) -> nn.Sequential:
    body = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(36 * width, 3)).eval()


KINDS = {"plain": (plain, torch.randn(8, 4)), "normed": (normed, IMAGE), "flattened": (flattened, IMAGE)}


@settings(max_examples=20)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(2, 5),
    st.lists(st.floats(0.5, 2), min_size=1, max_size=6),
    seeds,
)
def test_units_that_have_a_double_are_dropped_for_nothing(
    kind: str, width: int, scales: list[float], seed: int
) -> None:
    """A double is a unit times a positive number: a rectifier hands it on as the same multiple."""
    make, inputs = KINDS[kind]
    torch.manual_seed(seed)
    parent, child = make(width + len(scales)).double(), make(width).double()
    reader = next(module for module in list(parent)[2:] if isinstance(module, (nn.Linear, nn.Conv2d)))
    per = reader.weight.shape[1] // (width + len(scales))
    with torch.no_grad():
        for number, scale in enumerate(scales):
            double, unit = width + number, number % width
            first, maker = parent.get_parameter("0.weight"), "1" if kind == "normed" else "0"
            first[double] = first[unit]
            for made in (parent.get_parameter(f"{maker}.weight"), parent.get_parameter(f"{maker}.bias")):
                made[double] = made[unit] * scale
            reader.weight[:, per * double : per * (double + 1)] *= 0.01  # the doubles are what is dropped
    report = transfer(parent, child, inputs.double())
    assert not report.exact
    assert torch.equal(child.get_parameter("0.weight"), parent.get_parameter("0.weight")[:width])
    assert difference(parent, child, inputs.double()) < 1e-6


@settings(max_examples=20)
@given(st.integers(2, 8), st.data(), seeds)
def test_scaling_a_unit_and_its_readers_the_other_way_changes_nothing(
    width: int, data: st.DataObject, seed: int
) -> None:
    torch.manual_seed(seed)
    parent, scaled = plain(width), plain(width)
    scaled.load_state_dict(parent.state_dict())
    by = torch.tensor(data.draw(st.lists(st.sampled_from([0.25, 1, 8]), min_size=width, max_size=width)))
    with torch.no_grad():
        scaled.get_parameter("0.weight").mul_(by[:, None])
        scaled.get_parameter("0.bias").mul_(by)
        scaled.get_parameter("2.weight").div_(by)
    small, other = plain(width - 1), plain(width - 1)
    transfer(parent, small)
    transfer(scaled, other)
    assert difference(small, other) < 1e-5


def importance_of(graph: Graph, weights: dict[str, Array]) -> Importance:
    return Importance(graph, lambda tensor: weights[tensor.name])


def test_a_unit_that_nothing_reads_goes_first() -> None:
    for make, inputs in KINDS.values():
        parent = make(6)
        reader = next(module for module in list(parent)[2:] if isinstance(module, (nn.Linear, nn.Conv2d)))
        per = reader.weight.shape[1] // 6
        with torch.no_grad():
            reader.weight[:, per * 3 : per * 4] = 0
        graph, weights = describe(parent, inputs), dict(read(parent))
        made = next(iter(graph.tensors.values())).axes[0].of
        assert isinstance(made, Atom)
        importance = importance_of(graph, weights)
        assert importance(made.space).argmin() == 3
        assert (importance(made.space) >= 0).all()


def test_units_on_a_layer_norm_matter_by_its_gain_and_are_not_folded() -> None:
    parent = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    with torch.no_grad():
        parent.get_parameter("1.weight")[2] = 1e-3
    graph, weights = describe(parent), dict(read(parent))
    importance = importance_of(graph, weights)
    assert importance(0).argmin() == 2
    assert importance.fold(0, np.array([0, 1, 3])) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_folding_keeps_the_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    parent, child, single = plain(6).to(dtype), plain(4).to(dtype), plain(4)
    transfer(parent, child)
    single_parent = plain(6)
    single_parent.load_state_dict({name: t.float() for name, t in parent.state_dict().items()})
    transfer(single_parent, single)
    assert child[2].weight.dtype == dtype
    torch.testing.assert_close(child[2].weight.float(), single[2].weight, rtol=1e-2, atol=1e-3)


def test_other_ideas_of_importance_can_be_given() -> None:
    parent, child = plain(6), plain(4)
    parent_graph, child_graph = describe(parent), describe(child)
    pairs = twin_pairs(parent_graph, child_graph)
    assert pairs is not None
    load(
        child,
        dict(
            apply(
                make_plan(parent_graph, child_graph, pairs),
                dict(read(parent)),
                importance=lambda _: -np.arange(6.0),
            )
        ),
    )
    first, last = (child.get_parameter(name) for name in ("0.weight", "2.weight"))
    assert torch.equal(first, parent.get_parameter("0.weight")[:4])
    assert torch.equal(last, parent.get_parameter("2.weight")[:, :4])  # nothing is folded


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_narrowing_in_small_blocks_gives_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, inputs = KINDS[kind]
    torch.manual_seed(0)
    parent, child, other = make(9), make(5), make(5)
    transfer(parent, child, inputs)
    monkeypatch.setattr("modelkeeper.transform.importance.BLOCK", 7)
    transfer(parent, other, inputs)
    for tensor, expected in zip(other.parameters(), child.parameters(), strict=True):
        torch.testing.assert_close(tensor, expected)


def test_narrowing_converts_no_tensor_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkeeper.transform.importance.BLOCK", 2**14)
    first, second = nn.Linear(1024, 512, dtype=torch.bfloat16), nn.Linear(512, 1024, dtype=torch.bfloat16)
    parent = nn.Sequential(first, nn.ReLU(), second)
    graph, weights = describe(parent, torch.zeros(1, 1024, dtype=torch.bfloat16)), dict(read(parent))
    kept, importance = np.arange(480), importance_of(graph, weights)
    made = next(axis.of for axis in graph.tensors["0.weight"].axes if axis.role == "out")
    assert isinstance(made, Atom)
    tracemalloc.start()
    try:
        importance(made.space)
        assert importance.fold(made.space, kept) is not None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < weights["0.weight"].nbytes


# -- without a framework: each rule by itself -------------------------------------------------------

UNITS = Axis("out", Atom(0, 4))
READ = Axis("in", Atom(0, 4), ((0, 1),))
OTHER = Axis("out", Fixed(2, ""))
SEEN = Axis("in", Fixed(3, "input"))


def tensor(name: str, *axes: Axis, role: str = "weight", **how: Any) -> Tensor:
    return Tensor(name, role, "float64", axes, **how)


MADE, READER = tensor("made", UNITS, SEEN), tensor("read", OTHER, READ)
GAIN, VARIANCE = tensor("gain", UNITS, role="gain"), tensor("variance", UNITS, role="variance", buffer=True)


def graph_of(*tensors: Tensor, averaged: bool = False) -> Graph:
    """A layer for each tensor."""
    layers = [Layer(each.name, "linear", (), (each,)) for each in tensors]
    return Graph("test", tuple(layers), (Space(4, (), averaged),))


def known(graph: Graph, seed: int = 0) -> tuple[Importance, dict[str, Array]]:
    weights = weights_of(graph, seed)
    return importance_of(graph, weights), weights


def length(array: Array, axis: int) -> Array:
    """The root of the sum of squares of each unit."""
    rest = tuple(n for n in range(array.ndim) if n != axis)
    return np.sqrt(np.square(array).sum(rest))


def test_a_unit_matters_by_how_large_it_is_times_how_much_of_it_is_read() -> None:
    more = tensor("more", UNITS, SEEN, Axis("kernel", Fixed(2, "kernel")))
    matters, w = known(graph_of(MADE, more, tensor("bias", UNITS, role="bias"), READER))
    made = np.hypot(length(w["made"], 0), length(w["more"], 0))
    np.testing.assert_allclose(matters(0), made * length(w["read"], 1))
    assert matters(0) is matters(0), "worked out once"


def test_what_is_not_known_of_a_unit_does_not_count() -> None:
    for tensors, names in (((MADE,), {"made"}), ((READER,), {"read"}), ((), set[str]())):
        matters, w = known(graph_of(*tensors, tensor("other", OTHER, SEEN)))
        expected = [length(w[name], int(name == "read")) for name in names]
        np.testing.assert_allclose(matters(0), expected[0] if expected else np.ones(4))
        assert matters(0).shape == (4,)


def test_what_is_a_buffer_or_never_used_does_not_count() -> None:
    dead = tensor("dead", UNITS, SEEN, live=False), tensor("buffer", UNITS, SEEN, buffer=True)
    matters, w = known(graph_of(MADE, *dead))
    np.testing.assert_allclose(matters(0), length(w["made"], 0))


def test_behind_a_norm_all_units_are_as_large_unless_it_takes_them_together() -> None:
    matters, w = known(graph_of(MADE, GAIN, READER))
    np.testing.assert_allclose(matters(0), length(w["read"], 1))
    matters, w = known(graph_of(MADE, GAIN, READER, averaged=True))
    np.testing.assert_allclose(matters(0), np.abs(w["gain"]) * length(w["read"], 1))
    matters, w = known(graph_of(MADE, GAIN))
    np.testing.assert_allclose(matters(0), np.abs(w["gain"]))
    matters, w = known(graph_of(MADE, GAIN, READER))
    w["gain"][:] = 0
    np.testing.assert_allclose(matters(0), length(w["made"], 0) * length(w["read"], 1))


def test_all_places_of_a_unit_on_an_axis_count() -> None:
    twice = Concat((Fixed(1, ""), Product((Atom(0, 4), Fixed(3, "pixels"))), Atom(0, 4)))
    matters, w = known(graph_of(tensor("read", OTHER, Axis("in", twice, ((0, 1),)))))
    squares = np.square(w["read"]).sum(0)
    np.testing.assert_allclose(np.square(matters(0)), squares[1:13].reshape(4, 3).sum(1) + squares[13:])


def test_a_dropped_unit_is_folded_into_the_kept_one_it_is_most_like() -> None:
    """Most like by direction; by how much: its projection. One that points away is not folded."""
    matters, w = known(graph_of(MADE, tensor("bias", UNITS, role="bias"), READER))
    w["made"][:] = [[1, 0, 0], [0, 10, 0], [3, 4, 0], [-1, -2, 5]]
    fold = matters.fold(0, np.array([0, 1]))
    assert fold is not None
    assert fold[0].tolist()[:3] == [0, 1, 1]
    assert fold[1].tolist() == [0, 0, 0.4, 0]
    assert matters.fold(0, np.array([0, 1])) is fold
    other = matters.fold(0, np.array([1, 3]))
    assert other is not None
    assert other[0].tolist()[1::2] == [1, 3]
    assert other[1].tolist() == [0, 0, 0.4, 0], "what is at right angles to it is not folded"
    w["made"][3] = [0, 0, 0]
    again = importance_of(graph_of(MADE, READER), w).fold(0, np.array([0, 3]))
    assert again is not None
    assert (again[0][2], again[1].tolist()) == (0, [0, 0, 3, 0])
    w["made"][:] = 0
    assert importance_of(graph_of(MADE, READER), w).fold(0, np.array([0, 1])) is None, "nothing makes them"


def test_nothing_is_folded_where_that_means_nothing() -> None:
    row = tensor("row", Axis("row", Atom(0, 4), ((0, 1),)), OTHER)
    some = np.array([0, 1])
    for tensors, averaged, kept in (
        ((MADE, READER), True, some),
        ((MADE, row), False, some),
        ((MADE, READER, row), False, some),
        ((MADE,), False, some),
        ((READER,), False, some),
        ((MADE, READER), False, some[:0]),
    ):
        assert known(graph_of(*tensors, averaged=averaged))[0].fold(0, kept) is None
    everything = known(graph_of(MADE, READER))[0].fold(0, np.arange(4))
    assert everything is None, "nothing is dropped"


def layered(
    *, via: tuple[str, ...] = (), eps: object = 1.0, kind: str = "batch_norm", twice: bool = False
) -> Graph:
    """A layer, a norm of each of its units, and one that reads them."""
    attributes: Any = {} if eps is None else {"eps": eps}
    layers = [
        Layer("image", "input"),
        Layer("made", "linear", (Edge(0),), (MADE,)),
        Layer("norm", kind, (Edge(1, via),), (GAIN, VARIANCE), attributes),
        Layer("read", "linear", (Edge(2),), (READER,)),
        Layer("answer", "output", (Edge(3), Edge(1)) if twice else (Edge(3),)),
    ]
    return Graph("test", tuple(layers), (Space(4),))


@pytest.mark.parametrize(
    ("how", "epsilon"),
    [
        ({}, 1.0),
        ({"eps": None}, 0.0),
        ({"eps": 2}, 2.0),
        ({"eps": "none"}, None),
        ({"via": ("relu",)}, None),
        ({"kind": "layer_norm"}, None),
        ({"twice": True}, None),
    ],
)
def test_units_are_compared_as_the_batch_norm_right_behind_scales_them(
    how: dict[str, Any], epsilon: float | None
) -> None:
    """The second has the weights of the first, and more gain and less deviation; None: as if it had not."""
    graph = layered(**how)
    w = weights_of(graph)
    w["made"][:], w["gain"][:], w["variance"][:] = 1.0, [1, 3, 1, 1], [4, 0.25, 4, 4]
    fold = importance_of(graph, w).fold(0, np.array([0]))
    assert fold is not None
    assert fold[0].tolist() == [0] * 4
    ratio = 1.0 if epsilon is None else 3 * np.sqrt((4 + epsilon) / (0.25 + epsilon))
    assert fold[1] == pytest.approx([0, ratio, 1, 1])


def test_a_unit_that_never_varies_is_nothing_and_a_norm_without_gains_scales_as_well() -> None:
    graph = layered(eps=0.0)
    w = weights_of(graph)
    w["made"][:], w["gain"][:], w["variance"][:] = 1.0, 2.0, [1, 0, 4, 1]
    fold = importance_of(graph, w).fold(0, np.array([0]))
    assert fold is not None
    assert fold[1] == pytest.approx([0, 0, 0.5, 1])
    bare = [
        layer if layer.name != "norm" else Layer("norm", layer.kind, layer.inputs, (VARIANCE,))
        for layer in graph.layers
    ]
    fold = importance_of(Graph("test", tuple(bare), graph.spaces), w).fold(0, np.array([2]))
    assert fold is not None
    assert fold[1] == pytest.approx([2, 0, 0, 2])


@st.composite
def folds(draw: st.DrawFn) -> tuple[Array, int, Array, Array]:
    """A tensor, one of its axes, and what its units are folded into, by how much."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    number = draw(st.integers(0, len(shape) - 1))
    size = shape[number]
    into = np.array(draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size)))
    amount = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=size, max_size=size)))
    amount[np.isin(np.arange(size), into[amount > 0])] = 0  # who takes is not dropped
    return np.arange(1.0, np.prod(shape) + 1).reshape(shape), number, into, amount


@settings(max_examples=40)
@given(folds(), st.sampled_from([3, 2**21]), st.sampled_from(["float64", "float16"]))
def test_folding_adds_to_each_unit_what_is_folded_into_it(
    case: tuple[Array, int, Array, Array], block: int, dtype: str
) -> None:
    array, number, into, amount = case
    before = array.astype(dtype)
    expected = np.moveaxis(array.copy(), number, 0)
    for unit, (taker, share) in enumerate(zip(into.tolist(), amount.tolist(), strict=True)):
        if share:
            expected[taker] += share * np.moveaxis(array, number, 0)[unit]
    axis = Axis("in", Atom(0, array.shape[number]), ((0, 1),))
    with mock.patch.object(importance, "BLOCK", block):
        made = folded(before, axis, number, 0, (into, amount))
    assert made.dtype == before.dtype
    np.testing.assert_array_equal(np.moveaxis(made, number, 0), expected)
    np.testing.assert_array_equal(before, array, "the parent's is as it was")


def test_all_places_of_a_unit_are_folded() -> None:
    axis = Axis("in", Product((Atom(0, 3), Fixed(2, "pixels"))), ((0, 1),))
    made = folded(np.arange(6.0)[None], axis, 1, 0, (np.array([0, 1, 1]), np.array([0, 0, 10.0])))
    assert made.tolist() == [[0, 1, 42, 53, 4, 5]]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data(), st.integers(1, 70))
def test_an_array_is_cut_into_parts_that_hold_no_more_than_they_may(
    shape: list[int], data: st.DataObject, block: int
) -> None:
    """Each number is in one of them; they have no more than they may, and more than half of it."""
    number = data.draw(st.integers(0, len(shape) - 1))
    array = np.arange(np.prod(shape)).reshape(shape)
    with mock.patch.object(importance, "BLOCK", block):
        parts = list(importance._parts(array, number))
    assert sorted(np.concatenate([part.reshape(-1) for part in parts]).tolist()) == array.reshape(-1).tolist()
    for part in parts:
        assert part.ndim == 3
        assert part.shape[1] == shape[number]
        assert part.size <= max(block, shape[number])
        assert np.shares_memory(part, array)
    assert len(parts) == 1 or 2 * parts[0].size > block
    whole = np.moveaxis(array, number, 0).reshape(shape[number], -1)
    with mock.patch.object(importance, "BLOCK", block):
        blocks = list(importance._blocks(array, np.arange(shape[number])[::-1, None], number))
    assert sorted(np.concatenate(blocks, 1)[-1].tolist()) == sorted(whole[0].tolist())
    assert {each.dtype for each in blocks} == {np.result_type(array.dtype, np.float32)}


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4), max_size=12))
def test_repeats_come_one_after_the_other(values: list[int]) -> None:
    turns = [each.tolist() for each in importance._without_repeats(np.array(values, np.int64))]
    assert sorted(place for turn in turns for place in turn) == list(range(len(values)))
    for number, turn in enumerate(turns):
        assert turn == sorted(turn)
        assert all(values[:place].count(values[place]) == number for place in turn)


def places(of: Expression) -> list[dict[int, int]]:
    """For each position on an axis, which unit of each space it belongs to."""
    match of:
        case Atom(space, size):
            return [{space: unit} for unit in range(size)]
        case Fixed(size):
            return [{}] * size
        case Product(factors):
            return [{k: v for each in way for k, v in each.items()} for way in product(*map(places, factors))]
        case Concat(parts):
            return [each for part in parts for each in places(part)]


@pytest.mark.parametrize(
    "of",
    [
        Atom(0, 4),
        Product((Atom(0, 4), Fixed(3, ""))),
        Product((Fixed(3, ""), Atom(0, 4))),
        Product((Fixed(2, ""), Atom(0, 4), Atom(1, 2), Fixed(2, ""))),
        Concat((Fixed(2, ""), Atom(0, 4), Atom(1, 2), Atom(0, 4))),
        Product((Atom(1, 2), Concat((Atom(0, 4), Fixed(1, ""))))),
        Concat((Product((Atom(0, 4), Atom(1, 2))), Atom(0, 4))),
    ],
    ids=str,
)
def test_where_the_units_of_a_space_stand(of: Expression) -> None:
    found = importance._positions(of, 0)
    for unit in range(4):
        assert found[unit].tolist() == [at for at, here in enumerate(places(of)) if here.get(0) == unit]


def test_units_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many dropped units and many kept ones there are more pairs than numbers in the weights."""
    monkeypatch.setattr("modelkeeper.transform.importance.BLOCK", 2**12)
    graph = chain(1200)
    matters, _ = known(graph)
    expected = importance_of(graph, weights_of(graph)).fold(0, np.arange(600))
    tracemalloc.start()
    try:
        fold = matters.fold(0, np.arange(0, 600))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fold is not None
    assert expected is not None
    np.testing.assert_array_equal(fold[0], expected[0])
    assert peak < 8 * 600 * 600 / 4
    monkeypatch.setattr("modelkeeper.transform.importance.BLOCK", 1)
    again = importance_of(graph, weights_of(graph)).fold(0, np.arange(1190))
    assert again is not None, "fewer numbers than kept units: one by one"
