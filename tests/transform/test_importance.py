"""Narrowing: what matters does not depend on scale; a unit that has a double can be dropped for nothing."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modelkeeper import transfer
from modelkeeper.frontends.torch import describe, difference, load, read
from modelkeeper.graph import Atom, Graph
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform import apply, make_plan
from modelkeeper.transform.importance import Importance
from modelkeeper.weights import Array

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
