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

How good the choice is, is said with it: `optimal`, or by how much a perfect one could be better at most.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.knapsack import pack

DAY = 86_400.0
HALF_LIFE = 30 * DAY
IDLE_HALF_LIVES = 40.0  # beyond this, idle is idle: worth stays a positive number


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
    owner: str = ""

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


def retain(items: Iterable[Item], capacity: int, *, half_life: float = HALF_LIFE) -> Retention:
    """Keep what is worth most within `capacity` bytes.

    Args:
        items: Every model of the zoo, each id once.
        capacity: In bytes. Pinned models of a single owner stay even if they alone exceed it; then all
            others go.
        half_life: Seconds without use after which a model is worth half.

    Raises:
        InvalidSetting: the capacity or the half-life cannot work.
    """
    if capacity < 0:
        raise InvalidSetting("capacity", str(capacity), "give a number of bytes, 0 or more")
    if not half_life > 0:
        raise InvalidSetting("half_life", str(half_life), "give a number of seconds above 0")
    ordered = sorted(items, key=lambda item: item.id)  # the order in which they come decides nothing
    owners = {item.owner for item in ordered}
    over = sum(item.bytes for item in ordered) > capacity
    if over and len(owners) > 1:
        kept, gap, reasons = _fair_choice(ordered, capacity, half_life)
        note = ""
    else:
        kept, gap, note, reasons = _best_choice(ordered, capacity, half_life)
    if gap:
        note = f"a perfect choice could be worth {gap:.2g} of it more at most"
    gone = [
        Eviction(item.id, worth(item, half_life), item.bytes, reasons[item.id])
        for item in ordered
        if item.id not in kept
    ]
    gone.sort(key=lambda eviction: (eviction.worth, eviction.id))
    total = sum(item.bytes for item in ordered if item.id in kept)
    return Retention(frozenset(kept), tuple(gone), gap == 0, gap, total, note)


def fair_shares(demands: Mapping[str, int], capacity: int) -> dict[str, int]:
    """How much of the capacity each may have: nobody less than they ask for, unless all others get no more.

    >>> fair_shares({"ann": 10, "bob": 60, "eve": 900}, 120)
    {'ann': 10, 'bob': 55, 'eve': 55}
    """
    shares: dict[str, int] = {}
    left = capacity
    for number, (owner, demand) in enumerate(sorted(demands.items(), key=lambda each: (each[1], each[0]))):
        shares[owner] = min(demand, left // (len(demands) - number))
        left -= shares[owner]
    return shares


def _best_choice(
    items: Sequence[Item], capacity: int, half_life: float
) -> tuple[set[str], float, str, dict[str, str]]:
    """What is kept where it does not matter whose it is: ids, gap, what is to say, and why others go."""
    pinned = {item.id for item in items if item.pinned}
    others = [item for item in items if not item.pinned]
    room = capacity - sum(item.bytes for item in items if item.pinned)
    reasons = {item.id: _reason(item, room) for item in others}
    if room < 0:
        note = f"the pinned models alone exceed the capacity by {_size(-room)}: unpin some, or raise it"
        return pinned, 0.0, note, reasons
    chosen, gap = _pack(others, room, half_life)
    return pinned | chosen, gap, "", reasons


def _fair_choice(
    items: Sequence[Item], capacity: int, half_life: float
) -> tuple[set[str], float, dict[str, str]]:
    """What is kept where several owners want more than there is: ids, gap, and why others go."""
    by_owner: dict[str, list[Item]] = {}
    for item in items:
        by_owner.setdefault(item.owner, []).append(item)
    asked = {owner: sum(item.bytes for item in theirs) for owner, theirs in by_owner.items()}
    shares = fair_shares(asked, capacity)
    kept: set[str] = set()
    gaps, room = [0.0], capacity
    for owner, theirs in by_owner.items():
        left = shares[owner]
        for group in ([item for item in theirs if item.pinned], [item for item in theirs if not item.pinned]):
            chosen, gap = _pack(group, left, half_life)
            left -= sum(item.bytes for item in group if item.id in chosen)
            kept |= chosen
            gaps.append(gap)
        room -= shares[owner] - left
    chosen, gap = _pack([item for item in items if item.id not in kept], room, half_life)
    share = {
        owner: f"its owner keeps more than a fair share of the room ({_size(shares[owner])}): "
        for owner in by_owner
    }
    reasons = {
        item.id: share[item.owner] + ("pinned, and beyond the share" if item.pinned else _facts(item))
        for item in items
    }
    return kept | chosen, max(*gaps, gap), reasons


def _pack(items: Sequence[Item], room: int, half_life: float) -> tuple[set[str], float]:
    """The ids of what is worth most within the room, and how much better a perfect choice could be."""
    taken, gap = pack([worth(item, half_life) for item in items], [item.bytes for item in items], room)
    return {item.id for item, stays in zip(items, taken, strict=True) if stays}, gap


def _days(seconds: float) -> str:
    return f"{seconds / DAY:.3g} days" if seconds >= DAY else "less than a day"


def _reason(item: Item, room: int) -> str:
    """Why a model goes, in words."""
    if room < 0:
        return "the pinned models take all the capacity"
    if item.bytes > room:
        return f"{_size(item.bytes)} do not fit into {_size(room)}"
    return f"others are worth more in the same room: {_facts(item)}"


def _facts(item: Item) -> str:
    """What its worth is made of, in words."""
    hits = "never a parent" if not item.hits else f"{item.hits:,} times a parent"
    facts = [hits, f"idle for {_days(item.idle)}", f"standing {item.standing:.2f}"]
    if item.cover < 1:
        facts.append(f"{1 - item.cover:.0%} covered by a better model")
    return ", ".join(facts)


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"
