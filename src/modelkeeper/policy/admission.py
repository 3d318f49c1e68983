"""May a model become a parent, or is it so much worse than its peers that it would spoil warm starts?

    admit(metric, peers)    admitted, not_a_parent or refused, and why

A training that failed (a diverged loss, shuffled labels, a bug) leaves a model far below those of the same
task on the same data set. It is an outlier if its robust z-score (`quality.zscore`: distance from the
median in units of the median deviation, with a least unit so that equal peers do not refuse a small
difference) is below minus the threshold. Being better than all others is never a reason, and with few
peers nobody can tell. A better metric never gets a worse verdict.

Values are claims. Each owner has one voice among the peers, however many models are theirs, and one voice
alone refuses nobody else's model: such a model is kept, and by its standing nobody should start from it.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.quality import Metric, Peers, zscore
from modelkeeper.settings import ADMISSIONS, Verdict

THRESHOLD = 3.5  # of the robust z-score, as is usual for it: 3.5 points of accuracy among equal peers
MINIMUM_PEERS = 5


class Admission(Struct, frozen=True):
    """The verdict, why, and the z-score it rests on (None: it was not asked for)."""

    verdict: Verdict
    reason: str
    zscore: float | None = None


def admit(
    metric: Metric,
    peers: Sequence[float],
    owners: Sequence[Hashable] = (),
    *,
    owner: Hashable = "",
    summary: Peers | None = None,
    threshold: float = THRESHOLD,
    minimum_peers: int = MINIMUM_PEERS,
    mode: str = "refuse",
) -> Admission:
    """Judge a model by its peers.

    Args:
        metric: How good the model is.
        peers: Values of the same metric for the same task and data set, without this model.
        owners: Whose each of the peers is; default: everyone's.
        owner: Whose this model is, as owners are called there.
        summary: What the peers are like, if they have been summed up.
        threshold: How many spreads below the median make an outlier.
        minimum_peers: With fewer peers than this, everyone is admitted.
        mode: What becomes of an outlier, one of ADMISSIONS: refused, stored though it lends to nobody, or
            admitted like all others.

    Raises:
        InvalidSetting: there is no such mode, or threshold or minimum cannot work.
    """
    if mode not in ADMISSIONS:
        raise InvalidSetting("admission", repr(mode), f"choose one of {', '.join(ADMISSIONS)}")
    if not threshold > 0:
        raise InvalidSetting("admission threshold", str(threshold), "give a number above 0")
    if minimum_peers < 1:
        raise InvalidSetting("minimum_peers", str(minimum_peers), "give at least 1")
    if ADMISSIONS[mode] == "admitted":
        return Admission("admitted", "admission is off")
    if summary is None:
        summary = Peers.of(peers, metric.lower_is_better, owners)
    if summary.number < minimum_peers:
        few = f"{summary.number} peers are too few to judge by (minimum {minimum_peers})"
        return Admission("admitted", few)
    z = zscore(metric, summary)
    side = "worse" if z < 0 else "better"
    place = f"{metric} is {abs(z):.2g} spreads {side} than the median of {len(peers)} peers"
    if z < -threshold and owners and set(owners) == {owners[0]} != {owner}:
        return Admission("admitted", f"{place}, but these are one owner's, and one voice refuses nobody", z)
    if z < -threshold:
        return Admission(ADMISSIONS[mode], f"{place}, more than {threshold:g}", z)
    return Admission("admitted", place if z else f"{metric} is the median of {len(peers)} peers", z)


def least_standing(mode: str, threshold: float = THRESHOLD) -> float:
    """The standing among its peers below which a stored model is an outlier; 0 if admission is off.

    Of a zoo whose first models were poor, those stay when better ones come: nobody should start from them.
    """
    return 0.0 if ADMISSIONS[mode] == "admitted" else 1 / (2 + 2 * threshold)
