"""What may somebody see of the map of a zoo? Every architecture that a visible model has, as one point.

    found = surveyed(zoo, before)             all of the zoo, for nobody's eyes: as long as alignments take
    chart(zoo, found, viewer)                 what this viewer may see of it, in columns: takes milliseconds

Positions come from all architectures of the zoo, also from those that a viewer may not see; of these nothing
else is told, neither a point nor a count. Which models may be seen, and are still there, is looked up each
time, so that a map drawn a while ago shows nothing that is hidden or gone by now.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from msgspec import Struct
from numpy.typing import NDArray

from modelkeeper.matching.landscape import Landscape, survey
from modelkeeper.matching.search import Snapshot
from modelkeeper.zoo.database.rows import batches
from modelkeeper.zoo.database.schema import models, parents
from modelkeeper.zoo.records import ACTIVE, Filter, Viewer

if TYPE_CHECKING:
    from modelkeeper.zoo.index.columns import Columns
    from modelkeeper.zoo.zoo_reader import ZooReader

UNIT = 4000  # of coordinates: so much is a distance of 1, of architectures that share nothing
MOST_LINES = 100_000  # of descent that are read, the newest first
MOST_DRAWN = 15_000  # of these that are told
MOST_WORDS = 200  # tasks and the like that are told apart; anybody may invent one
SHORT = 32  # bytes of a name
READY, DRAWING, LATE, FAILED, ELSEWHERE = "ready", "drawing", "late", "failed", "elsewhere"

Keys = NDArray[np.int64]
_STEM = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, eq=False)
class Survey:
    """The map of a whole zoo at one time."""

    landscape: Landscape
    clock: int  # of the catalog
    keys: Keys  # of models, and ...
    places: Keys  # ... which point each has
    lines: Keys  # keys of a child and a parent


class Chart(Struct, frozen=True, kw_only=True):
    """The map as somebody may see it: lists of which the n-th entries belong to one architecture."""

    state: str = READY  # else: drawing, late (it takes too long), failed, elsewhere (the index is in shards)
    mark: str = ""  # of the map: as long as it is the same, no point moves
    unit: int = UNIT  # of coordinates: a distance of 1 minus the similarity
    x: list[int] = []
    y: list[int] = []
    id: list[str] = []  # of its best model
    name: list[str] = []  # of that, cut short
    models: list[int] = []  # how many have it
    rank: list[int] = []  # of the best among its peers (task, data and metric): 0 to 100, the best; -1: none
    value: list[float | None] = []  # of the metric
    metric: list[int] = []  # a place in metrics; -1: another
    task: list[int] = []
    data: list[int] = []
    framework: list[int] = []
    family: list[int] = []
    metrics: list[str] = []
    tasks: list[str] = []
    data_sets: list[str] = []
    frameworks: list[str] = []
    families: list[str] = []  # by names that many of their models begin with
    lines: list[tuple[int, int]] = []  # places of architectures of which the first descends from the second
    stress: float = 0.0  # how much of the distances the map gets wrong
    correlation: float = 1.0  # of the ranks of distances on the map and of real ones
    cut: bool = False  # are there more architectures than fit on it, or more lines?


def surveyed(
    zoo: "ZooReader",
    before: Survey | None = None,
    *,
    stop: Callable[[], bool],
    late: Callable[[], bool],
) -> Survey | None:
    """Draw the zoo as it is now; the one `before` if nothing has changed, None as `landscape.survey`."""
    clock = zoo.catalog.clock()
    if before is not None and before.clock == clock:
        return before
    snapshot = zoo.follower.followed().index.snapshot
    drawn = survey(snapshot, before.landscape if before else None, stop=stop, late=late)
    if drawn is None:
        return None
    chosen = sa.select(parents.c.key, models.c.key).join(models, models.c.id == parents.c.parent)
    with zoo.catalog.database.reading() as connection:
        rows = connection.execute(chosen.order_by(parents.c.key.desc()).limit(MOST_LINES)).all()
    lines = np.array([tuple(row) for row in rows], np.int64).reshape(-1, 2)
    return Survey(drawn, clock, *_models(snapshot, drawn), lines)


def _models(snapshot: Snapshot, drawn: Landscape) -> tuple[Keys, Keys]:
    """The keys of models, and the point of each."""
    keys, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in snapshot.parts:
        alive = part.alive[: part.rows]
        kinds = part.kinds[alive]
        of_kind = np.full(part.architectures, -1, np.int64)
        for kind in np.unique(kinds).tolist():
            of_kind[kind] = drawn.place(part.segment.columns["fingerprints"][kind].tobytes().hex())
        keys.append(part.keys[alive])
        places.append(of_kind[kinds])
    whose, where = np.concatenate(keys), np.concatenate(places)
    return whose[where >= 0], where[where >= 0]


def chart(zoo: "ZooReader", found: Survey, viewer: Viewer | None) -> Chart:
    """What a viewer may see of a survey."""
    columns, drawn = zoo.follower.followed().columns, found.landscape
    mask = columns.mask(Filter(viewer=viewer, states=(ACTIVE,)))
    seen = mask[np.minimum(found.keys, len(mask) - 1)] & (found.keys < len(mask))
    keys, places = found.keys[seen], found.places[seen]
    ranks = _ranks(columns, keys)
    order = np.lexsort((keys, ranks, places))  # of each place the best last, of equals the newest
    ends = np.flatnonzero(np.diff(places[order], append=-1))
    best, counts = order[ends], np.diff(ends, prepend=-1)
    shown, points = keys[best], np.rint(drawn.points[places[best]] * UNIT).astype(np.int64)
    facts = _facts(zoo, shown.tolist())
    value, *numbered = columns.take(shown, "value", "metric", "task", "data")
    words = [_words([columns.text(number) for number in numbers.tolist()]) for numbers in numbered]
    frameworks = _words([fact[2] for fact in facts])
    family = drawn.families[places[best]].tolist()
    names = _names_of_families(family, [fact[1] for fact in facts])
    lines, cut = _lines(found, keys, places, places[best])
    return Chart(
        mark=drawn.mark,
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        id=[fact[0] for fact in facts],
        name=[_short(fact[1]) for fact in facts],
        models=counts.tolist(),
        rank=ranks[best].tolist(),
        value=[None if number != number else float(f"{number:.4g}") for number in value.tolist()],
        metric=words[0][0],
        task=words[1][0],
        data=words[2][0],
        framework=frameworks[0],
        family=[list(names).index(number) for number in family],
        metrics=words[0][1],
        tasks=words[1][1],
        data_sets=words[2][1],
        frameworks=frameworks[1],
        families=list(names.values()),
        lines=lines,
        stress=round(drawn.stress, 3),
        correlation=round(drawn.correlation, 3),
        cut=cut or drawn.total > len(drawn.fingerprints),
    )


def _ranks(columns: "Columns", keys: Keys) -> Keys:
    """How many of 100 peers each model is better than; -1: it has no score, or nobody to be compared with."""
    task, data, metric, lower, value = columns.take(
        keys, "task", "data", "metric", "lower_is_better", "value"
    )
    ranks = np.full(len(keys), -1, np.int64)
    scored = np.flatnonzero(~np.isnan(value))
    peers = np.stack([task, data, metric, lower.astype(np.int32)], axis=1)[scored]
    _, group = np.unique(peers, axis=0, return_inverse=True)
    good = np.where(lower, -value, value)[scored]
    group = group.reshape(-1)
    order = np.lexsort((good, group))
    sizes = np.bincount(group, minlength=1)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(scored))
    place[order] = np.arange(len(scored))
    _, same, count = np.unique(np.stack([group, good]), axis=1, return_inverse=True, return_counts=True)
    same = same.reshape(-1)
    mean = np.bincount(same, weights=place, minlength=1)[same] / count[same] if len(same) else place
    others = sizes[group] - 1 if len(group) else group
    share = np.rint(100 * (mean - starts[group]) / np.maximum(others, 1)) if len(group) else mean
    ranks[scored] = np.where(others > 0, share, -1)
    return ranks


def _facts(zoo: "ZooReader", keys: list[int]) -> list[tuple[str, str, str]]:
    """Id, name and framework of models by their keys."""
    chosen = sa.select(models.c.key, models.c.id, models.c.name, models.c.framework)
    found: dict[int, tuple[str, str, str]] = {}
    with zoo.catalog.database.reading() as connection:
        for batch in batches(keys):
            for key, *fact in connection.execute(chosen.where(models.c.key.in_(batch))):
                found[key] = (str(fact[0]), str(fact[1]), str(fact[2]))
    return [found.get(key, ("", "", "")) for key in keys]


def _words(texts: Sequence[str]) -> tuple[list[int], list[str]]:
    """Texts as places in a list of them, the most frequent first; -1: one of the others."""
    ordered = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))
    kept = {text: place for place, (text, _) in enumerate(ordered[:MOST_WORDS])}
    return [kept.get(text, -1) for text in texts], [_short(text) for text in kept]


def _names_of_families(family: list[int], names: list[str]) -> dict[int, str]:
    """What to call each family, the largest first: as most of its members' names begin."""
    stems: dict[int, Counter[str]] = {}
    for number, name in zip(family, names, strict=True):
        stem = _STEM.search(name)
        stems.setdefault(number, Counter())[_short(stem[0].lower(), 20) if stem else ""] += 1
    called: dict[int, str] = {}
    for number, counted in sorted(stems.items(), key=lambda item: (-item[1].total(), item[0])):
        common = min(counted.items(), key=lambda item: (-item[1], item[0]))[0] or "nameless"
        again = sum(name.rstrip("0123456789").rstrip() == common for name in called.values())
        called[number] = f"{common} {again + 1}" if again else common
    return called


def _lines(found: Survey, keys: Keys, places: Keys, shown: Keys) -> tuple[list[tuple[int, int]], bool]:
    """Which points descend from which, as far as models of both may be seen; are there more?"""
    if not len(keys) or not len(found.lines):
        return [], False
    point = np.full(int(max(keys.max(), found.lines.max())) + 1, -1, np.int64)
    point[keys] = np.searchsorted(shown, places)
    ends = point[found.lines]
    ends = ends[(ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])]
    _, first = np.unique(ends, axis=0, return_index=True)
    kept: list[Any] = ends[np.sort(first)[:MOST_DRAWN]].tolist()
    more = len(first) > MOST_DRAWN or len(found.lines) >= MOST_LINES
    return [(child, parent) for child, parent in kept], more


def _short(text: str, most: int = SHORT) -> str:
    """A text of at most so many bytes."""
    if len(text.encode()) <= most:
        return text
    return text.encode()[: most - 3].decode(errors="ignore") + "…"
