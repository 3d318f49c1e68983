"""The knapsack: against every subset on small cases, against a table over all rooms on larger ones."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy import knapsack


def pack(worths: list[float], sizes: list[int], room: int) -> tuple[list[bool], float]:
    chosen, gap = knapsack.pack(np.array(worths, np.float64), np.array(sizes, np.int64), room)
    return chosen.tolist(), gap


worths = st.one_of(st.floats(1e-12, 10), st.sampled_from([0.5, 1.0, 2.0]))
sizes = st.one_of(st.integers(0, 12), st.integers(0, 10**13), st.sampled_from([10**12, 10**12 + 1]))
things = st.lists(st.tuples(worths, sizes), max_size=9)


def value(chosen: list[bool], worths: list[float]) -> float:
    return sum(worth for worth, taken in zip(worths, chosen, strict=True) if taken)


def fits(chosen: list[bool], sizes: list[int], room: int) -> bool:
    return sum(size for size, taken in zip(sizes, chosen, strict=True) if taken) <= room


def greedy(worths: list[float], sizes: list[int], room: int) -> float:
    found = 0.0
    for worth, size in sorted(
        zip(worths, sizes, strict=True), key=lambda each: -each[0] / max(each[1], 1e-9)
    ):
        if size <= room:
            room, found = room - size, found + worth
    return found


@given(things, st.floats(0, 1.1), st.integers(-1, 1))
def test_no_subset_is_worth_more(things: list[tuple[float, int]], share: float, off: int) -> None:
    worths, sizes = [worth for worth, _ in things], [size for _, size in things]
    room = max(0, int(sum(sizes) * share) + off)
    chosen, gap = pack(worths, sizes, room)
    subsets = (list(each) for each in product((False, True), repeat=len(things)))
    best = max(value(each, worths) for each in subsets if fits(each, sizes, room))
    assert fits(chosen, sizes, room)
    assert value(chosen, worths) == pytest.approx(best, rel=1e-8)
    assert gap == 0


def zoo(kind: str, seed: int, count: int) -> tuple[list[float], list[int], int]:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 60) for _ in range(count)]
    worths = {
        "independent": [rng.random() for _ in sizes],
        "correlated": [size + 10.0 for size in sizes],
        "one worth": [1.0 for _ in sizes],
        "worth is size": [float(size) for size in sizes],
    }[kind]
    return worths, sizes, int(sum(sizes) * rng.uniform(0.1, 0.95))


KINDS = ("independent", "correlated", "one worth", "worth is size")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "seeds"), [(15, 100), (40, 20), (120, 3)])
def test_larger_zoos_against_a_table_over_all_rooms(kind: str, count: int, seeds: int) -> None:
    for seed in range(seeds):
        worths, sizes, room = zoo(kind, seed, count)
        table = np.zeros(room + 1)
        for worth, size in zip(worths, sizes, strict=True):
            table[size:] = np.maximum(table[size:], table[: max(0, room + 1 - size)] + worth)
        chosen, gap = pack(worths, sizes, room)
        assert fits(chosen, sizes, room)
        assert value(chosen, worths) == pytest.approx(table[room])
        assert gap == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_with_little_work_it_is_no_worse_than_greed_and_the_gap_is_true(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worths, sizes, room = zoo(kind, seed, 120)
    best = value(pack(worths, sizes, room)[0], worths)
    for core, choices in ((120, 2), (10, 1_000), (1, 1)):
        monkeypatch.setattr(knapsack, "LARGEST_CORE", core)
        monkeypatch.setattr(knapsack, "MOST_CHOICES", choices)
        monkeypatch.setattr(knapsack, "FEWEST_CHOICES", choices)
        chosen, gap = pack(worths, sizes, room)
        found = value(chosen, worths)
        assert fits(chosen, sizes, room)
        assert found >= greedy(worths, sizes, room) * (1 - 1e-12)
        assert found <= best * (1 + 1e-9) <= found * (1 + gap) * (1 + 1e-8)


def test_thousands_of_models_exactly() -> None:
    rng = random.Random(1)
    sizes = [int(rng.lognormvariate(17, 1.5)) for _ in range(5_000)]
    worths = [rng.random() * rng.random() for _ in sizes]
    chosen, gap = pack(worths, sizes, sum(sizes) * 2 // 3)
    assert gap == 0
    assert fits(chosen, sizes, sum(sizes) * 2 // 3)
    assert value(chosen, worths) > greedy(worths, sizes, sum(sizes) * 2 // 3)


@given(things, st.floats(0, 1.1), st.randoms())
def test_greed_takes_one_after_the_other_whatever_still_fits(
    things: list[tuple[float, int]], share: float, random: random.Random
) -> None:
    sizes = np.array([size for _, size in things], np.int64)
    room = int(sizes.sum() * share)
    before = np.array([random.random() < 0.2 for _ in things], np.bool_)
    left, order = (
        room - int(sizes[before].sum()),
        np.array(random.sample(range(len(things)), len(things)), np.intp),
    )
    expected = before.copy()
    for index in order.tolist():
        if not expected[index] and sizes[index] <= left:
            expected[index], left = True, left - int(sizes[index])
    assert knapsack._filled(before, order, sizes, room).tolist() == expected.tolist()
