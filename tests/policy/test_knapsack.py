"""The knapsack: against every subset on small cases, against a table over all rooms on larger ones."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

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


def searched(
    worth: NDArray[np.float64], size: NDArray[np.int64], room: int, price: float, least: float
) -> tuple[NDArray[np.bool_], float]:
    """What `_searched` says, by arrays instead of the native merge."""
    surplus = worth - price * size
    order = np.argsort(-np.abs(surplus), kind="stable")
    ahead = np.append(np.cumsum(np.maximum(surplus[order], 0)[::-1])[::-1], 0.0)
    enough = least - knapsack.ROUNDING * (price * room + ahead[0])
    choices: list[tuple[int, float, tuple[int, ...]]] = [(0, 0.0, ())]  # room, worth, which
    at_most, looked_at = least, 0
    for step, index in enumerate(order.tolist()):
        more = [
            (used + int(size[index]), got + float(worth[index]), (*which, index))
            for used, got, which in choices
            if used + size[index] <= room
        ]
        kept, highest = [], -1.0
        for choice in sorted([*choices, *more], key=lambda each: (each[0], -each[1])):
            hope = choice[1] + price * (room - choice[0]) + float(ahead[step + 1])
            if choice[1] > highest and hope >= enough:
                kept.append((hope, choice))
            highest = max(highest, choice[1])
        allowed = max(knapsack.FEWEST_CHOICES, (knapsack.MOST_CHOICES - looked_at) // (len(order) - step))
        ranked = sorted(kept, key=lambda each: -each[0])
        at_most = max([at_most, *(hope for hope, _ in ranked[allowed:])])
        choices = sorted((choice for _, choice in ranked[:allowed]), key=lambda each: each[0])
        looked_at += len(choices)
        if not choices:
            return np.zeros(len(worth), np.bool_), at_most
    best = max(choices, key=lambda each: each[1])
    chosen = np.zeros(len(worth), np.bool_)
    chosen[list(best[2])] = True
    return chosen, max(at_most, best[1])


@given(
    st.lists(st.tuples(worths, sizes), min_size=1, max_size=24),
    st.floats(0, 1.1),
    st.floats(0, 1.2),
    st.sampled_from([(knapsack.MOST_CHOICES, knapsack.FEWEST_CHOICES), (40, 2), (1, 1)]),
)
def test_the_native_search_chooses_as_one_over_lists(
    things: list[tuple[float, int]], share: float, hope: float, work: tuple[int, int]
) -> None:
    """Number for number, also where the work is bounded so that choices are given up."""
    worth, size = np.array([each[0] for each in things]), np.array([each[1] for each in things], np.int64)
    room = int(size.sum() * share)
    price = float(worth.sum()) / max(1, int(size.sum()))
    least = hope * share * float(worth.sum())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(knapsack, "MOST_CHOICES", work[0])
        patched.setattr(knapsack, "FEWEST_CHOICES", work[1])
        found, at_most = knapsack._searched(worth, size, room, price, least)
        expected, bound = searched(worth, size, room, price, least)
    assert found.tolist() == expected.tolist()
    assert at_most == bound


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
