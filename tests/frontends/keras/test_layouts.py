"""A layout leads from a stored array to the tensor of the graph and back, and says where numbers lie."""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.frontends.keras.layouts import Layout


@st.composite
def layouts(draw: Any) -> Layout:
    first = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    order = tuple(draw(st.permutations(range(len(first)))))
    moved = [first[n] for n in order]
    cuts = sorted(draw(st.sets(st.integers(1, len(moved) - 1)))) if len(moved) > 1 else []
    bounds = [0, *cuts, len(moved)]
    last = tuple(math.prod(moved[a:b]) for a, b in zip(bounds, bounds[1:], strict=False))
    axis = draw(st.integers(0, len(first) - 1))
    regroup = draw(st.none() | st.permutations(range(first[axis])).map(lambda parts: (axis, tuple(parts))))
    return Layout(first, order, last, regroup)


@given(layouts())
def test_stored_undoes_canonical(layout: Layout) -> None:
    array = np.arange(math.prod(layout.first)).reshape(layout.first)
    canonical = layout.canonical(array)
    assert canonical.shape == layout.last
    np.testing.assert_array_equal(layout.stored(canonical, array.shape), array)


@given(layouts())
def test_offsets_say_where_each_number_lies(layout: Layout) -> None:
    array = np.arange(math.prod(layout.first))
    places = np.zeros((1,) * len(layout.last), np.int64)
    for axis, offsets in enumerate(layout.offsets()):
        places = places + offsets.reshape([-1 if n == axis else 1 for n in range(len(layout.last))])
    np.testing.assert_array_equal(layout.canonical(array), array[places])


@given(layouts())
def test_a_plain_layout_changes_no_order(layout: Layout) -> None:
    array = np.arange(math.prod(layout.first))
    unchanged = np.array_equal(layout.canonical(array).reshape(-1), array)
    assert unchanged or not layout.is_plain


def test_a_kernel_has_its_outputs_first() -> None:
    assert Layout.moved((3, 3, 16, 32), (3, 2, 0, 1)).canonical(np.zeros((3, 3, 16, 32))).shape == (
        32,
        16,
        3,
        3,
    )
