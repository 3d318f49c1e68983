"""Which figures does the page show of the sequences? Table (a), chance, rates, and what helps.

Everything is computed from records; nothing is trained here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

from benchmarks.training.loop import tail
from benchmarks.training.measures import Band, Outcome, band, best_rate, outcome, twins
from benchmarks.training.records import Record, records
from benchmarks.training.sequence import CONSTANT, COSINE, SCREENED
from benchmarks.training.workloads import LONG, WORKLOADS

TITLES = {
    "keeper": "ModelKeeper",
    "one": "ModelKeeper, one parent",
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


def bands(results: Sequence[Results], schedule: str) -> dict[str, Band]:
    """What chance does, by workload. With one seed, only constant rates tell."""
    pairs = {each.name: each.pairs(schedule) for each in results}
    if schedule == COSINE and not any(pairs.values()):
        return bands(results, CONSTANT)
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


# -- what helps ----------------------------------------------------------------------------------------


def start_of(record: Record) -> str:
    """In words."""
    if not record["parents"]:
        return "cold"
    several = f", {len(record['parents'])} parents" if len(record["parents"]) > 1 else ""
    return ("exact" if record["exact"] else "approximate") + several


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
    """Plain against calibrated, where there is something to calibrate: the same jobs, the same zoo."""
    return _against(results, "calibrated", lambda plain: bool(plain["parents"]) and not plain["exact"])


def two_table(results: Sequence[Results]) -> str:
    """Two parents against one, where two lend by default: the same jobs, the same zoo."""
    found = _against(results, "one", lambda plain: len(plain["parents"]) > 1)
    nobody = "Two lent to none: there was no room for both, or one alone was expected to bring more."
    return found or nobody


def _against(results: Sequence[Results], arm: str, chosen: Callable[[Record], bool]) -> str:
    """ModelKeeper as it is against another arm of it, on the jobs where that differs."""
    name = "one parent" if arm == "one" else arm
    lines = [
        f"| workload | jobs | start, default | start, {name} | steps from scratch | default | {name} "
        f"| sooner, as soon, later | seconds, default | {name} |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | :---: | ---: | ---: |",
    ]
    every: list[tuple[Outcome, Outcome]] = []
    rows = []
    for each in results:
        plain = {_job(one): one for one in each.outcomes("keeper")}
        pairs = [(plain[_job(one)], one) for one in each.outcomes(arm)]
        pairs = [pair for pair in pairs if chosen(pair[0].record)]
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
    return "\n".join(lines) if every else ""


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
