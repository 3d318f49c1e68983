"""What a layer is worth, what matching knows of it, and which tenth a similarity falls in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Axis, Fixed, Layer, Tensor
from modelkeeper.graph.structure import Attribute
from modelkeeper.matching.similarity import (
    BELOW_ONE,
    FIELDS,
    LARGEST,
    MERGE,
    STAGE,
    UNIT,
    bucket,
    buckets_of,
    kernel_rank,
    main_tensor,
    number,
    shape,
    similarities,
    similarity,
    token,
    weight,
)

AXES_FROM = 8  # where the axes begin in a token


def tensor(role: str, *axes: tuple[str, int], buffer: bool = False) -> Tensor:
    made = tuple(Axis(name, Fixed(size, "")) for name, size in axes)
    return Tensor(f"layer.{role}", role, "float32", made, trainable=not buffer, buffer=buffer)


def conv(out: int, into: int, kernel: int = 3, **attributes: Attribute) -> Layer:
    main = tensor("weight", ("out", out), ("in", into), ("kernel", kernel), ("kernel", kernel))
    return Layer("layer", "conv", (), (main, tensor("bias", ("out", out))), attributes)


def linear(out: int, into: int) -> Layer:
    main = tensor("weight", ("out", out), ("in", into))
    return Layer("layer", "linear", (), (main, tensor("bias", ("out", out))))


def test_buckets_are_tenths() -> None:
    assert [bucket(x) for x in (0.0, 0.05, 0.1, 0.95, 1.0)] == [0, 0, 1, 9, 9]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_similarity_is_a_share_and_one_only_for_the_same(score: int, parent: int, child: int) -> None:
    assert similarity(score, parent, child, same=True) == 1.0
    assert 0.0 <= similarity(score, parent, child, same=False) <= BELOW_ONE < 1.0


def test_what_the_child_lacks_counts_three_times_what_the_parent_has_too_much_of() -> None:
    assert similarity(100, 100, 200, same=False) == 100 / (0.25 * 100 + 0.75 * 200)
    assert similarity(100, 200, 100, same=False) > similarity(100, 100, 200, same=False)


@given(st.integers(1, 2**20), st.integers(1, 2**10), st.integers(1, 2**10))
def test_a_larger_layer_is_never_worth_less(out: int, into: int, more: int) -> None:
    assert MERGE <= weight(linear(out, into)) <= weight(linear(out, into + more)) <= LARGEST


def test_a_worth_is_a_tenth_of_the_fourth_root_and_counters_are_worth_nothing() -> None:
    many = Layer("layer", "linear", (), (tensor("weight", ("out", 100), ("in", 100)),))
    assert weight(many) == UNIT
    statistics = tensor("mean", ("out", 10**8), buffer=True)
    assert weight(Layer("norm", "batch_norm", (), (statistics,))) == MERGE
    assert weight(Layer("sum", "add")) == MERGE


def test_the_shape_is_that_of_the_weight_outputs_first() -> None:
    turned = tensor("weight", ("kernel", 5), ("in", 3), ("out", 8))
    layer = Layer("layer", "conv", (), (tensor("gain", ("out", 10**6)), turned))
    assert main_tensor(layer) == turned
    assert shape(layer) == (8, 3, 5)
    assert kernel_rank(layer) == 1
    assert (main_tensor(Layer("sum", "add")), shape(Layer("sum", "add"))) == (None, ())


def test_a_pointwise_convolution_is_a_linear_layer_of_the_same_group() -> None:
    dense, pointwise, depthwise = linear(8, 4), conv(8, 4, 1), conv(8, 1, groups=8)
    assert token(dense, None)[0] == token(pointwise, None)[0]
    assert token(dense, None)[0] != token(depthwise, None)[0]
    assert token(dense, None)[1] != token(pointwise, None)[1], "details differ"


def test_groups_follow_from_the_width_of_a_depthwise_convolution_alone() -> None:
    groups = 4
    assert token(conv(8, 1, groups=8), None)[groups] == token(conv(16, 1, groups=16), None)[groups] == 1
    assert token(conv(8, 2, groups=4), None)[groups] == 4


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_stage_is_told_by_an_axis_of_its_own(one: int, other: int) -> None:
    first, second = token(conv(8, 4), None, one), token(conv(8, 4), None, other)
    assert len(first) == len(second) == FIELDS
    differing = {place for place in range(FIELDS) if first[place] != second[place]}
    assert differing <= {AXES_FROM + STAGE}
    assert (first[AXES_FROM + STAGE] < second[AXES_FROM + STAGE]) == (one < min(other, 8))


def test_a_norm_that_is_folded_in_is_part_of_the_token() -> None:
    norm = Layer("norm", "batch_norm", (), (tensor("gain", ("out", 8)),))
    with_norm, without = token(conv(8, 4), norm), token(conv(8, 4), None)
    assert with_norm[2] == number("batch_norm")
    assert without[2] == 0
    assert with_norm[:1] == without[:1]
    assert with_norm[7] == 8


@given(st.text())
def test_the_number_of_a_text_is_never_zero_and_fits_63_bits(text: str) -> None:
    assert 0 < number(text) < 2**63
    assert number(text) == number(text)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8),
    st.integers(0, 10**9),
)
def test_many_similarities_at_once_are_those_of_one_by_one(rows: list[tuple[int, int]], child: int) -> None:
    rows = [(min(score, total, child), total) for score, total in rows]  # no score is above either total
    scores, totals = np.array(rows, np.int64).reshape(-1, 2).T
    values = similarities(scores, totals, child)
    assert values.tolist() == [similarity(score, total, child, same=False) for score, total in rows]
    assert buckets_of(values).tolist() == [bucket(value) for value in values.tolist()]
