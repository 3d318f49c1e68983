"""What do a model's peers say about its worth to the zoo? Records as retention sees them.

    items(records, now, believed)           each with its standing among its peers and what covers it
    better_twins(record, near, others)      which near-twin is the better one, of a new model and of others

Pure: records in, values out. `policy.retention` decides who stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from modelkeeper.policy.credit import Credit
from modelkeeper.policy.quality import Metric, Peers, standing
from modelkeeper.policy.retention import Item
from modelkeeper.zoo.records import Record


def items(records: Sequence[Record], now: float, believed: Mapping[str, Credit]) -> Iterator[Item]:
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


def better_twins(
    record: Record, near: Mapping[int, float], others: Iterable[Record]
) -> dict[str, tuple[str, float]]:
    """By id, the better near-twin that a model now has, and how similar it is.

    Args:
        record: A new model.
        near: How similar others are to it, by their keys.
        others: Their records. Of those with another metric nobody can say who is better.
    """
    twins: dict[str, tuple[str, float]] = {}
    for other in others:
        if other.metric != record.metric or other.value is None or record.value is None:
            continue
        similarity = near[other.key]
        other_is_better = (other.value < record.value) == record.lower_is_better
        if other_is_better or other.value == record.value:
            if similarity > twins.get(record.id, ("", 0.0))[1]:
                twins[record.id] = other.id, similarity
        elif similarity > other.twin_similarity:
            twins[other.id] = record.id, similarity
    return twins
