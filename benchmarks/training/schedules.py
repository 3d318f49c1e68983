"""What is saved with schedules that decay, as most people train? Table (b) of the page.

ModelKeeper trains as long as it advises. Where that ends lower than from scratch, it has saved less than it
seems: it is held against the part of the schedule from scratch that ends as low.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from benchmarks.training.measures import Band, equal_budget
from benchmarks.training.records import Record
from benchmarks.training.sequence import COSINE
from benchmarks.training.tables import Results, bands, start_of


@dataclass(frozen=True)
class Annealed:
    """A workload with schedules that decay: ModelKeeper as advised, against all steps from scratch."""

    pairs: list[tuple[Record, Record]]
    budget: int
    shorter: dict[float, float]  # from scratch, relative to all steps
    below: int

    @property
    def share(self) -> float:
        """Of the steps from scratch that ModelKeeper took."""
        taken: int = sum(one["steps"][-1] for one, _ in self.pairs)
        return taken / (self.budget * len(self.pairs))

    @property
    def points(self) -> list[float]:
        """At the end, above scratch."""
        return [100 * (one["scores"][-1] - other["scores"][-1]) for one, other in self.pairs]

    @property
    def enough(self) -> float:
        """The share of the steps that gives the same score from scratch, on average."""
        return equal_budget(mean(a["scores"][-1] / b["scores"][-1] for a, b in self.pairs), self.shorter)


def annealed(each: Results, chance: Band) -> Annealed | None:
    """Of one workload, if it has been run."""
    cold = each.cold(COSINE)
    pairs = [(one, cold[which]) for which, one in sorted(each.of("keeper", COSINE).items())]
    if not pairs:
        return None
    shorter = {}
    for length in (0.5, 0.25):
        less = each.cold(COSINE, length)
        if less:
            shorter[length] = mean(e["scores"][-1] / cold[which]["scores"][-1] for which, e in less.items())
    below = sum(bool(a["parents"]) and a["scores"][-1] < b["scores"][-1] - chance.below for a, b in pairs)
    return Annealed(pairs, each.budget, shorter, below)


def all_annealed(results: Sequence[Results]) -> dict[str, Annealed]:
    """By title of the workload."""
    chance = bands(results, COSINE)
    found = {each.title: annealed(each, chance[each.name]) for each in results}
    return {title: each for title, each in found.items() if each is not None}


def at_equal_score(found: Iterable[Annealed]) -> float:
    """Steps from scratch that are enough for the score of ModelKeeper, over those it took."""
    found = list(found)
    cold = sum(each.enough * each.budget * len(each.pairs) for each in found)
    return cold / sum(each.share * each.budget * len(each.pairs) for each in found)


def cosine_table(results: Sequence[Results]) -> str:
    """Table (b)."""
    found = all_annealed(results)
    if not found:
        return ""
    lines = [
        "| workload | jobs (cold) | steps taken | at the end, points | from scratch with 1/2, 1/4 of them "
        "| enough from scratch for that score | fewer steps | **at equal score** "
        "| below, outside of the band |",
        "| --- |" + " ---: |" * 8,
    ]
    for title, each in found.items():
        less = ", ".join(f"{100 * (value - 1):+.1f} %" for value in each.shorter.values())
        lines.append(
            f"| {title} | {_counts([each])} | {each.share:.0%} | {spread(each.points)} | {less} "
            f"| {each.enough:.0%} | {1 / each.share:.2f} | {at_equal_score([each]):.2f} | {each.below} |"
        )
    every = list(found.values())
    jobs = sum(len(each.pairs) for each in every)
    share = sum(each.share * each.budget * len(each.pairs) for each in every) / sum(
        each.budget * len(each.pairs) for each in every
    )
    below = sum(each.below for each in every)
    lines.append(
        f"| **all** | {_counts(every)} | {share:.0%} | {spread([p for e in every for p in e.points])} | | "
        f"| {1 / share:.2f} | {at_equal_score(every):.2f} | {below} ({below / jobs:.1%}) |"
    )
    return "\n".join(lines)


def _counts(these: list[Annealed]) -> str:
    pairs = [pair for each in these for pair in each.pairs]
    return f"{len(pairs)} ({sum(not one['parents'] for one, _ in pairs)})"


def spread(points: list[float]) -> str:
    """Mean, and its error."""
    error = stdev(points) / math.sqrt(len(points)) if len(points) > 1 else 0.0
    return f"{mean(points):+.2f} ± {error:.2f}"


def advice_table(results: Sequence[Results]) -> str:
    """What followed the advice, by what was advised and how the start was."""
    by: dict[tuple[str, str], list[float]] = {}
    for title, each in all_annealed(results).items():
        for (one, _), points in zip(each.pairs, each.points, strict=True):
            if one["parents"]:
                kind = f"{start_of(one)}, {one['advised']:g} of the steps"
                by.setdefault((kind, title), []).append(points)
    kinds = sorted({kind for kind, _ in by})
    lines = ["| start, advice | jobs | points at the end | worst |", "| --- |" + " ---: |" * 3]
    for kind in kinds:
        mine = [p for (other, _), these in by.items() if other == kind for p in these]
        lines.append(f"| {kind} | {len(mine)} | {spread(mine)} | {min(mine):+.2f} |")
    return "\n".join(lines)
