"""Which things, together, are worth most and fit? The 0/1 knapsack, exact where that is within reach.

    chosen, gap = pack(worths, sizes, room)     gap 0: no choice is worth more

1. Greed: by worth per byte, whatever still fits.
2. A bound: room has a price, the worth per byte of the first thing that greed had no room for. To take a
   thing that is worth less than its room at that price, or to leave one that is worth more, costs the
   difference. Where it costs more than greed falls short of the bound, the thing is decided. Of 10,000
   models a few hundred stay open.
3. Those, one after the other, by dynamic programming over choices that are not dominated (no other is
   worth as much in as little room) and that may still beat greed by the bound (`src/native/knapsack.hpp`).

Sizes are counted in whole bytes, so that what fits, fits; worths are floats, compared to a relative 1e-9.
Work is bounded by a number of choices, not by a clock: the same things always give the same answer, in
seconds at most. Where the bound on work strikes, the most promising choices go on, the answer is never worse
than greed, and `gap` says by how much, relatively, a perfect one could be better at most.

A general solver would do too. HiGHS in SciPy needs care with its tolerances where sizes are 10^12, and in
some releases prints to standard output, which would spoil the JSON that commands print.
"""

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native

LARGEST_CORE = 5_000  # open things that are searched; the others are decided by their price
MOST_CHOICES = 6_000_000  # looked at in all ...
FEWEST_CHOICES = 200  # ... but so many for each thing
ROUNDING = 1e-9


def pack(worth: NDArray[np.float64], size: NDArray[np.int64], room: int) -> tuple[NDArray[np.bool_], float]:
    """Which things to take, each worth more than 0, and by how much a perfect choice could be better."""
    if int(size.sum()) <= room:
        return np.ones(len(size), np.bool_), 0.0
    density = np.full(len(size), np.inf)  # what is empty comes first
    np.divide(worth, size, out=density, where=size > 0)
    fitting = np.flatnonzero(size <= room)
    order = fitting[np.argsort(-density[fitting], kind="stable")]
    greedy = _filled(np.zeros(len(size), np.bool_), order, size, room)
    full = np.cumsum(size[order]) > room
    if not full.any():
        return greedy, 0.0  # all that fit alone fit together
    price = float(density[order[np.argmax(full)]])
    surplus = worth - price * size
    least = float(worth[greedy].sum())
    bound = price * room + float(np.maximum(surplus[fitting], 0).sum())
    cost = np.abs(surplus[fitting])
    undecided = fitting[bound - cost >= least - ROUNDING * bound]
    core = undecided[np.argsort(np.abs(surplus[undecided]), kind="stable")][:LARGEST_CORE]
    taken = np.zeros_like(greedy)
    taken[fitting] = surplus[fitting] > 0
    taken[core] = False
    left, there = room - int(size[taken].sum()), float(worth[taken].sum())
    best = greedy
    if left >= 0:  # else rounding made many of equal density look better than their price
        chosen, at_most = _searched(worth[core], size[core], left, price, least - there)
        taken[core[chosen]] = True
        best = max(greedy, _filled(taken, order, size, room), key=lambda choice: float(worth[choice].sum()))
        if len(core) == len(undecided):
            bound = min(bound, max(least, there + at_most))
    gap = bound / float(worth[best].sum()) - 1
    return best, gap if gap > 2 * ROUNDING else 0.0


def _filled(
    chosen: NDArray[np.bool_], order: NDArray[np.intp], size: NDArray[np.int64], room: int
) -> NDArray[np.bool_]:
    """The same choice, and in order whatever still fits."""
    chosen = chosen.copy()
    left = room - int(size[chosen].sum())
    rest = order[~chosen[order]]
    while True:
        rest = rest[size[rest] <= left]  # room only shrinks: what does not fit now never will
        if not len(rest):
            return chosen
        together = np.cumsum(size[rest])
        fit = int(np.searchsorted(together, left, side="right"))
        chosen[rest[:fit]] = True
        left -= int(together[fit - 1])
        rest = rest[fit:]


def _searched(
    worth: NDArray[np.float64], size: NDArray[np.int64], room: int, price: float, least: float
) -> tuple[NDArray[np.bool_], float]:
    """The best choice worth `least` or more (nothing, if there is none), and a bound on every choice."""
    surplus = worth - price * size
    order = np.argsort(-np.abs(surplus), kind="stable")  # what costs most decides most: first
    ahead = np.append(np.cumsum(np.maximum(surplus[order], 0)[::-1])[::-1], 0.0)
    enough = float(least - ROUNDING * (price * room + ahead[0]))
    found, at_most = _native.pack_core(
        worth[order], size[order], ahead, room, price, enough, least, MOST_CHOICES, FEWEST_CHOICES
    )
    chosen = np.zeros(len(worth), np.bool_)
    chosen[order] = found.astype(np.bool_)
    return chosen, at_most
