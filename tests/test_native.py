"""The native module checks what it is given: a mistake is a ValueError, never a crash."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from modelkeeper import _native

GOOD = {"nodes": [1, 2, 2], "offsets": [0, 0, 1, 2], "sources": [0, 0], "edges": [5, 5]}
TYPES = {"nodes": np.uint64, "offsets": np.int32, "sources": np.int32, "edges": np.uint64}


def colours(budget: int = 1_000, **changes: list[int]) -> list[int]:
    arrays = {name: np.array(values, TYPES[name]) for name, values in {**GOOD, **changes}.items()}
    return [int(colour) for colour in _native.colours(**arrays, budget=budget)]


def test_equal_parts_have_equal_colours() -> None:
    first, left, right = colours()
    assert left == right != first


def test_a_graph_of_nothing_has_no_colours() -> None:
    assert colours(nodes=[], offsets=[0], sources=[], edges=[]) == []


def test_a_budget_of_nothing_still_colours() -> None:
    assert len(colours(budget=0)) == len(colours(budget=-1)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": []},
        {"offsets": [0, 0, 1]},
        {"offsets": [0, 0, 1, 3]},
        {"offsets": [0, 2, 1, 2]},
        {"offsets": [1, 1, 1, 2]},
        {"offsets": [0, -1, 1, 2]},
        {"sources": [0]},
        {"sources": [0, 2]},
        {"sources": [0, -1]},
        {"edges": [5]},
    ],
)
def test_arrays_that_describe_no_graph_are_refused(changes: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match=r"offsets|edge"):
        colours(1_000, **changes)


@given(st.lists(st.integers(0, 3_000_000), max_size=4), st.integers(1, 3))
def test_every_byte_is_copied(sizes: list[int], threads: int) -> None:
    sources = [np.arange(size, dtype=np.uint8) for size in sizes]
    outs = [np.zeros(size + 7, np.uint8) for size in sizes]
    _native.copy(sources, [out[3:-4] for out in outs], threads)
    for source, out in zip(sources, outs, strict=True):
        assert not out[:3].any()
        assert not out[-4:].any()
        assert (out[3:-4] == source).all()


def test_copies_and_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes, its place 3"):
        _native.copy([np.zeros(2, np.uint8)], [np.zeros(3, np.uint8)])
    with pytest.raises(ValueError, match="1 sources, but 0 places"):
        _native.copy([np.zeros(2, np.uint8)], [])
    with pytest.raises(ValueError, match="3 bytes are no numbers of float16"):
        _native.holds_nan(np.zeros(3, np.uint8), "float16")
    with pytest.raises(ValueError, match="int8"):
        _native.holds_nan(np.zeros(3, np.uint8), "int8")  # type: ignore[arg-type]


def total(distances: NDArray[np.float64], medoids: list[int]) -> float:
    return float(distances[:, medoids].min(1).sum())


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_no_exchange_of_one_medoid_lowers_the_sum(n: int, count: int, seed: int) -> None:
    count = min(n, count)
    distances = np.random.default_rng(seed).integers(0, 9, (n, n)).astype(np.float64)
    chosen = _native.medoids(distances, count).tolist()
    assert len(set(chosen)) == count
    least = total(distances, chosen)
    for place in range(count):
        for other in range(n):
            exchanged = [*chosen[:place], other, *chosen[place + 1 :]]
            assert total(distances, exchanged) >= least - 1e-9


def test_clear_groups_have_a_medoid_each() -> None:
    places = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0, 9.1, 9.2])
    distances = np.abs(places[:, None] - places[None, :])
    assert sorted(_native.medoids(distances, 3).tolist()) == [1, 4, 7]


@pytest.mark.parametrize(
    ("distances", "count"),
    [
        (np.zeros((2, 3)), 1),
        (np.zeros((2, 2)), 3),
        (np.zeros((2, 2)), 0),
        (np.zeros((2, 2)), -1),
        (np.zeros((0, 0)), 1),
        (np.full((2, 2), np.nan), 1),
        (np.full((2, 2), np.inf), 1),
        (np.full((2, 2), -1.0), 1),
    ],
)
def test_distances_that_are_none_are_refused(distances: NDArray[np.float64], count: int) -> None:
    with pytest.raises(ValueError, match=r"square|medoid|distance"):
        _native.medoids(distances, count)


@pytest.mark.parametrize(
    ("worth", "size", "ahead", "room", "most", "fewest"),
    [
        ([1.0], [1, 2], [1.0, 0.0], 3, 10, 1),
        ([1.0], [1], [1.0], 3, 10, 1),
        ([1.0], [1], [1.0, 0.0], -1, 10, 1),
        ([1.0], [1], [1.0, 0.0], 2**61, 10, 1),
        ([1.0], [-1], [1.0, 0.0], 3, 10, 1),
        ([1.0], [2**61], [1.0, 0.0], 3, 10, 1),
        ([-1.0], [1], [1.0, 0.0], 3, 10, 1),
        ([np.nan], [1], [1.0, 0.0], 3, 10, 1),
        ([1.0], [1], [1.0, 0.0], 3, -1, 1),
        ([1.0], [1], [1.0, 0.0], 3, 10, 0),
        ([1.0], [1], [1.0, 0.0], 3, 2**40, 1),
    ],
)
def test_things_that_are_none_are_refused(
    worth: list[float], size: list[int], ahead: list[float], room: int, most: int, fewest: int
) -> None:
    given = np.array(worth), np.array(size, np.int64), np.array(ahead)
    with pytest.raises(ValueError, match=r"same things|room|choices|thing 0"):
        _native.pack_core(*given, room, 0.1, 0.0, 0.0, most, fewest)
