"""Retention one model at a time, as plainly as it can be written: what `policy.retention` must decide, too.

Item, as_items([...])        a model, and many of them as the arrays that retention takes
retain(zoo, capacity)        by the arrays: what is kept and evicted, by ids
slowly(zoo, capacity)        the same, one by one
valued_slowly(records, ...)  what records are as items, one by one
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from modelkeeper.policy import retention
from modelkeeper.policy.credit import Credit
from modelkeeper.policy.knapsack import pack
from modelkeeper.policy.quality import Metric, Peers, standing
from modelkeeper.policy.retention import HALF_LIFE, Items, _days, _size, fair_shares
from modelkeeper.zoo.records import Record


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


class Decided(Struct, frozen=True):
    """Who stays and who goes, by ids."""

    kept: frozenset[str]
    evicted: tuple[Eviction, ...]  # what was worth least comes first
    optimal: bool
    gap: float
    bytes_kept: int
    note: str


def as_items(zoo: Iterable[Item]) -> Items:
    """Models as arrays, in the order of their ids."""
    ordered = sorted(zoo, key=lambda item: item.id)
    owners = sorted({item.owner for item in ordered})
    return Items(
        bytes=np.array([item.bytes for item in ordered], np.int64),
        standing=np.array([item.standing for item in ordered], np.float64),
        hits=np.array([item.hits for item in ordered], np.int64),
        idle=np.array([item.idle for item in ordered], np.float64),
        pinned=np.array([item.pinned for item in ordered], np.bool_),
        cover=np.array([item.cover for item in ordered], np.float64),
        owner=np.array([owners.index(item.owner) for item in ordered], np.int64),
    )


def worth(item: Item, half_life: float = HALF_LIFE) -> float:
    """What one model is worth."""
    return float(retention.worth(as_items([item]), half_life)[0])


def retain(zoo: Iterable[Item], capacity: int, *, half_life: float = HALF_LIFE, spare: int = 0) -> Decided:
    """What retention decides."""
    ordered = sorted(zoo, key=lambda item: item.id)
    result = retention.retain(as_items(ordered), capacity, half_life=half_life, spare=spare)
    evicted = tuple(
        Eviction(ordered[place].id, float(result.worth[place]), ordered[place].bytes, result.reason(place))
        for place in result.evicted
    )
    kept = frozenset(item.id for item, stays in zip(ordered, result.kept, strict=True) if stays)
    return Decided(kept, evicted, result.optimal, result.gap, result.bytes_kept, result.note)


def slowly(zoo: Iterable[Item], capacity: int, half_life: float = HALF_LIFE) -> Decided:
    """What retention must decide."""
    ordered = sorted(zoo, key=lambda item: item.id)
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
    return Decided(frozenset(kept), tuple(gone), gap == 0, gap, total, note)


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
    worths = np.array([worth(item, half_life) for item in items], np.float64)
    taken, gap = pack(worths, np.array([item.bytes for item in items], np.int64), room)
    return {item.id for item, stays in zip(items, taken, strict=True) if stays}, gap


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


def valued_slowly(records: Sequence[Record], now: float, believed: Mapping[str, Credit]) -> Iterator[Item]:
    """The stored models of a zoo as retention sees them, at a time, and as far as claims are believed."""
    present = {record.id for record in records}
    groups: dict[tuple[str, str, str, bool], list[tuple[float, str]]] = {}
    for record in records:
        if record.value is not None and not believed[record.id].refuted:
            groups.setdefault(record.group, []).append((record.value, record.voice))
    peers = {
        group: Peers.of([value for value, _ in said], group[-1], [voice for _, voice in said])
        for group, said in groups.items()
    }
    nobody = Peers(0)
    for record in records:
        place = 0.5
        if record.value is not None:
            metric = Metric(record.metric, record.value, record.lower_is_better)
            place = standing(metric, peers.get(record.group, nobody))
        yield Item(
            id=record.id,
            bytes=record.bytes,
            standing=place * believed[record.id].factor,
            hits=record.hits,
            age=now - record.created,
            last_used_age=now - record.last_used if record.hits else None,
            pinned=record.pinned,
            cover=1 - record.twin_similarity if record.twin in present else 1.0,
            owner=record.voice,
        )
