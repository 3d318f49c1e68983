"""Layouts: from what a model stores to the tensor of its graph and back; weights made where they belong."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Graph
from modelkeeper.layouts import Laid, Layout
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.describe import describe
from modelkeeper.tracing.trace import OwnedTensor
from modelkeeper.transform import apply, make_plan
from modelkeeper.weights import Array

KERNEL = Layout.moved((3, 3, 4, 6), (3, 2, 0, 1))
DENSE = Layout.moved((4, 6), (1, 0))
DEPTHWISE = Layout((3, 3, 4, 2), (2, 3, 0, 1), (8, 1, 3, 3))
FLATTENED = Layout((3, 2, 4, 6), (3, 2, 0, 1), (6, 24))  # (H, W, C, out) for (out, C * H * W)
HEADS = Layout((8, 2, 3), (1, 2, 0), (6, 8))
GATES = Layout((4, 3, 5), (1, 2, 0), (15, 4), (1, (1, 0, 2)))
APART = Layout((2, 4, 3), (0, 2, 1), (6, 4))
LAYOUTS = [KERNEL, DENSE, DEPTHWISE, FLATTENED, HEADS, GATES, APART, Layout.plain((3, 4))]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout: stored axes in any order, some of them joined, maybe one regrouped."""
    first = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    order = tuple(draw(st.permutations(range(len(first)))))
    cuts = sorted(draw(st.sets(st.integers(1, len(first) - 1)))) if len(first) > 1 else []
    ends = [0, *cuts, len(first)]
    last = tuple(math.prod(first[n] for n in order[begin:end]) for begin, end in pairwise(ends))
    regroup = None
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(first) - 1))
        regroup = axis, tuple(draw(st.permutations(range(first[axis]))))
    return Layout(first, order, last, regroup)


@given(layouts())
def test_there_and_back(layout: Layout) -> None:
    stored = np.arange(math.prod(layout.first)).reshape(layout.first)
    canonical = layout.canonical(stored)
    assert canonical.shape == layout.last
    np.testing.assert_array_equal(layout.stored(canonical, layout.first), stored)
    if layout.is_plain:
        np.testing.assert_array_equal(canonical.reshape(-1), stored.reshape(-1))


@given(layouts())
def test_the_order_in_memory_is_that_of_what_is_stored(layout: Layout) -> None:
    in_memory = layout.in_memory()
    if in_memory is None:
        return
    canonical = layout.canonical(np.arange(math.prod(layout.first)).reshape(layout.first))
    for axis, units in in_memory:
        canonical = canonical.take(units, axis)
    moved = canonical.transpose([axis for axis, _ in in_memory])
    np.testing.assert_array_equal(moved.reshape(-1), np.arange(moved.size))


def test_all_that_frameworks_do_can_be_written_in_one_pass() -> None:
    assert [layout.in_memory() is None for layout in LAYOUTS] == [layout is APART for layout in LAYOUTS]


def test_what_is_laid_is_an_array_for_who_does_not_look() -> None:
    stored = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(np.asarray(Laid(stored, DENSE)), stored.T)
    assert np.asarray(Laid(stored, DENSE), np.float64).dtype == np.float64


def net(width: int, dense: int) -> Graph:
    """A convolution, a depthwise one, and two dense layers behind a flattening."""
    build = TraceBuilder("made")

    def owned(name: str, *shape: int) -> Any:
        return build.tensor(OwnedTensor((name,), shape, "float32"))

    x = build.input((1, 3, 4, 4))
    x = build.step("conv2d", (1, width, 4, 4), input=x, weight=owned("conv", width, 3, 3, 3), padding=[1, 1])
    depth = owned("depth", width, 1, 3, 3)
    x = build.step("conv2d", (1, width, 4, 4), input=x, weight=depth, padding=[1, 1], groups=width)
    x = build.view(x, (1, width * 16))
    x = build.step("linear", (1, dense), input=x, weight=owned("flat", dense, width * 16))
    x = build.step("relu", x.shape, self=x)
    return describe(build.trace([build.step("linear", (1, 2), input=x, weight=owned("head", 2, dense))]))


def stored_like_keras(graph: Graph) -> dict[str, Layout]:
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    width, dense = shapes["conv"][0], shapes["flat"][0]
    return {
        "conv": Layout.moved((3, 3, 3, width), (3, 2, 0, 1)),
        "depth": Layout((3, 3, width, 1), (2, 3, 0, 1), (width, 1, 3, 3)),
        "flat": Layout((4, 4, width, dense), (3, 2, 0, 1), (dense, width * 16)),
        "head": Layout.moved((dense, 2), (1, 0)),
    }


@pytest.mark.parametrize("sizes", [(4, 6), (7, 6), (4, 9), (3, 8), (5, 5)])
def test_weights_are_made_where_they_will_stand(sizes: tuple[int, int]) -> None:
    parent, child = net(4, 6), net(*sizes)
    rng = np.random.default_rng(0)
    tensors: Mapping[str, Array] = {
        name: rng.normal(size=tensor.shape).astype(np.float32) for name, tensor in parent.tensors.items()
    }
    same = [(n, n) for n in range(len(parent.layers))]
    plan = make_plan(parent, child, same)
    wanted = dict(apply(plan, tensors))
    made = dict(apply(plan, tensors, layouts=stored_like_keras(child)))
    assert made.keys() == wanted.keys()
    for name, value in made.items():
        assert isinstance(value, Laid)
        assert value.array.flags.c_contiguous
        assert value.array.shape == value.layout.first
        assert not np.shares_memory(value.array, tensors[name])
        np.testing.assert_array_equal(np.asarray(value), wanted[name])


def test_what_lies_apart_or_just_as_in_the_graph_comes_as_ever() -> None:
    parent = net(4, 6)
    tensors: dict[str, Array] = {
        name: np.zeros(tensor.shape, np.float32) for name, tensor in parent.tensors.items()
    }
    plan = make_plan(parent, parent, [(n, n) for n in range(len(parent.layers))])
    odd: dict[str, Layout] = {
        "flat": Layout((2, 64, 3), (0, 2, 1), (6, 64)),
        "head": Layout.plain((2, 6)),
    }
    made = dict(apply(plan, tensors, layouts=odd))
    assert all(isinstance(value, np.ndarray) for value in made.values())
