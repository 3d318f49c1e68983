"""Which figures does the page show of the sequences? Tables (a) and (b), chance, rates, and what helps.

Everything is computed from records; nothing is trained here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

from benchmarks.training.loop import tail
from benchmarks.training.measures import Band, Outcome, band, best_rate, equal_budget, outcome, twins
from benchmarks.training.records import Record, records
from benchmarks.training.sequence import CONSTANT, COSINE, SCREENED
from benchmarks.training.workloads import LONG, WORKLOADS

TITLES = {
    "keeper": "ModelKeeper",
    "calibrated": "ModelKeeper, calibrated",
    "paper": "paper's operators",
    "copy": "name-and-shape copy",
}
FEW = 6  # pairs of twins: with fewer, chance is taken from all workloads on pictures
Key = tuple[int, int]  # seed and job


class Results:
    """The records of one workload, at the rates that were chosen."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.title = name, (LONG if name == LONG.name else WORKLOADS[name]).title
        workload = LONG if name == LONG.name else WORKLOADS[name]
        self.rates, self.budget, self.count = workload.rates, workload.budget, workload.count
        found = [each for path in sorted(folder.glob(f"{name}-*-*.jsonl")) for each in records(path)]
        scratch = [each for each in found if each["arm"] == "scratch"]
        first = [e for e in scratch if e["seed"] == 0 and e["schedule"] == CONSTANT and not e["repeat"]]
        self.trainings = len(found)
        self.rate = best_rate([each for each in first if each["job"] < SCREENED], self.rates)
        screened = [each for each in found if each["arm"] == "screening"]
        self.screened = sorted({each["job"] for each in screened})
        base = [each for each in first if each["rate"] == self.rate]
        self.warm_rate = best_rate(screened, self.rates, base)
        self.scratch = [each for each in scratch if each["rate"] == self.rate]
        self.arms = [each for each in found if each["arm"] in TITLES]
        self.codes = {each["code"] for each in found if "code" in each}

    def cold(self, schedule: str, length: float = 1.0) -> dict[Key, Record]:
        """The trainings from scratch that others are judged by."""
        asked = (schedule, length, 0)
        return {
            key(each): each
            for each in self.scratch
            if (each["schedule"], each["length"], each["repeat"]) == asked
        }

    def of(self, arm: str, schedule: str = CONSTANT) -> dict[Key, Record]:
        """The trainings of an arm."""
        return {key(e): e for e in self.arms if e["arm"] == arm and e["schedule"] == schedule}

    def outcomes(self, arm: str) -> list[Outcome]:
        """With a constant rate, each job against the same from scratch."""
        cold = self.cold(CONSTANT)
        return [outcome(each, cold[which]) for which, each in sorted(self.of(arm).items())]

    def pairs(self, schedule: str) -> list[tuple[Record, Record]]:
        """Trainings from scratch of one network, one judged by another."""
        return twins([e for e in self.scratch if e["schedule"] == schedule and e["length"] == 1])


def key(record: Record) -> Key:
    """Which job of the workload it is."""
    return record["seed"], record["job"]


def bands(results: Iterable[Results], schedule: str) -> dict[str, Band]:
    """What chance does, by workload."""
    pairs = {each.name: each.pairs(schedule) for each in results}
    pooled = [pair for name, these in pairs.items() if name != "language" for pair in these]
    return {name: band(these if len(these) >= FEW else pooled) for name, these in pairs.items()}


# -- (a): a constant rate -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Of several jobs with one arm, against the same from scratch."""

    jobs: int
    cold: int
    never: int
    steps: float
    seconds: float
    median: float
    worst: float
    slower: int  # outside of the band
    gain: float | None  # points
    error: float


def summary(these: Sequence[Outcome], chance: Mapping[str, Band], share: float = 0.99) -> Summary:
    """Sum it up."""
    speedups = [each.speedup(share) for each in these]
    gains = [100 * each.gain for each in these if each.gain is not None]
    return Summary(
        jobs=len(these),
        cold=sum(not each.record["parents"] for each in these),
        never=sum(not each.reached[share] for each in these),
        steps=sum(e.cold_steps[share] for e in these) / sum(e.steps[share] for e in these),
        seconds=sum(e.cold_seconds[share] for e in these) / sum(e.seconds[share] for e in these),
        median=median(speedups),
        worst=min(speedups),
        slower=sum(is_slower(each, chance) for each in these),
        gain=mean(gains) if len(gains) == len(these) else None,
        error=stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
    )


def is_slower(one: Outcome, chance: Mapping[str, Band]) -> bool:
    """Than from scratch, by more than chance."""
    return bool(one.record["parents"]) and one.speedup() < chance[one.scratch["workload"]].slower


def constant_table(results: Sequence[Results], share: float = 0.99) -> str:
    """The paper's table 1."""
    chance = bands(results, CONSTANT)
    lines = [
        "| workload | arm | jobs (cold) | all steps | all seconds | median | worst | never "
        "| slower, outside of the band | at the end, points |",
        "| --- | --- |" + " ---: |" * 8,
    ]
    every = {arm: [o for each in results for o in each.outcomes(arm)] for arm in TITLES}
    rows = [(each.title, {arm: each.outcomes(arm) for arm in TITLES}) for each in results]
    for title, by in [*rows, ("**all**", every)]:
        shared = {_job(each) for each in by["paper"]}
        same = [each for each in by["keeper"] if _job(each) in shared]
        for name, these in (
            (TITLES["keeper"], by["keeper"]),
            ("ModelKeeper, jobs of the next two", same),
            (TITLES["paper"], by["paper"]),
            (TITLES["copy"], by["copy"]),
        ):
            if these:
                lines.append(_row(title, name, summary(these, chance, share), share))
    lines.append(_chance_row(results, chance, share))
    return "\n".join(lines)


def _job(one: Outcome) -> tuple[str, int, int]:
    return one.record["workload"], *key(one.record)


def _row(workload: str, arm: str, found: Summary, share: float) -> str:
    gain = "" if found.gain is None else f"{found.gain:+.2f} ± {found.error:.2f}"
    slower = f"{found.slower} ({found.slower / found.jobs:.1%})" if share < 1 else ""
    return (
        f"| {workload} | {arm} | {found.jobs} ({found.cold}) | {found.steps:.2f} | {found.seconds:.2f} | "
        f"{found.median:.2f} | {found.worst:.2f} | {found.never} | {slower} | {gain} |"
    )


def _chance_row(results: Sequence[Results], chance: Mapping[str, Band], share: float) -> str:
    """From scratch with another seed, as if that were an arm: what chance alone would show."""
    pairs = [pair for each in results for pair in each.pairs(CONSTANT)]
    if not pairs:
        return ""
    these = [outcome({**one, "parents": [0]}, other) for one, other in pairs]
    return _row("all", "from scratch, another seed (chance)", summary(these, chance, share), share)


def band_table(results: Sequence[Results]) -> str:
    """How wide chance is."""
    constant, cosine = bands(results, CONSTANT), bands(results, COSINE)
    lines = [
        "| workload | pairs of trainings (a), (b) | speed-up that may be chance (a) | at the end, points (a) "
        "| at the end, points (b) |",
        "| --- |" + " ---: |" * 4,
    ]
    lines += [
        f"| {each.title} | {len(each.pairs(CONSTANT))}, {len(each.pairs(COSINE))} "
        f"| {constant[each.name].slower:.2f} to {1 / constant[each.name].slower:.2f} "
        f"| ±{100 * constant[each.name].below:.2f} | ±{100 * cosine[each.name].below:.2f} |"
        for each in results
    ]
    return "\n".join(lines)


# -- (b): what people do ------------------------------------------------------------------------------


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
            f"| {title} | {_counts([each])} | {each.share:.0%} | {_spread(each.points)} | {less} "
            f"| {each.enough:.0%} | {1 / each.share:.2f} | {at_equal_score([each]):.2f} | {each.below} |"
        )
    every = list(found.values())
    jobs = sum(len(each.pairs) for each in every)
    share = sum(each.share * each.budget * len(each.pairs) for each in every) / sum(
        each.budget * len(each.pairs) for each in every
    )
    below = sum(each.below for each in every)
    lines.append(
        f"| **all** | {_counts(every)} | {share:.0%} | {_spread([p for e in every for p in e.points])} | | "
        f"| {1 / share:.2f} | {at_equal_score(every):.2f} | {below} ({below / jobs:.1%}) |"
    )
    return "\n".join(lines)


def _counts(these: list[Annealed]) -> str:
    pairs = [pair for each in these for pair in each.pairs]
    return f"{len(pairs)} ({sum(not one['parents'] for one, _ in pairs)})"


def _spread(points: list[float]) -> str:
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
        lines.append(f"| {kind} | {len(mine)} | {_spread(mine)} | {min(mine):+.2f} |")
    return "\n".join(lines)


def start_of(record: Record) -> str:
    """In words."""
    if not record["parents"]:
        return "cold"
    several = f", {len(record['parents'])} parents" if len(record["parents"]) > 1 else ""
    return ("exact" if record["exact"] else "approximate") + several


# -- what helps ----------------------------------------------------------------------------------------


def kind_table(results: Sequence[Results]) -> str:
    """Where the steps are: by start."""
    chance = bands(results, CONSTANT)
    kinds: dict[str, list[Outcome]] = {}
    for each in results:
        for one in each.outcomes("keeper"):
            kinds.setdefault(start_of(one.record), []).append(one)
    lines = [
        "| start | jobs | steps from scratch | steps | fewer | score at the start / from scratch "
        "| slower, outside of the band | at the end, points |",
        "| --- |" + " ---: |" * 7,
    ]
    for kind, these in sorted(kinds.items()):
        found = summary(these, chance)
        start = ""
        if kind != "cold":
            start = f"{mean(o.record['scores'][0] / tail(o.scratch['scores']) for o in these):.0%}"
        gain = "" if found.gain is None else f"{found.gain:+.2f}"
        lines.append(
            f"| {kind} | {found.jobs} | {sum(o.cold_steps[0.99] for o in these):,} "
            f"| {sum(o.steps[0.99] for o in these):,} | {found.steps:.2f} | {start} | {found.slower} "
            f"| {gain} |"
        )
    return "\n".join(lines)


def calibrated_table(results: Sequence[Results]) -> str:
    """Plain against calibrated, where there is something to calibrate: the same jobs, the same parents."""
    lines = [
        "| workload | jobs | start, plain | start, calibrated | steps from scratch | plain | calibrated "
        "| sooner, as soon, later | seconds, plain | calibrated |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | :---: | ---: | ---: |",
    ]
    every: list[tuple[Outcome, Outcome]] = []
    rows = []
    for each in results:
        plain = {_job(one): one for one in each.outcomes("keeper")}
        pairs = [
            (plain[_job(one)], one)
            for one in each.outcomes("calibrated")
            if one.record["parents"] and not one.record["exact"]
        ]
        rows.append((each.title, pairs))
        every += pairs
    for title, pairs in [*rows, ("all", every)]:
        if not pairs:
            continue
        starts = [
            mean(p[n].record["scores"][0] / tail(p[n].scratch["scores"]) for p in pairs) for n in (0, 1)
        ]
        steps = [sum(p[n].steps[0.99] for p in pairs) for n in (0, 1)]
        seconds = [sum(p[n].seconds[0.99] for p in pairs) for n in (0, 1)]
        signs = [a.steps[0.99] - b.steps[0.99] for a, b in pairs]
        counts = [sum(s > 0 for s in signs), sum(s == 0 for s in signs), sum(s < 0 for s in signs)]
        lines.append(
            f"| {title} | {len(pairs)} | {starts[0]:.0%} | {starts[1]:.0%} "
            f"| {sum(a.cold_steps[0.99] for a, _ in pairs):,} | {steps[0]:,} | {steps[1]:,} "
            f"| {', '.join(map(str, counts))} | {seconds[0]:.0f} | {seconds[1]:.0f} |"
        )
    return "\n".join(lines)


def rate_table(results: Sequence[Results]) -> str:
    """Which learning rate was chosen, by which jobs."""
    lines = [
        "| workload | grid | from scratch, peak of (b) | after warm starts | jobs that chose it |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {each.title} | {', '.join(f'{rate:g}' for rate in each.rates)} | {each.rate:g} | "
        f"{each.warm_rate:g} | {', '.join(map(str, each.screened)) or 'none started warm'} |"
        for each in results
    ]
    return "\n".join(lines)


def extent_table(results: Sequence[Results]) -> str:
    """How much of the whole has been run."""
    lines = [
        "| workload | jobs a seed | from scratch (a), (b) | ModelKeeper (a), (b) | trainings |",
        "| --- | ---: | --- | --- | ---: |",
    ]
    for each in results:
        cells = [
            f"{_by_seed(each.cold(CONSTANT))}; {_by_seed(each.cold(COSINE))}",
            f"{_by_seed(each.of('keeper'))}; {_by_seed(each.of('keeper', COSINE))}",
        ]
        lines.append(f"| {each.title} | {each.count} | {' | '.join(cells)} | {each.trainings} |")
    return "\n".join(lines)


def _by_seed(these: Mapping[Key, Record]) -> str:
    seeds = sorted({seed for seed, _ in these})
    return ", ".join(str(sum(seed == each for each, _ in these)) for seed in seeds) or "–"
