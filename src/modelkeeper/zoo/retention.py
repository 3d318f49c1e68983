"""Which models stay when the zoo is over its capacity?

    retain(items, capacity)     what is kept, what is evicted and why, and how close to optimal that is

Those that are worth most together and fit: a 0/1 knapsack. What a model is worth:

    worth = (1 + log2(1 + hits)) * (0.1 + 0.9 standing) * (0.05 + 0.95 cover) * 2^(-idle / half-life)

hits: how often it became a parent; each doubling adds as much.
standing: of its accuracy among its peers (`metrics.standing`).
cover: how much of what it offers nobody better offers: 1 minus its similarity to the most similar BETTER
    model, 1 if none is better. What a model adds really depends on what else is kept; looking at better
    models only makes it a plain number, and leaves the best of a group of twins at its full worth.
idle: the time since it last became a parent, or since it was registered if it never did.

It is always positive, so that nothing is evicted while it fits. Pinned models stay, whatever they are worth.

Models much more or much less worth per byte than the last one that fits are decided by a bound: with them
the other way round no choice could beat the greedy one. What is left, a few dozen as a rule, goes to HiGHS.
If it runs out of time, or if too many are left (all equally worth per byte), the best that is known stands,
never worse than greedy, and `gap` says how much better a perfect choice could be at most.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from modelkeeper.errors import InvalidSetting

if TYPE_CHECKING:  # imported where they are needed: a zoo within its capacity needs neither
    import numpy as np
    from numpy.typing import NDArray

DAY = 86_400.0
HALF_LIFE = 30 * DAY
TIME_LIMIT = 2.0
LARGEST_CORE = 5_000  # undecided models that HiGHS is given; more of them are left to greed
IDLE_HALF_LIVES = 40.0  # beyond this, idle is idle: worth stays a positive number
ROUNDING = 1e-9  # relative; sums of floats are not trusted beyond this


class Item(Struct, frozen=True, kw_only=True):
    """A model of the zoo, as retention sees it. Times are in seconds."""

    id: str
    bytes: int
    standing: float = 0.5
    hits: int = 0
    age: float = 0.0
    last_used_age: float | None = None  # None: it never became a parent
    pinned: bool = False
    cover: float = 1.0

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.hits < 0 or not (0 <= self.standing <= 1 and 0 <= self.cover <= 1):
            raise ValueError(f"no model can be like this: {self}")

    @property
    def idle(self) -> float:
        """Seconds since it was of use; 0 where clocks disagree."""
        return max(0.0, self.age if self.last_used_age is None else self.last_used_age)


class Eviction(Struct, frozen=True):
    """A model that goes, what it was worth, and why it goes."""

    id: str
    worth: float
    bytes: int
    reason: str


class Retention(Struct, frozen=True):
    """Who stays and who goes."""

    kept: frozenset[str]
    evicted: tuple[Eviction, ...]  # what was worth least comes first
    optimal: bool  # no other choice is worth more
    gap: float  # how much more, relatively, a perfect choice could be worth at most
    bytes_kept: int
    note: str


def worth(item: Item, half_life: float = HALF_LIFE) -> float:
    """What a model is worth to the zoo: see the top of the file."""
    used = 1 + math.log2(1 + item.hits)
    fresh = math.exp2(-min(item.idle / half_life, IDLE_HALF_LIVES))
    return used * (0.1 + 0.9 * item.standing) * (0.05 + 0.95 * item.cover) * fresh


def retain(
    items: Iterable[Item], capacity: int, *, half_life: float = HALF_LIFE, time_limit: float = TIME_LIMIT
) -> Retention:
    """Keep what is worth most within `capacity` bytes.

    Args:
        items: Every model of the zoo, each id once.
        capacity: In bytes. Pinned models stay even if they alone exceed it; then all others go.
        half_life: Seconds without use after which a model is worth half.
        time_limit: Seconds that the exact solver may take.

    Raises:
        InvalidSetting: the capacity, the half-life or the time limit cannot work.
    """
    for name, value, valid in (
        ("capacity", capacity, capacity >= 0),
        ("half_life", half_life, half_life > 0),
        ("time_limit", time_limit, time_limit > 0),
    ):
        if not valid:
            raise InvalidSetting(
                name, str(value), f"give {'0 or more' if name == 'capacity' else 'more than 0'}"
            )
    ordered = sorted(items, key=lambda item: item.id)  # the order in which they come decides nothing
    pinned = [item for item in ordered if item.pinned]
    others = [item for item in ordered if not item.pinned]
    room = capacity - sum(item.bytes for item in pinned)
    worths = [worth(item, half_life) for item in others]
    if room < 0:
        chosen, bound = [False] * len(others), 0.0
        note = f"the pinned models alone exceed the capacity by {_size(-room)}: unpin some, or raise it"
    else:
        chosen, bound = _knapsack(worths, [item.bytes for item in others], room, time_limit)
        note = ""
    kept = [*pinned, *(item for item, stays in zip(others, chosen, strict=True) if stays)]
    value = sum(each for each, stays in zip(worths, chosen, strict=True) if stays)
    gap = max(0.0, bound / value - 1) if value else 0.0
    if gap < ROUNDING:
        gap = 0.0
    elif not note:
        note = f"a perfect choice could be worth {gap:.2%} more at most; finding it would take too long"
    total = sum(item.bytes for item in kept)
    gone = [
        Eviction(item.id, each, item.bytes, _reason(item, room))
        for item, each, stays in zip(others, worths, chosen, strict=True)
        if not stays
    ]
    gone.sort(key=lambda eviction: (eviction.worth, eviction.id))
    return Retention(frozenset(item.id for item in kept), tuple(gone), gap == 0, gap, total, note)


def _knapsack(
    worths: Sequence[float], sizes: Sequence[int], room: int, time_limit: float
) -> tuple[list[bool], float]:
    """Who is chosen, and what a perfect choice could be worth at most."""
    if sum(sizes) <= room:
        return [True] * len(sizes), sum(worths)
    import numpy as np

    worth, size = np.array(worths), np.array(sizes, np.int64)
    density = np.full(len(size), np.inf)  # what is empty comes first
    np.divide(worth, size, out=density, where=size > 0)
    fitting = np.flatnonzero(size <= room)
    order = fitting[np.argsort(-density[fitting], kind="stable")]
    best = _filled(np.zeros(len(size), np.bool_), order, size, room)
    filled = np.cumsum(size[order])
    if not (filled > room).any():
        return best.tolist(), float(worth[best].sum())  # all that fit alone fit together
    alone = np.zeros_like(best)
    alone[fitting[np.argmax(worth[fitting])]] = True
    best = max(best, _filled(alone, order, size, room), key=lambda each: float(worth[each].sum()))

    # Room has a price: the density of the first that does not fit. Sold at that price, the room and what
    # is worth more than its room bound every choice from above; to take one that is worth less than its
    # room, or to leave one that is worth more, costs the difference.
    price = density[order[np.argmax(filled > room)]]
    surplus = worth - price * size
    bound = float(price * room + surplus[fitting][surplus[fitting] > 0].sum())
    least = float(worth[best].sum())
    open_ = fitting[bound - np.abs(surplus[fitting]) >= least - ROUNDING * bound]
    fixed = np.zeros_like(best)
    fixed[fitting] = surplus[fitting] > 0
    fixed[open_] = False
    left = room - int(size[fixed].sum())
    if left < 0 or not len(open_):
        return best.tolist(), least  # no choice can beat it
    if len(open_) <= LARGEST_CORE:
        core, at_most = _solved(worth[open_], size[open_], left, time_limit)
        bound = min(bound, max(least, float(worth[fixed].sum()) + at_most))
        fixed[open_[core]] = True
        for index in order[::-1]:  # the solver's numbers are floats: bytes are counted here
            if int(size[fixed].sum()) <= room:
                break
            fixed[index] = False
        solved = _filled(fixed, order, size, room)
        best = max(solved, best, key=lambda each: float(worth[each].sum()))
    return best.tolist(), bound


def _filled(
    chosen: "NDArray[np.bool_]", order: "NDArray[np.intp]", size: "NDArray[np.int64]", room: int
) -> "NDArray[np.bool_]":
    """The same choice, and in order whatever still fits."""
    chosen = chosen.copy()
    left = room - int(size[chosen].sum())
    for index in order[~chosen[order]].tolist():
        if size[index] <= left:
            chosen[index] = True
            left -= int(size[index])
    return chosen


def _solved(
    worth: "NDArray[np.float64]", size: "NDArray[np.int64]", room: int, time_limit: float
) -> tuple["NDArray[np.bool_]", float]:
    """What HiGHS chooses, and what a perfect choice could be worth at most."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    # Its tolerances are absolute (1e-6): numbers of this magnitude make them small.
    scale = 1e4 / float(worth.max())
    shrink = 2.0 ** -max(0, int(room).bit_length() - 30)
    result = milp(
        -worth * scale,
        integrality=np.ones(len(worth)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint((size * shrink)[None, :], ub=room * shrink),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    at_most = math.inf if result.mip_dual_bound is None else -float(result.mip_dual_bound) / scale
    chosen = np.zeros(len(worth), np.bool_) if result.x is None else result.x > 0.5
    return chosen, at_most


def _reason(item: Item, room: int) -> str:
    """Why a model goes, in words."""
    if room < 0:
        return "the pinned models take all the capacity"
    if item.bytes > room:
        return f"{_size(item.bytes)} do not fit into {_size(room)}"
    hits = "never a parent" if not item.hits else f"{item.hits:,} times a parent"
    facts = [hits, f"idle for {item.idle / DAY:.3g} days", f"standing {item.standing:.2f}"]
    if item.cover < 1:
        facts.append(f"{1 - item.cover:.0%} covered by a better model")
    return f"others are worth more in the same room: {', '.join(facts)}"


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"
