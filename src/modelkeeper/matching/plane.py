"""Where do things lie in a plane, of which only distances are known?

    ground = laid_out(distances)              landmarks: classical scaling, then stress is lowered by steps
    placed(ground, distances, far)            others, by their distances from the landmarks (landmark MDS)
    stress(...), rank_correlation(...)        how far what is seen can be trusted

Laws: the same distances give the same points. Things equally far from all landmarks lie at the same place.
Distances that points of a plane have are those of the points that come out. No step raises the stress. The
plane is turned so that it is widest from left to right, then mirrored so that more stands out to the right
and to the top: a picture made anew is not upside down.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 200  # of landmarks
FEWER_STEPS = 40  # of all others
LOT = 1024  # of these at a time, which bounds memory
_NOTHING = 1e-12


def laid_out(distances: Floats) -> Floats:
    """Points of a plane about as far from one another as the distances say, which are symmetric."""
    points = majorised(_classical(distances), distances)
    return _turned(points - points.mean(axis=0)) if len(points) else points


def _classical(distances: Floats) -> Floats:
    """The two directions in which what the distances say varies most; 0 where there is none."""
    count = len(distances)
    points = np.zeros((count, 2))
    if count < 2:
        return points
    squares = distances**2
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means[:, None] - means[None, :] + squares.mean())
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    for axis in range(2):
        value = float(values[-1 - axis])
        if value > _NOTHING * max(1.0, float(values[-1])):
            points[:, axis] = np.sqrt(value) * vectors[:, -1 - axis]
    return points


def majorised(points: Floats, distances: Floats, steps: int = STEPS) -> Floats:
    """The same points moved so that their distances are nearer to what they should be (SMACOF)."""
    for _ in range(steps if len(points) > 2 else 0):
        ratios = _ratios(distances, apart(points, points))
        moved = (ratios.sum(axis=1)[:, None] * points - ratios @ points) / len(points)
        still = float(np.abs(moved - points).max()) < 1e-9
        points = moved
        if still:
            break
    return points


def placed(ground: Floats, distances: Floats, far: Floats) -> Floats:
    """Where others lie beside landmarks on the `ground`: `far[i]` are the distances of thing i from each."""
    if not len(ground):
        return np.zeros((len(far), 2))
    middle = ground.mean(axis=0)
    inverse = np.linalg.pinv(ground - middle, rcond=1e-9)
    means = (distances**2).mean(axis=0)
    found = [np.zeros((0, 2))]
    for at in range(0, len(far), LOT):
        lot = far[at : at + LOT].astype(np.float64)
        points = middle - 0.5 * (lot**2 - means) @ inverse.T
        found.append(_pulled(points, ground, lot))
    return np.concatenate(found)


def _pulled(points: Floats, ground: Floats, far: Floats) -> Floats:
    """Points moved, each by itself, to where their distances from the ground are nearest to what they are."""
    for _ in range(FEWER_STEPS):
        ratios = _ratios(far, apart(points, ground))
        moved = ground.mean(axis=0) + (ratios.sum(axis=1)[:, None] * points - ratios @ ground) / len(ground)
        still = not len(points) or float(np.abs(moved - points).max()) < 1e-9
        points = moved
        if still:
            break
    return points


def _ratios(wanted: Floats, real: Floats) -> Floats:
    """By how much each distance is too small; where two points are one it says nothing."""
    return np.where(real > _NOTHING, wanted / np.maximum(real, _NOTHING), 0.0)


def _turned(points: Floats) -> Floats:
    """The same points around 0, turned and mirrored as the laws say."""
    _, vectors = np.linalg.eigh(points.T @ points)
    points = points @ vectors[:, ::-1]
    for axis in range(2):
        column = points[:, axis]
        lean = float((column**3).sum())
        if abs(lean) <= 1e-9 * float(
            (np.abs(column) ** 3).sum()
        ):  # it leans nowhere: the first far one decides
            size = np.abs(column)
            lean = float(column[np.argmax(size >= 0.999 * size.max())])
        if lean < 0:
            points[:, axis] = -column
    return points


def apart(points: Floats, others: Floats) -> Floats:
    """How far each point is from each of others."""
    difference = points[:, None, :] - others[None, :, :]
    distances: Floats = np.sqrt(np.einsum("ijk,ijk->ij", difference, difference))
    return distances


def stress(real: Floats, seen: Floats) -> float:
    """How much of the distances the picture gets wrong: 0 is none of it (Kruskal's stress-1)."""
    whole = float((real**2).sum())
    return float(np.sqrt(((real - seen) ** 2).sum() / whole)) if whole else 0.0


def rank_correlation(real: Floats, seen: Floats) -> float:
    """Does what is farther look farther? 1: always; 0: one says nothing of the other (Spearman)."""
    if len(real) < 2:
        return 1.0
    ranks = [_ranks(values) for values in (real, seen)]
    spread = [float(values.std()) for values in ranks]
    if not all(spread):
        return 1.0
    mean = float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean())
    return mean / (spread[0] * spread[1])


def _ranks(values: Floats) -> Floats:
    """The place of each value among all; equal ones share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts + 1) / 2)[which.reshape(-1)].astype(np.float64)
    return ranks
