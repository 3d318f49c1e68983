"""How one axis is gathered from another: every unit is there, shares sum to one, and doubts are said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Atom, Axis, Concat, Fixed, Product
from modelkeeper.matching import align
from modelkeeper.transform import Plan, make_plan
from modelkeeper.transform.units import Shares
from tests.helpers.perceptrons import chain

HIDDEN = 0  # the space between the first layer and the second


def between(parent: int, child: int, seed: int = 0) -> Plan:
    parent_graph, child_graph = chain(parent), chain(child)
    return make_plan(parent_graph, child_graph, align(parent_graph, child_graph), seed=seed)


def by_number(size: int) -> Shares:
    """The last units matter most."""
    return np.arange(size, dtype=np.float64)


@given(st.integers(1, 8), st.integers(0, 20), st.integers(0, 1000))
def test_a_wider_axis_has_every_unit_and_its_readers_share_what_copies_say(
    size: int, more: int, seed: int
) -> None:
    plan = between(size, size + more, seed)
    made, read = plan.child.tensors["l0.bias"].axes[0], plan.child.tensors["l1.weight"].axes[1]
    parent_axes = plan.parent.tensors["l0.bias"].axes[0], plan.parent.tensors["l1.weight"].axes[1]
    index, factor = plan.maps.gather(made, parent_axes[0], lambda space: by_number(size))
    again, shares = plan.maps.gather(read, parent_axes[1], lambda space: by_number(size))
    assert set(index.tolist()) == set(range(size))
    np.testing.assert_array_equal(index, again, "one space is mapped in one way wherever it is met")
    np.testing.assert_array_equal(factor, np.ones(size + more))
    np.testing.assert_allclose(np.bincount(again, shares, size), np.ones(size))
    assert plan.maps.judge(made, parent_axes[0]).exact
    assert plan.maps.judge(made, parent_axes[0]).action == ("widened" if more else "copied")


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_narrower_axis_takes_the_units_that_matter_most_in_their_order(size: int, fewer: int) -> None:
    plan = between(size + fewer, size)
    child_axis, parent_axis = plan.child.tensors["l0.bias"].axes[0], plan.parent.tensors["l0.bias"].axes[0]
    index, _ = plan.maps.gather(child_axis, parent_axis, lambda space: by_number(size + fewer))
    assert index.tolist() == list(range(fewer, size + fewer))
    verdict = plan.maps.judge(child_axis, parent_axis)
    assert (verdict.action, verdict.exact) == ("narrowed", False)
    assert f"{size + fewer} units became {size}" in verdict.why


def test_a_product_repeats_the_map_of_its_factor_for_every_pixel() -> None:
    plan = between(2, 3)
    child_axis, parent_axis = (
        Axis("in", Product((Atom(HIDDEN, 3), Fixed(4, "spatial")))),
        Axis("in", Product((Atom(HIDDEN, 2), Fixed(4, "spatial")))),
    )
    units, _ = plan.maps.gather(Axis("in", Atom(HIDDEN, 3)), Axis("in", Atom(HIDDEN, 2)), by_number)
    index, _ = plan.maps.gather(child_axis, parent_axis, by_number)
    assert index.tolist() == [4 * unit + pixel for unit in units.tolist() for pixel in range(4)]


def test_a_concatenation_puts_the_maps_of_its_parts_end_to_end() -> None:
    plan = between(2, 3)
    parent, child = Atom(HIDDEN, 2), Atom(HIDDEN, 3)
    units, _ = plan.maps.gather(Axis("in", child), Axis("in", parent), by_number)
    index, _ = plan.maps.gather(
        Axis("in", Concat((Fixed(1, "input"), child))),
        Axis("in", Concat((Fixed(1, "input"), parent))),
        by_number,
    )
    assert index.tolist() == [0, *(1 + unit for unit in units.tolist())]


@pytest.mark.parametrize(
    ("child_expression", "parent_expression", "action"),
    [
        (Fixed(5, "kernel"), Fixed(3, "kernel"), "widened"),
        (Fixed(3, "kernel"), Fixed(5, "kernel"), "narrowed"),
        (Fixed(6, "spatial"), Atom(HIDDEN, 2), "widened"),
        (Product((Atom(HIDDEN, 3), Fixed(2, ""))), Fixed(6, ""), "copied"),
    ],
)
def test_what_is_made_up_differently_is_never_exact(
    child_expression: Fixed | Product, parent_expression: Fixed | Atom, action: str
) -> None:
    verdict = between(2, 3).maps.judge(Axis("kernel", child_expression), Axis("kernel", parent_expression))
    assert (verdict.action, verdict.exact) == (action, False)
    assert verdict.why


def test_identical_axes_are_found_without_a_map() -> None:
    maps = between(2, 3).maps
    assert maps.identical(Fixed(3, "kernel"), Fixed(3, "kernel"))
    assert not maps.identical(Atom(HIDDEN, 3), Atom(HIDDEN, 2))
    grown = Product((Atom(HIDDEN, 3), Fixed(2, "spatial")))
    assert not maps.identical(grown, Product((Atom(HIDDEN, 2), Fixed(3, "spatial")))), (
        "as large, but otherwise"
    )
