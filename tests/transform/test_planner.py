"""A plan judges strictly: exact where the child can compute the same, and otherwise a doubt says why not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidPairs, InvalidSetting
from modelkeeper.graph import Atom, Axis, Concat, Edge, Fixed, Graph, Layer, Pin, Space, Tensor
from modelkeeper.matching import align
from modelkeeper.transform import Plan, apply, make_plan
from tests.helpers.perceptrons import chain

widths = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def planned(parent: list[int], child: list[int], same_task: bool = True) -> Plan:
    parent_graph, child_graph = chain(*parent), chain(*child)
    return make_plan(parent_graph, child_graph, align(parent_graph, child_graph), same_task=same_task)


@given(widths)
def test_the_same_model_is_copied(sizes: list[int]) -> None:
    plan = planned(sizes, sizes)
    assert {entry.action for entry in plan.entries} == {"copied"}
    assert (plan.exact, plan.coverage, plan.rewired) == (True, 1.0, 0.0)


@given(widths, st.data())
def test_a_wider_child_is_exact_and_a_narrower_one_says_which_units_are_dropped(
    sizes: list[int], data: st.DataObject
) -> None:
    larger = [size + data.draw(st.integers(0, 3)) for size in sizes]
    wider, narrower = planned(sizes, larger), planned(larger, sizes)
    assert wider.exact
    assert wider.coverage == 1.0
    assert narrower.exact == (larger == sizes)
    if larger != sizes:
        assert any("narrowed" in doubt for doubt in narrower.doubts)


def test_every_tensor_of_the_child_has_one_entry_in_its_order() -> None:
    child = chain(5, 6, 7)
    plan = make_plan(chain(5), child, [])
    assert [entry.tensor for entry in plan.entries] == list(child.tensors)
    assert not any(entry.source for entry in plan.entries)
    assert plan.coverage == 0
    assert not plan.exact


def test_the_head_of_another_task_stays_as_it_was() -> None:
    head = {entry.tensor: entry.action for entry in planned([4], [4], same_task=False).entries}
    assert head == {"l0.weight": "copied", "l0.bias": "copied", "l1.weight": "kept", "l1.bias": "kept"}
    assert not planned([4], [4], same_task=False).exact


def test_only_so_many_doubts_are_said() -> None:
    plan = make_plan(chain(*[4] * 20), chain(*[3] * 20), [])
    assert len(plan.doubts) == 9
    assert plan.doubts[-1].startswith("and ")


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([(0, 9)], "the child has 4 layers"),
        ([(-1, 0)], "the parent has 4 layers"),
        ([(1, 1), (1, 2)], "the parent's layer 1 is in two pairs"),
        ([(1, 2), (2, 2)], "the child's layer 2 is in two pairs"),
    ],
)
def test_pairs_that_cannot_be_are_refused(pairs: list[tuple[int, int]], problem: str) -> None:
    with pytest.raises(InvalidPairs, match=problem):
        make_plan(chain(4), chain(4), pairs)


@pytest.mark.parametrize("noise", [-0.1, math.inf, math.nan])
def test_noise_is_a_small_number(noise: float) -> None:
    with pytest.raises(InvalidSetting, match="noise"):
        make_plan(chain(4), chain(4), [], noise=noise)


def joined(size: int, *pins: Pin) -> Graph:
    """Units under a norm, of which there may be none, read together with two others."""
    made, two = Atom(0, size), Atom(1, 2)
    seen, both = Axis("in", Fixed(3, "input")), Axis("in", Concat((made, two)), ((0, 1), (1, 1)))
    axes = {
        "a": (Axis("out", made), seen),
        "b": (Axis("out", two), seen),
        "c": (Axis("out", Fixed(2, "")), both),
    }
    weights = {name: (Tensor(name, "weight", "float32", each),) for name, each in axes.items()}
    layers = (
        Layer("image", "input"),
        Layer("a", "linear", (Edge(0),), weights["a"]),
        Layer("norm", "layer_norm", (Edge(1),), (Tensor("g", "gain", "float32", (Axis("out", made),)),)),
        Layer("b", "linear", (Edge(0),), weights["b"]),
        Layer("both", "concat", (Edge(2), Edge(3))),
        Layer("c", "linear", (Edge(4),), weights["c"]),
        Layer("answer", "output", (Edge(5),)),
    )
    return Graph("test", layers, (Space(size, pins, True), Space(2, (), True)))


@pytest.mark.parametrize("pin", [(), (Pin("rows"),), (Pin("output"),), (Pin("attention_scale"),)])
@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (0, 0)])
def test_a_space_without_units_can_be_planned_for(before: int, after: int, pin: tuple[Pin, ...]) -> None:
    """Nothing is divided by none of them, and no mean of nothing becomes a weight."""
    parent, child = joined(before, *pin), joined(after, *pin)
    plan = make_plan(parent, child, [(number, number) for number in range(7)])
    assert not plan.exact or before == after
    ones = {name: np.ones(tensor.shape, np.float32) for name, tensor in parent.tensors.items()}
    for name, array in apply(plan, ones):
        assert array.shape == child.tensors[name].shape
        assert np.isfinite(array).all()
