"""A plan carried out on plain arrays: the child computes the same, and bad weights are refused by name."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidWeights
from modelkeeper.matching import align
from modelkeeper.transform import Plan, apply, make_plan
from modelkeeper.weights import Array
from tests.helpers.perceptrons import INPUTS, chain, computed, weights_of

X = np.random.default_rng(1).normal(size=(16, INPUTS))


def between(parent: list[int], child: list[int], **options: Any) -> Plan:
    parent_graph, child_graph = chain(*parent), chain(*child)
    return make_plan(parent_graph, child_graph, align(parent_graph, child_graph), **options)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=4),
    st.integers(0, 1000),
)
def test_a_wider_child_computes_the_same(sizes: list[tuple[int, int]], seed: int) -> None:
    plan = between([size for size, _ in sizes], [size + more for size, more in sizes], seed=seed)
    weights = weights_of(plan.parent, seed)
    made = dict(apply(plan, weights))
    assert plan.exact
    assert {name: array.shape for name, array in made.items()} == {
        name: tensor.shape for name, tensor in plan.child.tensors.items()
    }
    np.testing.assert_allclose(computed(made, X), computed(weights, X), rtol=1e-9, atol=1e-9)


@given(st.integers(2, 8), st.integers(1, 7), st.integers(0, 1000))
def test_a_narrower_child_keeps_the_units_that_are_said_to_matter(width: int, fewer: int, seed: int) -> None:
    kept = max(1, width - fewer)
    plan = between([width], [kept])
    weights, importance = weights_of(plan.parent, seed), np.random.default_rng(seed).random(width)
    made = dict(apply(plan, weights, importance=lambda space: importance))
    chosen = sorted(np.argsort(-importance)[:kept])
    np.testing.assert_array_equal(made["l0.bias"], weights["l0.bias"][chosen])
    np.testing.assert_array_equal(made["l1.weight"], weights["l1.weight"][:, chosen])


class Watched(Mapping[str, Array]):
    """Tensors of which each is made when it is asked for, and who asked is written down."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Array:
        self.asked.append(name)
        return self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)


def test_a_tensor_is_read_when_it_is_needed_and_not_before() -> None:
    plan = between([4, 4], [6, 6])
    watched = Watched(weights_of(plan.parent))
    for number, (name, _) in enumerate(apply(plan, watched), 1):
        assert watched.asked[-1] == name
        assert len(watched.asked) == number


def test_what_is_kept_is_neither_read_nor_made() -> None:
    plan = between([4], [4], same_task=False)
    watched = Watched(weights_of(plan.parent))
    assert [name for name, _ in apply(plan, watched)] == ["l0.weight", "l0.bias"]
    assert set(watched.asked) == {"l0.weight", "l0.bias"}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_child_decides_the_dtype(dtype: str) -> None:
    parent, child = chain(4), chain(6, dtype=dtype)
    made = dict(apply(make_plan(parent, child, align(parent, child)), weights_of(parent)))
    assert {str(array.dtype) for array in made.values()} == {dtype}


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (lambda array: array[:-1], "shape"),
        (lambda array: np.full_like(array, np.nan), "NaN"),
        (lambda array: array.astype(str), "l1.weight"),
        (None, "l1.weight"),
    ],
)
@pytest.mark.parametrize("width", [4, 6])
def test_bad_weights_are_refused_by_name(fault: Any, problem: str, width: int) -> None:
    plan = between([4], [width])
    weights = weights_of(plan.parent)
    if fault is None:
        del weights["l1.weight"]
    else:
        weights["l1.weight"] = fault(weights["l1.weight"])
    with pytest.raises(InvalidWeights, match=problem):
        dict(apply(plan, weights))
