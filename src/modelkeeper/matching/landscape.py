"""How does a zoo look from above? Every architecture as a point of a plane: near one another where alike.

    drawn = survey(index.snapshot)
    drawn.points[drawn.place("<fingerprint>")]     in units of distance, which is one minus the similarity
    drawn.stress, drawn.correlation                how far what is seen can be trusted

Some architectures are landmarks, chosen one after another: the next is the one farthest from all before.
Every architecture is aligned with every landmark, exactly; where it lies follows from that (see `plane`).
Landmarks are chosen among a sample that depends on fingerprints only, so that in a large zoo what comes and
goes seldom changes them, and nothing else on the map moves.

Laws: a landscape depends on which architectures there are, not on their order, how many models each has, or
what was drawn `before`, which only saves alignments. Each architecture is there once.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.lasting import cached_property
from modelkeeper.matching.plane import Floats, apart, laid_out, placed, rank_correlation, stress
from modelkeeper.matching.search import Part, Snapshot
from modelkeeper.matching.similarity import mutual_distances

MOST = (
    20_000  # architectures on a map; of more, those whose fingerprints come first, which is as good as by lot
)
LANDMARKS = 64
MOST_ALIGNMENTS = 640_000  # of a map: some 0.2 ms each; with more architectures there are fewer landmarks
FEWEST = 3  # landmarks that make a plane
SAMPLE = 1024  # architectures that landmarks are chosen among
LOT = 256  # alignments between two looks at the clock
FAMILIES = 8  # at most
ALIKE = 0.2  # how far the members of a family are from its middle, in the mean
PAIRS = 100_000  # that the map is judged by


def _never() -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Landscape:
    """Architectures in a plane, in the order of their fingerprints."""

    fingerprints: tuple[str, ...]
    points: Floats
    families: NDArray[np.int16]  # of each: the number of its family, the largest first
    landmarks: tuple[str, ...]  # in the order in which they were chosen
    far: Floats  # how far each architecture is from each landmark
    stress: float  # of the distances between landmarks and all others
    correlation: float  # of the ranks of the same
    total: int  # how many architectures there are; above MOST some have no point

    @cached_property
    def mark(self) -> str:
        """What tells this map from others: as long as it is the same, no point moves."""
        return hashlib.sha256(" ".join(self.landmarks).encode()).hexdigest()[:8]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {fingerprint: place for place, fingerprint in enumerate(self.fingerprints)}

    def place(self, fingerprint: str) -> int:
        """Which point an architecture is; -1: none."""
        return self._places.get(fingerprint, -1)

    def within(self, left: float, bottom: float, right: float, top: float) -> tuple[str, ...]:
        """The fingerprints of what lies in a part of the plane, its edges included."""
        x, y = self.points.T
        inside = (x >= left) & (x <= right) & (y >= bottom) & (y <= top)
        return tuple(self.fingerprints[place] for place in np.flatnonzero(inside).tolist())


def survey(
    snapshot: Snapshot,
    before: Landscape | None = None,
    *,
    threads: int = 1,
    stop: Callable[[], bool] = _never,
    late: Callable[[], bool] = _never,
) -> Landscape | None:
    """Draw the architectures of a snapshot; None if `stop` said so on the way, or nothing was in time.

    Args:
        snapshot: What the index holds.
        before: A landscape of the same index at an earlier time: what it knows is not aligned again.
        threads: How many threads to align on.
        stop: Asked now and then: does nobody want it any more?
        late: Asked between landmarks: is it time to be content with those there are?
    """
    ground = _Ground(snapshot, before, threads, stop)
    most = min(LANDMARKS, 2 ** int(math.log2(max(MOST_ALIGNMENTS // max(1, len(ground.chosen)), 16))))
    sample = _sample(len(ground.chosen), ground.chosen)
    near = np.full(len(sample), np.inf)
    landmarks: list[int] = []
    columns: list[Floats] = []
    while len(landmarks) < most and len(near) and near.max() > 0:
        next_one = int(sample[int(near.argmax())])
        column = None if columns and late() else ground.measured(next_one)
        if column is None:
            break
        landmarks.append(next_one)
        columns.append(column)
        near = np.minimum(near, column[sample])
    if stop() or (len(landmarks) < min(FEWEST, most) and len(near) and near.max() > 0):
        return None
    far = np.stack(columns, axis=1) if columns else np.zeros((0, 0))
    return _drawn(ground, landmarks, far)


def _drawn(ground: "_Ground", landmarks: list[int], far: Floats) -> Landscape:
    """The landscape of these distances from landmarks."""
    between = far[landmarks]
    between = (between + between.T) / 2
    laid = laid_out(between)
    points = placed(laid, between, far)
    step = max(1, far.size // PAIRS)  # pairs by lot: a thing and a landmark, as far as they are not the same
    other = (np.arange(len(far))[:, None] != np.array(landmarks, np.int64)[None, :]).reshape(-1)
    judged = np.flatnonzero(other)[::step]
    real = far.reshape(-1)[judged]
    seen = apart(points, laid).reshape(-1)[judged]
    return Landscape(
        fingerprints=tuple(ground.chosen),
        points=points,
        families=_families(between, far),
        landmarks=tuple(ground.chosen[landmark] for landmark in landmarks),
        far=far,
        stress=stress(real, seen),
        correlation=rank_correlation(real, seen),
        total=ground.total,
    )


def _sample(count: int, fingerprints: list[str]) -> NDArray[np.int64]:
    """Which of the architectures may become landmarks: all, or those whose fingerprints begin with zeros."""
    halvings = max(0, math.ceil(math.log2(count / SAMPLE))) if count else 0
    edge = 2 ** (128 - halvings)
    some = [place for place, text in enumerate(fingerprints) if int(text, 16) < edge]
    return np.array(some if len(some) >= FEWEST else range(count), np.int64)


def _families(between: Floats, far: Floats) -> NDArray[np.int16]:
    """For each architecture the number of the medoid it is nearest to; as few as describe the zoo well."""
    nearest = np.zeros(len(far), np.int64)
    for count in range(1, min(FAMILIES, len(between)) + 1):
        medoids = _native.medoids(between, count) if count < len(between) else np.arange(count)
        distances = far[:, np.sort(medoids)]
        nearest = distances.argmin(axis=1)
        if float(distances.min(axis=1).mean()) <= ALIKE:
            break
    sizes = np.bincount(nearest, minlength=1)
    numbers = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
    return numbers[nearest].astype(np.int16)


class _Ground:
    """The architectures to be drawn, and how far each is from one of them."""

    def __init__(
        self, snapshot: Snapshot, before: Landscape | None, threads: int, stop: Callable[[], bool]
    ) -> None:
        self._threads, self._stop = threads, stop
        self._where: dict[str, tuple[Part, int]] = {}
        for part in snapshot.parts:
            for kind in np.unique(part.kinds[part.alive[: part.rows]]).tolist():
                self._where.setdefault(
                    part.segment.columns["fingerprints"][kind].tobytes().hex(), (part, kind)
                )
        self.total = len(self._where)
        self.chosen = sorted(self._where)[:MOST]
        self._parts: list[tuple[Part, NDArray[np.int64], NDArray[np.int32]]] = []
        for part in snapshot.parts:
            here = [place for place, text in enumerate(self.chosen) if self._where[text][0] is part]
            kinds = np.array([self._where[self.chosen[place]][1] for place in here], np.int32)
            self._parts.append((part, np.array(here, np.int64), kinds))
        self._before = before
        places = [-1 if before is None else before.place(text) for text in self.chosen]
        self._known = np.array(places, np.int64)  # which point of the landscape before each one was

    def measured(self, landmark: int) -> Floats | None:
        """How far each architecture is from a landmark; None: it was stopped."""
        fingerprint, before = self.chosen[landmark], self._before
        column = np.full(len(self.chosen), np.nan)
        if before is not None and fingerprint in before.landmarks:
            old = before.far[:, before.landmarks.index(fingerprint)]
            column[self._known >= 0] = old[self._known[self._known >= 0]]
        column[landmark] = 0.0
        home, number = self._where[fingerprint]
        model = home.segment.prepared(number)
        for part, places, kinds in self._parts:
            open_ones = np.flatnonzero(np.isnan(column[places]))
            scan = part.scan(model, self._threads) if len(open_ones) else None
            for at in range(0, len(open_ones), LOT):
                if scan is None or self._stop():
                    return None
                lot = open_ones[at : at + LOT]
                scores = scan.scores(kinds[lot])
                column[places[lot]] = mutual_distances(scores, part.totals[kinds[lot]], model.total)
        return column
