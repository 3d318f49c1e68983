"""Which models stay when the zoo is over its capacity?

    retain(items, capacity)     what is kept, what is evicted and why, and how close to optimal that is

Those that are worth most together and fit: a 0/1 knapsack. What a model is worth:

    worth = (1 + log2(1 + hits)) * (0.1 + 0.9 standing) * (0.05 + 0.95 cover) * 2^(-idle / half-life)

hits: how often it became a parent; each doubling adds as much.
standing: of its accuracy among its peers (`quality.standing`).
cover: how much of what it offers nobody better offers: 1 minus its similarity to the most similar BETTER
    model, 1 if none is better. What a model adds really depends on what else is kept; looking at better
    models only makes it a plain number, and leaves the best of a group of twins at its full worth.
idle: the time since it last became a parent, or since it was registered if it never did.

It is always positive, so that nothing is evicted while it fits. Pinned models stay, whatever they are worth.

Where several owners share a zoo, none may crowd out the others. Each has a fair share of the capacity: as
much as everyone else, and what some do not need goes to those who do (`fair_shares`). Who keeps no more than
that loses nothing. The others keep what is worth most within their share, pinned models first, and what room
is left then goes to what is worth most, whoever's it is. So a pin holds within its owner's fair share.

A large zoo that is full would choose anew for each model that comes. With `spare`, what is not pinned and
belongs to those who keep more than their share makes that much more room at once, so that the next ones find
it: they are the ones that would have gone next, a little sooner.

How good the choice is, is said with it: `optimal`, or by how much a perfect one could be better at most.
Models are rows of arrays: of a zoo of a million, only those that go are ever looked at one by one.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.knapsack import pack
from modelkeeper.settings import DAY
from modelkeeper.text import counted

HALF_LIFE = 30 * DAY
IDLE_HALF_LIVES = 40.0  # beyond this, idle is idle: worth stays a positive number
Owner = TypeVar("Owner", str, int)


class Items(Struct, frozen=True, kw_only=True, eq=False):
    """The models of a zoo as retention sees them, in an order that decides between equals. Times: seconds."""

    bytes: NDArray[np.int64]
    standing: NDArray[np.float64]
    hits: NDArray[np.int64]
    idle: NDArray[np.float64]  # since it was of use; below 0, where clocks disagree, is 0
    pinned: NDArray[np.bool_]
    cover: NDArray[np.float64]
    owner: NDArray[np.int64]  # numbered from 0 in the order of their names

    def __post_init__(self) -> None:
        for name, largest in (("bytes", np.inf), ("hits", np.inf), ("standing", 1), ("cover", 1)):
            column = getattr(self, name)
            wrong = np.flatnonzero(~((column >= 0) & (column <= largest)))
            if len(wrong):
                raise ValueError(f"no model can be like this: {name} {column[wrong[0]]}")

    def __len__(self) -> int:
        return len(self.bytes)


class Retention(Struct, frozen=True, kw_only=True, eq=False):
    """Who stays and who goes."""

    items: Items
    kept: NDArray[np.bool_]  # of each item: does it stay?
    worth: NDArray[np.float64]
    room: int  # that the pinned ones leave
    shares: NDArray[np.int64] | None  # of each owner, where they matter
    gap: float  # how much more, relatively, a perfect choice could be worth at most
    note: str

    @property
    def optimal(self) -> bool:
        """Is no other choice worth more?"""
        return self.gap == 0

    @property
    def bytes_kept(self) -> int:
        """How much room those take that stay."""
        return int(self.items.bytes[self.kept].sum())

    @property
    def evicted(self) -> list[int]:
        """The places of those that go; what was worth least comes first."""
        gone = np.flatnonzero(~self.kept)
        places: list[int] = gone[np.argsort(self.worth[gone], kind="stable")].tolist()
        return places

    def reason(self, place: int) -> str:
        """Why one that goes does, in words."""
        size = int(self.items.bytes[place])
        if self.shares is not None:
            share = _size(int(self.shares[self.items.owner[place]]))
            why = "pinned, and beyond the share" if self.items.pinned[place] else self._facts(place)
            return f"its owner keeps more than a fair share of the room ({share}): {why}"
        if self.room < 0:
            return "the pinned models take all the capacity"
        if size > self.room:
            return f"{_size(size)} do not fit into {_size(self.room)}"
        return f"others are worth more in the same room: {self._facts(place)}"

    def _facts(self, place: int) -> str:
        """What its worth is made of, in words."""
        hits, cover = int(self.items.hits[place]), float(self.items.cover[place])
        used = "never a parent" if not hits else f"{counted(hits, 'time')} a parent"
        standing = float(self.items.standing[place])
        facts = [used, f"idle for {_days(float(self.items.idle[place]))}", f"standing {standing:.2f}"]
        if cover < 1:
            facts.append(f"{1 - cover:.0%} covered by a better model")
        return ", ".join(facts)


def worth(items: Items, half_life: float = HALF_LIFE) -> NDArray[np.float64]:
    """What models are worth to the zoo: see the top of the file."""
    used = 1 + np.log2(1.0 + items.hits)
    fresh = np.exp2(-np.minimum(np.maximum(items.idle, 0.0) / half_life, IDLE_HALF_LIVES))
    worths: NDArray[np.float64] = used * (0.1 + 0.9 * items.standing) * (0.05 + 0.95 * items.cover) * fresh
    return worths


def retain(items: Items, capacity: int, *, half_life: float = HALF_LIFE, spare: int = 0) -> Retention:
    """Keep what is worth most within `capacity` bytes.

    Args:
        items: Every model of the zoo.
        capacity: In bytes. Pinned models of a single owner stay even if they alone exceed it; then all
            others go.
        half_life: Seconds without use after which a model is worth half.
        spare: Bytes of the capacity to leave free if something must go, as far as that is possible.

    Raises:
        InvalidSetting: the capacity or the half-life cannot work.
    """
    if capacity < 0:
        raise InvalidSetting("capacity", str(capacity), "give a number of bytes, 0 or more")
    if not half_life > 0:
        raise InvalidSetting("half_life", str(half_life), "give a number of seconds above 0")
    worths = worth(items, half_life)
    room, shares, note = capacity - int(items.bytes[items.pinned].sum()), None, ""
    if int(items.bytes.sum()) <= capacity:
        kept, gap = np.ones(len(items), np.bool_), 0.0
    elif len(items) and items.owner.min() != items.owner.max():
        kept, gap, shares = _fair_choice(items, worths, capacity, spare)
    else:
        kept, gap = items.pinned.copy(), 0.0
        if room >= 0:
            gap = _pack_into(kept, ~items.pinned, items, worths, max(0, room - spare))
    if room < 0 and shares is None:
        note = f"the pinned models alone exceed the capacity by {_size(-room)}: unpin some, or raise it"
    elif gap:
        note = f"a perfect choice could be worth {gap:.2g} of it more at most"
    return Retention(items=items, kept=kept, worth=worths, room=room, shares=shares, gap=gap, note=note)


def fair_shares(demands: Mapping[Owner, int], capacity: int) -> dict[Owner, int]:
    """How much of the capacity each may have: nobody less than they ask for, unless all others get no more.

    >>> fair_shares({"ann": 10, "bob": 60, "eve": 900}, 120)
    {'ann': 10, 'bob': 55, 'eve': 55}
    """
    shares: dict[Owner, int] = {}
    left = capacity
    for number, (owner, demand) in enumerate(sorted(demands.items(), key=lambda each: (each[1], each[0]))):
        shares[owner] = min(demand, left // (len(demands) - number))
        left -= shares[owner]
    return shares


def _fair_choice(
    items: Items, worths: NDArray[np.float64], capacity: int, spare: int
) -> tuple[NDArray[np.bool_], float, NDArray[np.int64]]:
    """What is kept where several owners want more than there is: which, gap, and the share of each."""
    asked = np.zeros(int(items.owner.max()) + 1, np.int64)
    np.add.at(asked, items.owner, items.bytes)
    there = np.unique(items.owner).tolist()
    given = fair_shares({owner: int(asked[owner]) for owner in there}, capacity)
    shares = np.zeros_like(asked)
    shares[list(given)] = list(given.values())
    beyond = asked > shares
    kept = ~beyond[items.owner]
    gaps = [0.0]
    crowded = np.flatnonzero(~kept)
    crowded = crowded[np.argsort(items.owner[crowded], kind="stable")]
    starts = np.flatnonzero(np.diff(items.owner[crowded], prepend=-1))
    for theirs in np.split(crowded, starts[1:]):
        left, more = int(shares[items.owner[theirs[0]]]), 0
        for group in (theirs[items.pinned[theirs]], theirs[~items.pinned[theirs]]):
            gaps.append(_pack_into(kept, group, items, worths, max(0, left - more)))
            left -= int(items.bytes[group[kept[group]]].sum())
            more = -(-spare // len(starts))  # of what is not pinned
    room = capacity - spare - int(items.bytes[kept].sum())
    gaps.append(_pack_into(kept, np.flatnonzero(~kept), items, worths, max(0, room)))
    return kept, max(gaps), shares


def _pack_into(
    kept: NDArray[np.bool_],
    which: NDArray[np.intp] | NDArray[np.bool_],
    items: Items,
    worths: NDArray[np.float64],
    room: int,
) -> float:
    """Keep what is worth most of some within the room. How much better could a perfect choice be?"""
    kept[which], gap = pack(worths[which], items.bytes[which], room)
    return gap


def _days(seconds: float) -> str:
    return f"{seconds / DAY:.3g} days" if seconds >= DAY else "less than a day"


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"
