"""What do a model's peers say about its worth to the zoo? Stored models as retention sees them.

    items(stock, now, found)                each with its standing among its peers and what covers it
    better_twins(record, near, others)      which near-twin is the better one, of a new model and of others

Pure: what the catalog holds in, values out. `policy.retention` decides who stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from modelkeeper.policy.credit import REFUTED, factors
from modelkeeper.policy.quality import is_fraction
from modelkeeper.zoo.catalog.stock import Stock
from modelkeeper.zoo.records import Record

if TYPE_CHECKING:
    from modelkeeper.policy.retention import Items


def items(stock: Stock, now: float, found: Sequence[tuple[str, str, int, int]]) -> "Items":
    """The stored models of a zoo as retention sees them, at a time, as far as claims are believed.

    `found` is what users found of them: see `Outcomes.found`.
    """
    import numpy as np

    from modelkeeper.policy.retention import Items
    from modelkeeper.policy.standings import standings

    places = {identity: place for place, identity in enumerate(stock.ids)}
    said = [(places[model], good, bad) for model, _, good, bad in found if model in places]
    model, good, bad = np.array(said, np.int64).reshape(-1, 3).T
    believed = factors(model, good, bad, len(stock.ids))
    lower = np.array([group[3] for group in stock.groups], np.bool_)
    fraction = np.array([is_fraction(group[2]) for group in stock.groups], np.bool_)
    place = standings(stock.group, stock.value, stock.voice, believed > REFUTED, lower, fraction)
    return Items(
        bytes=stock.bytes,
        standing=place * believed,
        hits=stock.hits,
        idle=np.maximum(0.0, now - np.where(stock.hits > 0, stock.last_used, stock.created)),
        pinned=stock.pinned,
        cover=1 - stock.twin_similarity,
        owner=stock.voice,
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
