"""Which models would go if a zoo had another capacity? What retention would choose, and nothing is done.

foresee(zoo, 20 * 10**9, most=50).leaving      what would go first, with why, comes first
"""

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from modelkeeper.settings import DAY
from modelkeeper.zoo.records import Record

if TYPE_CHECKING:
    from modelkeeper.zoo.zoo import Zoo


class Foreseen(Struct, frozen=True, kw_only=True):
    """What another capacity would mean."""

    models: int  # that would go
    bytes: int  # that they take
    leaving: tuple[tuple[Record, str], ...]  # the first of them, each with why


def foresee(zoo: "Zoo", capacity: int, most: int) -> Foreseen:
    """What would go of a zoo with this capacity, in bytes; at most so many by name.

    Raises:
        InvalidSetting: No capacity can be so.
    """
    from modelkeeper.policy.retention import retain
    from modelkeeper.zoo.valuation import items

    stock = zoo.catalog.stock()
    valued = items(stock, time.time(), zoo.outcomes.found())
    chosen = retain(valued, capacity, half_life=zoo.settings.half_life * DAY)
    gone = chosen.evicted
    reasons = {stock.ids[place]: chosen.reason(place) for place in gone[:most]}
    known = zoo.catalog.with_ids(list(reasons))
    return Foreseen(
        models=len(gone),
        bytes=int(stock.bytes.sum()) - chosen.bytes_kept,
        leaving=tuple((known[model], why) for model, why in reasons.items() if model in known),
    )
