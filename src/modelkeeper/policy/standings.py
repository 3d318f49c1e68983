"""Where does each of many models stand among its peers? `quality.standing` for all models of a zoo at once.

    standings(group, value, voice, counts, lower, fraction)      one number for each model
    peers_of(value, voice, lower)            `Peers.of`: what many values of one metric are like, each owner's
    standing_of(value, metric, lower, peers) where many values stand among these
    middles(group, value, voice, groups)     how many peers each group has, their median and their deviation

Groups of about the same size are laid side by side, one in each row, sorted and summed up together: each row
is what `quality.Peers.of` makes of its group, number for number.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from modelkeeper.policy.quality import HUGE, POINT, SHARE, Peers, is_fraction
from modelkeeper.policy.voices import EVEN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def standings(
    group: Ints, value: Floats, voice: Ints, counts: Bools, lower: Bools, fraction: Bools
) -> Floats:
    """From 0 (far below what its peers have reached) over 0.5 (there) to 1; 0.5 for what nobody can say.

    Args:
        group: Of each model; those of a group are peers. Groups are numbered from 0.
        value: Of each model; NaN: not known.
        voice: Whose each model is: each owner has one voice among the peers of a model.
        counts: Is it a peer that others are measured by?
        lower: Of each group: is a lower value better?
        fraction: Of each group: are values fractions of 1?
    """
    value = np.clip(value, -HUGE, HUGE)
    peers = np.flatnonzero(counts & ~np.isnan(value))
    number, reached, spread = _summed_up(group[peers], value[peers], voice[peers], lower)
    least = np.where(fraction, POINT, SHARE * np.abs(reached)) * (1 + 2 / np.maximum(1, number // 2))
    width = np.maximum(np.maximum(2.506 * spread, least), 1 / HUGE)
    distance = (value - reached[group]) / width[group]
    z = np.clip(np.where(lower[group], -distance, distance), -HUGE, HUGE)
    known = ~np.isnan(value) & (number[group] > 0)
    return np.where(known, (1 + z / (1 + np.abs(z))) / 2, 0.5)


def peers_of(value: Floats, voice: Ints, lower: bool) -> Peers:
    """What `Peers.of` says of values, if it is known by a number whose each is."""
    if not len(value):
        return Peers(0)
    group = np.zeros(len(value), np.int64)
    reached, spread = _summed_up(group, np.clip(value, -HUGE, HUGE), voice, np.array([lower]))[1:]
    number, middle, deviation = (each[0] for each in middles(group, value, voice, 1))
    return Peers(int(number), float(middle), float(deviation), float(reached[0]), float(spread[0]))


def middles(group: Ints, value: Floats, voice: Ints, groups: int) -> tuple[Ints, Floats, Floats]:
    """Of each group what `Peers` calls number, middle and deviation; 0 of those without a value."""
    number = np.zeros(groups, np.int64)
    middle, deviation = np.zeros(groups), np.zeros(groups)
    for chosen, values, weights in _side_by_side(group, np.clip(value, -HUGE, HUGE), voice, groups):
        number[chosen] = _voices(np.cumsum(weights, axis=1)[:, -1], weights)
        middle[chosen] = at = _middles(values, weights)
        deviation[chosen] = _middles(np.abs(values - at[:, None]), weights)
    return number, middle, deviation


def standing_of(value: Floats, metric: str, lower: bool, peers: Peers) -> Floats:
    """What `quality.standing` says of each value of a metric."""
    if not peers.number:
        return np.full(len(value), 0.5)
    least = (POINT if is_fraction(metric) else SHARE * abs(peers.reached)) * (
        1 + 2 / max(1, peers.number // 2)
    )
    width = max(2.506 * peers.spread, least, 1 / HUGE)
    distance = (np.clip(value, -HUGE, HUGE) - peers.reached) / width
    z = np.clip(-distance if lower else distance, -HUGE, HUGE)
    standing: Floats = (1 + z / (1 + np.abs(z))) / 2
    return standing


def _middles(values: Floats, weights: Floats) -> Floats:
    """Of each row, as `voices.middle`; NaN, which fills rows up, weighs nothing."""
    order = np.lexsort((weights, values), axis=1)
    values = np.take_along_axis(values, order, axis=1)
    so_far = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    half = so_far[:, -1:] / 2
    even = np.abs(so_far - half) <= EVEN * half
    at = np.argmax(even | (so_far > half), axis=1)
    rows, after = np.arange(len(values)), np.minimum(at + 1, values.shape[1] - 1)
    middle: Floats = np.where(even[rows, at], (values[rows, at] + values[rows, after]) / 2, values[rows, at])
    return middle


def _voices(whole: Floats, weights: Floats) -> Ints:
    """Of each row, as `voices.effective`."""
    number: Ints = (whole**2 / np.cumsum(weights * weights, axis=1)[:, -1] + 0.5).astype(np.int64)
    return number


def _summed_up(group: Ints, value: Floats, voice: Ints, lower: Bools) -> tuple[Ints, Floats, Floats]:
    """Of each group: as how many voices it counts, what a quarter has reached, and the spread around it."""
    number = np.zeros(len(lower), np.int64)
    reached, spread = np.zeros(len(lower)), np.zeros(len(lower))
    for groups, values, weights in _side_by_side(group, value, voice, len(lower)):
        rows = np.arange(len(groups))
        rising = lower[groups][:, None]
        best_first = np.where(rising, weights, -weights), np.where(rising, values, -values)
        order = np.lexsort(best_first, axis=1)  # NaN, which fills rows up, comes last
        values, weights = (np.take_along_axis(each, order, axis=1) for each in (values, weights))
        so_far = np.cumsum(weights, axis=1)
        whole = so_far[:, -1:]
        number[groups] = _voices(whole[:, 0], weights)
        top = [np.argmax(so_far > share * whole * (1 + EVEN), axis=1) for share in (1 / 4, 1 / 2)]
        reached[groups] = at = values[rows, top[0]]
        half = np.maximum(1, top[1])
        inside = np.arange(values.shape[1]) < half[:, None]
        away = np.where(inside, np.abs(values - at[:, None]), np.inf)
        spread[groups] = _low_middle(away, np.where(inside, weights, 0.0), so_far[rows, half - 1] / 2)
    return number, reached, spread


def _low_middle(values: Floats, weights: Floats, half: Floats) -> Floats:
    """Of each row the weighted median; if just half of the weight lies below, the value there."""
    order = np.lexsort((weights, values), axis=1)
    so_far = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    place = np.argmax(so_far >= (half * (1 - EVEN))[:, None], axis=1)
    middle: Floats = np.take_along_axis(values, order, axis=1)[np.arange(len(values)), place]
    return middle


def _side_by_side(
    group: Ints, value: Floats, voice: Ints, groups: int
) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Groups of about the same size: which, and of each in its row the values and what each weighs."""
    _, owner, owned = np.unique(
        group * (int(voice.max(initial=0)) + 1) + voice, return_inverse=True, return_counts=True
    )
    weight = 1 / owned[owner]
    order = np.argsort(group, kind="stable")
    size = np.bincount(group, minlength=groups)
    start = np.cumsum(size) - size
    classes = np.frexp(size)[1]  # 1; 2 and 3; 4 to 7 ...
    for each in np.unique(classes[size > 0]):
        chosen = np.flatnonzero((classes == each) & (size > 0))
        column = np.arange(int(size[chosen].max()))
        inside = column < size[chosen][:, None]
        at = order[np.where(inside, start[chosen][:, None] + column, 0)]
        yield chosen, np.where(inside, value[at], np.nan), np.where(inside, weight[at], 0.0)
