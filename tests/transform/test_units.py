"""Unit maps: widening keeps every source, shares sum to one, narrowing keeps what matters most."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.transform import units

sizes = st.integers(1, 30)


@given(sizes, st.integers(0, 60), st.integers(0, 5), st.booleans())
def test_widening_keeps_every_unit_and_shares_sum_to_one(
    parents: int, extra: int, seed: int, evenly: bool
) -> None:
    unit_map = units.widen(parents, parents + extra, (seed,), evenly=evenly)
    assert unit_map.complete
    np.testing.assert_allclose(np.bincount(unit_map.source, unit_map.share, parents), 1)
    assert (unit_map.source[:parents] == np.arange(parents)).all()
    copies = np.bincount(unit_map.source)
    if evenly or extra % parents == 0:
        assert copies.max() - copies.min() <= 1


@given(sizes, st.integers(1, 20), st.integers(0, 5))
def test_copies_are_read_by_unequal_shares(parents: int, times: int, seed: int) -> None:
    unit_map = units.widen(parents, parents * (times + 1), (seed,))
    for unit in range(parents):
        shares = unit_map.share[unit_map.source == unit]
        assert len(np.unique(shares)) == len(shares)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.data())
def test_narrowing_keeps_the_most_important_in_order(importance: list[float], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(importance)))
    unit_map = units.narrow(np.array(importance), size)
    assert (np.diff(unit_map.source) > 0).all()
    dropped = np.setdiff1d(np.arange(len(importance)), unit_map.source)
    if len(dropped):
        assert min(np.array(importance)[unit_map.source]) >= max(np.array(importance)[dropped])


@given(sizes, sizes)
def test_maps_stay_in_range(parents: int, size: int) -> None:
    for make in (units.rows, units.padded, units.centred, units.nearest, units.cyclic):
        unit_map = make(parents, size)
        assert len(unit_map.source) == len(unit_map.share) == size
        assert unit_map.source.max() < parents
        if size == parents:
            assert unit_map.identical


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_kernel_keeps_its_middle(small: int, more: int) -> None:
    parents, size = 2 * small + 1, 2 * (small + more) + 1
    grown = units.centred(parents, size)
    assert grown.source[size // 2] == parents // 2
    assert units.centred(size, parents).source[parents // 2] == size // 2
    assert grown.complete


@given(sizes, st.integers(0, 60), st.integers(0, 5), st.floats(0.1, 8))
def test_copies_that_are_compared_by_have_squares_that_sum_up(
    parents: int, extra: int, seed: int, total: float
) -> None:
    """A query times its key is what it was, if each factor is on both sides."""
    made = units.compare(parents, parents + extra, (seed,), total)
    assert made.made is not None
    assert np.bincount(made.source, made.made**2, parents) == pytest.approx(np.full(parents, total))
    assert (made.source == units.widen(parents, parents + extra, (seed,)).source).all()


@given(sizes, st.integers(0, 60), st.integers(0, 5), st.booleans())
def test_what_is_filled_up_is_copied_equally_often(parents: int, extra: int, seed: int, mean: bool) -> None:
    size = parents + extra
    made, copies = units.fill(parents, size, (seed,), mean=mean), size // parents * parents
    assert made.read is not None
    assert len(made.source) == len(made.share) == len(made.read) == size
    assert np.bincount(made.source[:copies], minlength=parents).tolist() == [size // parents] * parents
    assert set(made.source[copies:]) <= {units.MEAN if mean else units.NOTHING}
    assert np.bincount(made.source[:copies], made.share[:copies], parents) == pytest.approx(np.ones(parents))
    assert made.share[copies:] == pytest.approx(parents / copies)
    assert (made.read[:copies] == made.source[:copies]).all()
    rest = made.read[copies:]
    assert (rest == (units.NOTHING if mean else np.arange(len(rest)) % parents)).all()


@given(sizes, sizes)
def test_resampling_keeps_the_sum_over_all_positions(parents: int, size: int) -> None:
    for made in (units.nearest(parents, size), units.cyclic(parents, size)):
        assert made.share.sum() == pytest.approx(parents)
        assert set(made.share.tolist()) == {parents / size}
    assert (np.diff(units.nearest(parents, size).source) >= 0).all()
    assert units.cyclic(parents, size).source.tolist() == [unit % parents for unit in range(size)]


@pytest.mark.parametrize(
    ("parents", "size", "source"),
    [
        (3, 5, [-1, 0, 1, 2, -1]),
        (5, 3, [1, 2, 3]),
        (2, 5, [-1, 0, 1, -1, -1]),
        (5, 2, [2, 3]),
        (3, 4, [0, 1, 2, -1]),
        (1, 3, [-1, 0, -1]),
    ],
)
def test_what_is_not_in_the_middle_is_nothing(parents: int, size: int, source: list[int]) -> None:
    made = units.centred(parents, size)
    assert made.source.tolist() == source
    assert made.share.tolist() == [1.0] * size


@given(sizes, sizes)
def test_rows_and_padding_keep_each_unit_where_it_is(parents: int, size: int) -> None:
    there = min(parents, size)
    for made, new in ((units.rows(parents, size), units.MEAN), (units.padded(parents, size), units.NOTHING)):
        assert made.source.tolist() == [*range(there), *[new] * (size - there)]
        assert made.share.tolist() == [1.0] * size
        assert made.parents == parents
        assert made.complete == (size == parents or (size > parents and new == units.NOTHING))
        assert made.identical == (size == parents)


@settings(max_examples=40)
@given(sizes, st.integers(0, 60), st.integers(0, 5))
def test_a_unit_that_is_not_copied_is_read_whole(parents: int, extra: int, seed: int) -> None:
    made = units.widen(parents, parents + extra, (seed,))
    alone = np.bincount(made.source)[made.source] == 1
    assert (made.share[alone] == 1).all()
    assert ((made.share[~alone] > 0) & (made.share[~alone] < 1)).all()
    again, other = (units.widen(parents, parents + extra, (number,)) for number in (seed, seed + 1))
    assert made.share.tolist() == again.share.tolist()
    assert made.source.tolist() == again.source.tolist()
    assert extra == 0 or made.share.tolist() != other.share.tolist()


@given(sizes, st.integers(0, 60))
def test_copies_that_go_round_come_in_order(parents: int, extra: int) -> None:
    made = units.widen(parents, parents + extra, (0,), evenly=True)
    assert made.source.tolist() == [unit % parents for unit in range(parents + extra)]


def test_shares_of_a_unit_and_its_copy_are_three_to_one_at_most() -> None:
    """So that neither is read next to nothing: it would hardly learn."""
    made = units.widen(200, 400, (0,))
    lesser = np.minimum(made.share[:200], made.share[np.argsort(made.source[200:]) + 200])
    assert 0.25 <= lesser.min() < 0.3
    assert 0.45 < lesser.max() <= 0.5


def test_what_is_complete_and_what_is_identical() -> None:
    def of(*source: int, parents: int = 3) -> units.UnitMap:
        return units.UnitMap(np.array(source), np.ones(len(source)), parents)

    for unit_map, complete, identical in (
        (of(0, 1, 2), True, True),
        (of(2, 0, 1, 1), True, False),
        (of(0, 1, units.NOTHING, 2), True, False),
        (of(0, 1, 2, units.MEAN), False, False),
        (of(0, 1), False, False),
        (of(0, 2, 1), True, False),
        (of(0, 1, 2, 3), False, False),
        (of(1, 2), False, False),
    ):
        assert (unit_map.complete, unit_map.identical) == (complete, identical), unit_map.source
    assert units.identity(3).identical
    assert units.identity(3).share.tolist() == [1.0] * 3


def test_a_space_without_units_gives_nothing() -> None:
    made = units.widen(0, 3, (0,))
    assert made.source.tolist() == [units.NOTHING] * 3
    assert units.widen(0, 0, (0,)).source.tolist() == []


def test_of_equals_the_earlier_unit_is_kept() -> None:
    assert units.narrow(np.array([1.0, 2.0, 1.0, 2.0, 1.0]), 3).source.tolist() == [0, 1, 3]
    made = units.narrow(np.array([1.0, 2.0, 3.0]), 2)
    assert (made.parents, made.share.tolist(), made.identical) == (3, [1.0, 1.0], False)


def test_resampling_takes_the_nearest() -> None:
    assert units.nearest(4, 2).source.tolist() == [1, 3]
    assert units.nearest(2, 5).source.tolist() == [0, 0, 1, 1, 1]
    assert units.nearest(5, 3).source.tolist() == [0, 2, 4]
