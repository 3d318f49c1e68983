"""May each of many models become a parent? `admission.admit` for all that come at once.

    peers = ManyPeers.of(group, value, voice, groups)      what those that are there are like, by groups
    outliers(group, value, voice, peers, fraction=True)    is each of those that come an outlier among them?

Groups, values and voices are as `standings` takes them. The answers are those of `admit` of each: a property
test compares.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from modelkeeper.policy.admission import MINIMUM_PEERS, THRESHOLD
from modelkeeper.policy.quality import HUGE, POINT, SHARE
from modelkeeper.policy.standings import middles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SEVERAL = -1


class ManyPeers(Struct, frozen=True, eq=False):
    """What the peers of each of many groups are like."""

    number: Ints
    middle: Floats
    deviation: Floats
    sole: Ints  # whose all of them are; SEVERAL, if they are not one owner's

    @classmethod
    def of(cls, group: Ints, value: Floats, voice: Ints, groups: int) -> "ManyPeers":
        """Sum them up. Values are known, voices are 0 or more."""
        sole = np.full(groups, SEVERAL, np.int64)
        sole[group] = voice
        sole[group[sole[group] != voice]] = SEVERAL
        return cls(*middles(group, value, voice, groups), sole)


def outliers(
    group: Ints,
    value: Floats,
    voice: Ints,
    peers: ManyPeers,
    *,
    fraction: bool,
    lower: bool = False,
    threshold: float = THRESHOLD,
    minimum_peers: int = MINIMUM_PEERS,
) -> NDArray[np.bool_]:
    """Is each so much worse than its peers that `admit` does not let it lend?

    Args:
        group: Whose peers each is measured by.
        value: How good each is.
        voice: Whose each is: one voice alone refuses nobody else's model.
        peers: Without the models that come.
        fraction: Are values fractions of 1?
        lower: Is a lower value better?
        threshold: As `admit` takes it.
        minimum_peers: Likewise.
    """
    middle = peers.middle[group]
    least = POINT if fraction else SHARE * np.abs(middle)
    spread = np.maximum(np.maximum(1.4826 * peers.deviation[group], least), 1 / HUGE)
    distance = (np.clip(value, -HUGE, HUGE) - middle) / spread
    worse = (distance > threshold) if lower else (distance < -threshold)
    others = (peers.sole[group] >= 0) & (peers.sole[group] != voice)
    answer: NDArray[np.bool_] = worse & (peers.number[group] >= minimum_peers) & ~others
    return answer
