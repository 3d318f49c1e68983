"""How one axis is gathered from another: every unit is there, shares sum to one, and doubts are said."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.graph import (
    Atom,
    Axis,
    Concat,
    Edge,
    Fixed,
    Graph,
    Layer,
    Pin,
    Product,
    Space,
    Tensor,
    leaves,
)
from modelkeeper.graph.resize import with_sizes
from modelkeeper.graph.vocabulary import ATTENTION, THROUGH, WEIGHT_NORM
from modelkeeper.matching import align
from modelkeeper.transform import Plan, make_plan
from modelkeeper.transform.fill import Fills
from modelkeeper.transform.maps import MEAN, NOTHING, Maps
from modelkeeper.transform.pairing import Partners, TensorPair
from modelkeeper.transform.positions import resampling
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
    parts = Fixed(3, "kernel"), Fixed(4, "kernel")
    assert maps.identical(Concat(parts), Concat(parts))
    assert not maps.identical(Concat(parts), Concat(parts[::-1]))
    assert not maps.identical(Concat(parts), Concat((Fixed(7, "kernel"), Fixed(0, "kernel"))))
    same = between(2, 2).maps
    here, there = (
        Concat((Atom(HIDDEN, 2), Atom(HIDDEN + 1, 2))),
        Concat((Atom(HIDDEN + 1, 2), Atom(HIDDEN, 2))),
    )
    assert same.identical(here, here)
    assert not same.identical(here, there), "each part is taken from its partner"
    assert maps.identical(Fixed(3, "kernel"), Fixed(3, "kernel"))
    assert not maps.identical(Atom(HIDDEN, 3), Atom(HIDDEN, 2))
    grown = Product((Atom(HIDDEN, 3), Fixed(2, "spatial")))
    assert not maps.identical(grown, Product((Atom(HIDDEN, 2), Fixed(3, "spatial")))), (
        "as large, but otherwise"
    )


def one_by_one(parent: Graph, child: Graph, whole: Mapping[int, Product] | None = None) -> Maps:
    """The maps of two graphs whose tensors and spaces, of the same names and numbers, belong together."""
    pairs = {
        name: TensorPair(tensor, parent.tensors[name], tuple(range(len(tensor.axes))))
        for name, tensor in child.tensors.items()
    }
    layers = range(len(child.layers))
    partners = Partners({} if whole else pairs)
    for number in range(min(len(parent.spaces), len(child.spaces))):
        partners.inherit(number, number)
    return Maps(parent, child, partners, Fills(child, layers, ()), 0, whole or {})


def of_one_space(parent: Space, child: Space) -> Maps:
    """The maps between two layers that make one space each."""
    weights = [tensor("a", Axis("out", Atom(0, space.size)), SEEN) for space in (parent, child)]
    layers = tuple(Layer("a", "linear", (), (weight,)) for weight in weights)
    return one_by_one(Graph("test", layers[:1], (parent,)), Graph("test", layers[1:], (child,)))


SEEN = Axis("in", Fixed(3, "input"))


def tensor(name: str, *axes: Axis, role: str = "weight") -> Tensor:
    return Tensor(name, role, "float32", axes)


ROWS, OUTPUT = Pin("rows"), Pin("output")


@pytest.mark.parametrize(
    ("parent", "child", "action", "why", "source"),
    [
        (Space(4, (ROWS,)), Space(4, (OUTPUT,)), "copied", None, [0, 1, 2, 3]),
        (Space(4), Space(3), "narrowed", "4 units became 3", [1, 2, 3]),
        (Space(4, (OUTPUT,)), Space(3, (OUTPUT,)), "narrowed", "4 units became 3", [1, 2, 3]),
        (Space(4, (ROWS,)), Space(3, (ROWS,)), "narrowed", "4 units became 3", [0, 1, 2]),
        (Space(2), Space(4), "widened", None, None),
        (Space(2, (), True), Space(6, (), True), "widened", None, [0, 1, 0, 1, 0, 1]),
        (Space(2, (), True), Space(4), "widened", None, [0, 1, 0, 1]),
        (Space(2), Space(5, (), True), "widened", "2 units became 5, no multiple, but: a", [0, 1, 0, 1, 0]),
        (Space(2, (), True), Space(5), "widened", "2 units became 5, no multiple, but: a", [0, 1, 0, 1, 0]),
        (Space(0, (), True), Space(2), "widened", "0 units became 2, no multiple", [NOTHING, NOTHING]),
        (Space(0), Space(2), "widened", None, [NOTHING, NOTHING]),
        (Space(0, (ROWS,)), Space(2, (ROWS,)), "widened", "0 units became 2, but: rows", [NOTHING, NOTHING]),
        (Space(2, (OUTPUT,)), Space(5), "widened", "2 units became 5, but: output", None),
        (Space(2), Space(4, (ROWS, OUTPUT)), "widened", "2 units became 4, but: rows", [0, 1, MEAN, MEAN]),
        (Space(2), Space(4, (OUTPUT,)), "widened", "2 units became 4, but: output", [0, 1, NOTHING, NOTHING]),
    ],
)  # fmt: skip
def test_sizes_pins_and_statistics_decide_what_becomes_of_a_space(
    parent: Space, child: Space, action: str, why: str | None, source: list[int] | None
) -> None:
    """`why`: None where it is exact; `source`: None where units are copied at random."""
    maps = of_one_space(parent, child)
    axes = Axis("out", Atom(0, child.size)), Axis("out", Atom(0, parent.size))
    verdict = maps.judge(*axes)
    assert (verdict.action, verdict.exact) == (action, why is None)
    assert verdict.why.startswith(why or "")
    index, factor = maps.gather(*axes, lambda _: by_number(parent.size))
    assert source is None or index.tolist() == source
    assert set(index.tolist()) >= set(range(parent.size)) or action == "narrowed"
    assert factor.tolist() == [1.0] * child.size


def test_a_space_that_meets_another_one_is_not_exact() -> None:
    maps = between(2, 2).maps
    verdict = maps.judge(Axis("out", Atom(HIDDEN, 2)), Axis("out", Atom(HIDDEN + 1, 2)))
    assert (verdict.action, verdict.exact) == ("copied", False)
    assert "several" in verdict.why


SPACES = [Space(size, averaged=averaged) for size, averaged in ((3, False), (4, False), (3, True))]
atoms = st.sampled_from([Atom(number, space.size) for number, space in enumerate(SPACES)])
fixed = st.sampled_from([Fixed(1, "kernel"), Fixed(2, "spatial")])
flat = st.one_of(atoms, st.tuples(atoms, st.one_of(atoms, fixed)).map(Product))
axes_of = st.one_of(flat, st.lists(flat, min_size=2, max_size=3).map(lambda parts: Concat(tuple(parts))))


@settings(max_examples=60)
@given(axes_of, st.tuples(*[st.sampled_from([2, 3, 3, 4, 4, 6, 7])] * 3), st.sampled_from(["in", "out"]))
def test_what_is_judged_exact_is_all_there_and_read_by_shares_that_sum_to_one(
    of: Atom | Product | Concat, sizes: tuple[int, ...], role: str
) -> None:
    """However an axis is made up, and whatever becomes of the sizes of its spaces."""
    spaces = {leaf.space for leaf in leaves(of) if isinstance(leaf, Atom)}
    axis = Axis(role, of, tuple((space, 1) for space in spaces if role == "in"))
    parent = Graph("test", (Layer("a", "linear", (), (tensor("a", axis),)),), tuple(SPACES))
    child = with_sizes(parent, dict(enumerate(sizes)))
    maps, child_axis = one_by_one(parent, child), child.tensors["a"].axes[0]
    index, factor = maps.gather(child_axis, axis, lambda space: by_number(SPACES[space].size))
    assert len(index) == len(factor) == child_axis.size
    same = len(index) == axis.size and (index == np.arange(axis.size)).all()
    assert maps.identical(child_axis.of, of) == same
    verdict = maps.judge(child_axis, axis)
    changes = {np.sign(sizes[space] - SPACES[space].size) for space in spaces} - {0}
    actions = {(): "copied", (1,): "widened", (-1,): "narrowed", (-1, 1): "resized"}
    assert verdict.action == actions[tuple(sorted(changes))]
    multiples = all(sizes[space] % SPACES[space].size == 0 for space in spaces if SPACES[space].averaged)
    assert verdict.exact == (-1 not in changes and multiples)
    if verdict.exact:
        assert set(index.tolist()) == set(range(axis.size))
        shares = factor if role == "in" else factor / np.bincount(index)[index]
        np.testing.assert_allclose(np.bincount(index, shares), 1)
        assert role == "in" or (factor == 1).all()


@pytest.mark.parametrize(
    ("role", "origin", "sizes", "index", "factor"),
    [
        ("kernel", "kernel", (3, 5), [NOTHING, 0, 1, 2, NOTHING], 1),
        ("kernel", "input", (5, 3), [1, 2, 3], 1),
        ("in", "input", (2, 5), [0, 1, 0, 1, 0], 2 / 5),
        ("in", "spatial", (2, 4), [0, 0, 1, 1], 1 / 2),
        ("in", "spatial", (4, 2), [1, 3], 2),
        ("out", "input", (2, 4), [0, 0, 1, 1], 1),
        ("other", "kernel", (2, 4), [0, 0, 1, 1], 1),
        ("row", "", (4, 2), [1, 3], 1),
        ("in", "input", (3, 3), [0, 1, 2], 1),
    ],
)
def test_the_role_of_a_fixed_axis_says_how_it_changes(
    role: str, origin: str, sizes: tuple[int, int], index: list[int], factor: float
) -> None:
    """Kernels keep their middle, channels of the input come again, all else is sampled anew."""
    parent, child = (Axis(role, Fixed(size, origin)) for size in sizes)
    made, factors = between(2, 3).maps.gather(child, parent, by_number)
    assert made.tolist() == index
    assert factors.tolist() == pytest.approx([factor] * len(index))


def test_a_product_has_nothing_where_one_of_its_factors_has_nothing() -> None:
    parent, child = (Axis("kernel", Product((Fixed(size, "kernel"), Fixed(2, "pixels")))) for size in (1, 3))
    index, _ = between(2, 3).maps.gather(child, parent, by_number)
    assert index.tolist() == [NOTHING, NOTHING, 0, 1, NOTHING, NOTHING]
    parent, child = (Axis("kernel", Product((Fixed(2, "pixels"), Fixed(size, "kernel")))) for size in (1, 3))
    index, _ = between(2, 3).maps.gather(child, parent, by_number)
    assert index.tolist() == [NOTHING, 0, NOTHING, NOTHING, 1, NOTHING]


def test_forms_that_do_not_correspond_are_mapped_unit_by_unit_as_a_whole() -> None:
    maps, six = between(2, 3).maps, Fixed(6, "spatial")
    grown = Product((Atom(HIDDEN, 3), Fixed(4, "spatial")))
    for role in ("in", "out"):
        index, factor = maps.gather(Axis(role, grown), Axis(role, six), by_number)
        assert index[:6].tolist() == list(range(6))
        assert np.bincount(index, factor, 6) == pytest.approx(1.0 if role == "in" else 2.0)
        index, factor = maps.gather(Axis(role, Fixed(3, "spatial")), Axis(role, Atom(HIDDEN, 6)), by_number)
        assert index.tolist() == [1, 3, 5]
        assert factor.tolist() == [2.0 if role == "in" else 1.0] * 3
    index, _ = maps.gather(Axis("in", Product((Atom(HIDDEN, 3), Fixed(2, "")))), Axis("in", six), by_number)
    assert index.tolist() == list(range(6))


def test_a_part_that_the_parent_does_not_have_is_zero() -> None:
    """One that is there is found wherever it stands; a mean within a concatenation is zero, too."""
    spaces = Space(2), Space(2, (ROWS,)), Space(2)
    parts = Atom(0, 2), Atom(1, 2), Atom(2, 2)
    layers = [
        Layer("a", "linear", (), (tensor(f"t{n}", Axis("out", part), SEEN),)) for n, part in enumerate(parts)
    ]
    graph = Graph("test", tuple(layers), spaces)
    maps = one_by_one(graph, with_sizes(graph, {1: 3}))
    child, parent = Concat((parts[2], parts[0], Atom(1, 3))), Concat((parts[1], parts[2]))
    index, factor = maps.gather(Axis("in", child), Axis("in", parent), by_number)
    assert index.tolist() == [2, 3, NOTHING, NOTHING, 0, 1, NOTHING]
    assert factor.tolist() == [1.0] * 7
    verdict = maps.judge(Axis("in", Concat((parts[0], parts[2]))), Axis("in", parts[2]))
    assert (verdict.action, verdict.exact) == ("widened", True)
    assert "not read" in verdict.why


def test_parts_that_change_in_several_ways_are_resized() -> None:
    maps = between(4, 4).maps
    cut, grown = Fixed(2, "kernel"), Fixed(9, "kernel")
    verdict = maps.judge(Axis("in", Product((cut, grown))), Axis("in", Product((Fixed(3, ""), Fixed(3, "")))))
    assert (verdict.action, verdict.exact) == ("resized", False)
    assert "3 became 2" in verdict.why
    verdict = maps.judge(Axis("in", Product((cut, cut))), Axis("in", Product((Fixed(2, ""), Fixed(3, "")))))
    assert (verdict.action, verdict.exact) == ("narrowed", False)
    unlike = (
        Axis("in", Product((Fixed(2, ""), Atom(HIDDEN, 4)))),
        Axis("in", Product((Atom(HIDDEN, 4), Fixed(2, "")))),
    )
    assert "made up differently" in maps.judge(*unlike).why
    same = Axis("in", Product((cut, cut)))
    assert maps.judge(same, same).exact
    assert maps.judge(same, same).action == "copied"


@given(st.integers(0, 3), st.integers(0, 2))
def test_a_product_that_is_one_space_of_the_child_is_widened_as_a_whole(more: int, degree: int) -> None:
    """What makes its units copies them; what reads them takes shares that sum to one, by its degree."""
    product = Product((Atom(0, 2), Atom(1, 3)))
    parent = Graph("test", (Layer("a", "linear"),), (Space(2), Space(3)))
    child = Graph("test", (Layer("a", "linear"),), (Space(6 + more),))
    maps = one_by_one(parent, child, {0: product})
    axes = Axis("in", Atom(0, 6 + more), ((0, degree),) if degree else ()), Axis("in", product)
    index, factor = maps.gather(*axes, by_number)
    assert index[:6].tolist() == list(range(6))
    shares = (
        factor if degree == 1 else factor ** (1 / degree) if degree else factor / np.bincount(index)[index]
    )
    assert np.bincount(index, shares) == pytest.approx(1.0)
    assert degree or (factor == 1).all()
    verdict = maps.judge(*axes)
    assert (verdict.action, verdict.exact) == ("widened" if more else "copied", True)
    for space in (Space(8, (OUTPUT,)), Space(8, (), True), Space(5)):
        maps = one_by_one(parent, Graph("test", (Layer("a", "linear"),), (space,)), {0: product})
        assert not maps.judge(Axis("in", Atom(0, space.size)), Axis("in", product)).exact


def learned(role: str, of: Atom | Fixed) -> tuple[Tensor, Axis]:
    """A table of eight numbers for each position."""
    return tensor("table", Axis(role, of), Axis("out", Fixed(8, "")), role="bias"), Axis(role, of)


@pytest.mark.parametrize(
    ("role", "sizes", "pins", "is_grid"),
    [
        ("other", (9, 25), ("picked", None), True),
        ("other", (9, 25), (None, "picked"), True),
        ("other", (9, 24), ("picked", None), False),
        ("other", (8, 25), ("picked", None), False),
        ("other", (9, 25), ("rows", None), False),
        ("other", (9, 9), ("picked", "picked"), False),
        ("out", (9, 25), ("picked", None), False),
        ("row", (9, 25), ("picked", None), False),
    ],
)
def test_a_table_of_offsets_on_a_grid_is_resampled(
    role: str, sizes: tuple[int, int], pins: tuple[str | None, str | None], is_grid: bool
) -> None:
    spaces = [Space(size, (Pin(pin),) if pin else ()) for size, pin in zip(sizes, pins, strict=True)]
    maps = of_one_space(*spaces)
    (_, parent), (table, child) = (learned(role, Atom(0, size)) for size in sizes)
    matrix = maps.resampled(table, child, parent)
    assert (matrix is not None) == is_grid
    if matrix is not None:
        np.testing.assert_array_equal(matrix, resampling(*sizes))


def test_positions_of_a_fixed_number_are_resampled_and_nothing_else_is() -> None:
    maps = between(2, 2).maps
    (_, parent), (table, child) = (learned("other", Fixed(size, "spatial")) for size in (6, 4))
    for role, expected in (("other", True), ("out", True), ("kernel", False), ("in", False), ("row", False)):
        made = maps.resampled(table, Axis(role, child.of), Axis(role, parent.of))
        assert (made is not None) == expected
    matrix = maps.resampled(table, child, parent)
    np.testing.assert_array_equal(matrix, resampling(6, 4))
    for other in (
        tensor("w", *table.axes, role="weight"),
        tensor("g", *table.axes, role="gain"),
        tensor("b", child, role="bias"),
    ):
        assert maps.resampled(other, child, parent) is None
    assert maps.resampled(table, child, child) is None
    assert maps.resampled(table, child, Axis("other", Fixed(0, "spatial"))) is None


def test_only_directions_of_several_units_may_never_be_zero() -> None:
    made, one = Axis("out", Atom(0, 4)), Axis("out", Fixed(1, ""))
    tensors = tensor("v", made, SEEN), tensor("g", made, one, role="factor"), tensor("b", made, role="bias")

    def graph(**attributes: str) -> Graph:
        return Graph("test", (Layer("a", "linear", (), tensors, {**attributes}),), (Space(4),))

    maps = one_by_one(graph(), graph(**{THROUGH: f"x {WEIGHT_NORM}"}))
    assert [maps.never_zero(each, made) for each in tensors] == [True, False, False]
    assert not maps.never_zero(tensors[0], SEEN)
    assert not maps.never_zero(tensors[0], one)
    maps = one_by_one(graph(), graph())
    assert not maps.never_zero(tensors[0], made)


def attention(keys: int, *pins: Pin, scale: float | None = None) -> Graph:
    """Queries, keys and values of two units each, made from three numbers, and where they meet."""
    scaled: dict[str, Any] = {} if scale is None else {"scale": scale}
    made = [Axis("out", Atom(min(n, 2) // 2, size)) for n, size in enumerate((keys, keys, 2))]
    layers = [
        Layer(name, "linear", (Edge(0),), (tensor(f"{name}.weight", axis, SEEN),))
        for name, axis in zip("qkv", made, strict=True)
    ]
    meeting = Layer("meet", ATTENTION, (Edge(1), Edge(2), Edge(3)), (), scaled)
    return Graph("test", (Layer("image", "input"), *layers, meeting), (Space(keys, pins), Space(2)))


SCALE = Pin("attention_scale", "meet")


@pytest.mark.parametrize("scale", [None, 0.5])
def test_queries_and_keys_are_compared_by_copies_whose_squares_sum_up(scale: float | None) -> None:
    parent, child = attention(4, SCALE, scale=scale), attention(9, SCALE, scale=scale)
    maps = one_by_one(parent, child)
    axes = Axis("out", Atom(0, 9)), Axis("out", Atom(0, 4))
    verdict = maps.judge(*axes)
    assert (verdict.action, verdict.exact) == ("widened", True)
    assert "by 9 units, not 4" in verdict.why
    index, factor = maps.gather(*axes, by_number)
    assert np.bincount(index, factor**2) == pytest.approx(1.0 if scale else math.sqrt(9 / 4))
    narrower = one_by_one(child, parent).judge(axes[1], axes[0])
    assert (narrower.action, narrower.exact) == ("narrowed", False)


def test_both_models_must_compare_by_these_units_and_nothing_else() -> None:
    for pins in ((), (OUTPUT,), (SCALE, OUTPUT)):
        for maps in (
            one_by_one(attention(4, *pins), attention(9, SCALE)),
            one_by_one(attention(4, SCALE), attention(9, *pins)),
        ):
            axes = Axis("out", Atom(0, 9)), Axis("out", Atom(0, 4))
            assert not maps.judge(*axes).exact
            assert maps.gather(*axes, by_number)[1].tolist() == [1.0] * 9


def normed(width: int, kind: str = "layer_norm") -> Graph:
    """A layer, a norm over its units, and one that reads them."""
    units, read = Axis("out", Atom(0, width)), Axis("in", Atom(0, width), ((0, 1),))
    bias = tensor("up.bias", units, role="bias")
    layers = (
        Layer("image", "input"),
        Layer("up", "linear", (Edge(0),), (tensor("up.weight", units, SEEN), bias)),
        Layer("norm", kind, (Edge(1),), (tensor("norm.gain", units, role="gain"),)),
        Layer("down", "linear", (Edge(2),), (tensor("down.weight", Axis("out", Fixed(2, "")), read),)),
        Layer("answer", "output", (Edge(3),)),
    )  # fmt: skip
    return Graph("test", layers, (Space(width, (), True),))


@pytest.mark.parametrize(("kind", "new"), [("layer_norm", MEAN), ("rms_norm", NOTHING)])
@pytest.mark.parametrize("size", [5, 7, 8])
def test_a_space_under_a_norm_is_filled_and_what_is_on_it_is_scaled(kind: str, new: int, size: int) -> None:
    """η² is the part of the units that are copies: makers take 1 / η, readers η, gains stay as they are."""
    parent, child = normed(3, kind), normed(size, kind)
    maps, copies = one_by_one(parent, child), size // 3 * 3
    made, read = (
        child.tensors[name].axes[-1 if name[0] == "d" else 0] for name in ("up.bias", "down.weight")
    )
    parent_axes = [Axis(axis.role, Atom(0, 3), axis.degrees) for axis in (made, read)]
    verdict = maps.judge(made, parent_axes[0])
    assert (verdict.action, verdict.exact) == ("widened", True)
    assert f"3 units became {size}, filled with" in verdict.why
    index, factor = maps.gather(made, parent_axes[0], by_number)
    assert index.tolist() == [*np.arange(copies) % 3, *[new] * (size - copies)]
    assert factor.tolist() == [1.0] * size
    index, factor = maps.gather(read, parent_axes[1], by_number)
    assert index[copies:].tolist() == (
        [NOTHING] * (size - copies) if new == MEAN else list(range(size - copies))
    )
    assert np.bincount(index[:copies], factor[:copies]) == pytest.approx(1.0)
    root = math.sqrt(copies / size)
    scales = {name: maps.scale(each) for name, each in child.tensors.items()}
    assert scales == pytest.approx(
        {"up.weight": 1 / root, "up.bias": 1 / root, "norm.gain": 1.0, "down.weight": root}
    )
    assert [name for name, each in child.tensors.items() if maps.unread(each)] == ["norm.gain"]


@pytest.mark.parametrize("averaged", [(True, False), (False, True)])
def test_a_space_is_filled_if_either_model_takes_a_statistic_over_it(averaged: tuple[bool, bool]) -> None:
    graphs = [normed(size) for size in (3, 5)]
    parent, child = (
        Graph("test", graph.layers, (Space(graph.spaces[0].size, (), each),))
        for graph, each in zip(graphs, averaged, strict=True)
    )
    maps = one_by_one(parent, child)
    index, _ = maps.gather(Axis("out", Atom(0, 5)), Axis("out", Atom(0, 3)), by_number)
    assert index.tolist() == [0, 1, 2, MEAN, MEAN]
    assert maps.judge(Axis("out", Atom(0, 5)), Axis("out", Atom(0, 3))).exact


def test_nothing_is_filled_that_grows_to_a_multiple_or_does_not_grow() -> None:
    for parent, child in ((3, 6), (3, 3), (5, 3)):
        maps = one_by_one(normed(parent), normed(child))
        assert {maps.scale(each) for each in maps._child.tensors.values()} == {1.0}
        assert not any(maps.unread(each) for each in maps._child.tensors.values())


def test_units_are_dropped_where_a_reader_has_fewer_of_them() -> None:
    parent, child = normed(5), normed(3)
    maps = one_by_one(parent, child)
    read = [graph.tensors["down.weight"].axes[1] for graph in (child, parent)]
    made = [graph.tensors["up.weight"].axes[0] for graph in (child, parent)]
    [(space, kept)] = maps.dropping(read[0], read[1], lambda _: by_number(5))
    assert (space, kept.tolist()) == (0, [2, 3, 4])
    assert not list(maps.dropping(made[0], made[1], lambda _: by_number(5))), "it reads none"
    assert not list(one_by_one(parent, parent).dropping(read[1], read[1], lambda _: by_number(5)))
    rows = of_one_space(Space(5, (ROWS,)), Space(3, (ROWS,)))
    assert not list(rows.dropping(read[0], read[1], lambda _: by_number(5))), "rows are not chosen"
    anew = maps.anew()
    [(_, other)] = anew.dropping(read[0], read[1], lambda _: -by_number(5))
    assert other.tolist() == [0, 1, 2]
    [(_, again)] = maps.dropping(read[0], read[1], lambda _: -by_number(5))
    assert again.tolist() == [2, 3, 4], "each map is made once"


def test_needs_are_the_sizes_of_partners() -> None:
    plan = between(4, 6)
    assert plan.maps.needs() == plan.maps.needs(inherited=False) == {0: 4, 1: 2}
    assert [plan.maps.partner(space) for space in (0, 1, 2)] == [0, 1, None]
    parent, child = (Graph("test", (Layer("a", "linear"),), (Space(size),)) for size in (3, 5))
    inherited = one_by_one(parent, child)
    assert inherited.needs() == {0: 3}
    assert inherited.needs(inherited=False) == {}
