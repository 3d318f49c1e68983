"""Unit maps: widening keeps every source, shares sum to one, narrowing keeps what matters most."""

import numpy as np
from hypothesis import given
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
