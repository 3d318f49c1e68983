"""What does a zoo give when it is no longer empty, and was the expected benefit right?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean

from benchmarks.training.measures import Outcome
from benchmarks.training.tables import Results

WINDOW = 20
BINS = 5


def windows(these: Sequence[Outcome]) -> list[tuple[int, Sequence[Outcome]]]:
    """Jobs in the order of arrival, twenty at a time, with how many came before."""
    return [(first, these[first : first + WINDOW]) for first in range(0, len(these), WINDOW)]


def speedup(these: Sequence[Outcome]) -> float:
    """Steps from scratch over steps taken, in sums."""
    return sum(each.cold_steps[0.99] for each in these) / sum(each.steps[0.99] for each in these)


def long_table(long: Results) -> str:
    """The long sequence, twenty jobs at a time, and all but the first twenty."""
    these = long.outcomes("keeper")
    if not these:
        return ""
    lines = [
        "| jobs | models in the zoo | cold, exact, approximate | several parents | steps from scratch "
        "| steps | fewer | fewer seconds | never | at the end, points |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    parts = [(f"{first + 1} to {first + len(part)}", f"{first} on", part) for first, part in windows(these)]
    rest = these[WINDOW:]
    if rest:
        parts.append((f"**{WINDOW + 1} to {len(these)}: steady state**", "", rest))
    for title, size, part in [*parts, ("all", "", these)]:
        cold = sum(not each.record["parents"] for each in part)
        exact = sum(bool(each.record["parents"]) and each.record["exact"] for each in part)
        several = sum(len(each.record["parents"]) > 1 for each in part)
        spent = sum(e.cold_seconds[0.99] for e in part) / sum(e.seconds[0.99] for e in part)
        gain = mean(100 * (each.gain or 0.0) for each in part)
        lines.append(
            f"| {title} | {size} | {cold}, {exact}, {len(part) - cold - exact} | {several} "
            f"| {sum(e.cold_steps[0.99] for e in part):,} | {sum(e.steps[0.99] for e in part):,} "
            f"| {speedup(part):.2f} | {spent:.2f} | {sum(not e.reached[0.99] for e in part)} | {gain:+.2f} |"
        )
    return "\n".join(lines)


# -- expected benefit ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """Of one warm start: the benefit that was expected, and the share of the steps that was saved."""

    seed: int
    exact: bool
    expected: float
    saved: float


def predictions(results: Sequence[Results]) -> list[Prediction]:
    """Of every warm start with a constant rate."""
    return [
        Prediction(each.record["seed"], each.record["exact"], each.record["benefit"], 1 - 1 / each.speedup())
        for workload in results
        for each in workload.outcomes("keeper")
        if each.record["parents"] and each.record["benefit"] is not None
    ]


def benefit_table(results: Sequence[Results]) -> str:
    """Predicted against realised, in equal parts from the least to the most that was expected."""
    found = sorted(predictions(results), key=lambda one: one.expected)
    if len(found) < BINS:
        return ""
    lines = [
        "| expected benefit | jobs | expected, mean | steps saved, mean | least saved |",
        "| --- |" + " ---: |" * 4,
    ]
    edges = [round(number * len(found) / BINS) for number in range(BINS + 1)]
    for low, high in pairwise(edges):
        part = found[low:high]
        lines.append(
            f"| {part[0].expected:.2f} to {part[-1].expected:.2f} | {len(part)} "
            f"| {mean(one.expected for one in part):.2f} | {mean(one.saved for one in part):.2f} "
            f"| {min(one.saved for one in part):+.2f} |"
        )
    return "\n".join(lines)


def benefit_sentences(results: Sequence[Results]) -> str:
    """Rank correlation and error, by seed; and factors fitted on seed 0, held against the other seeds."""
    from scipy.stats import spearmanr

    found = predictions(results)
    first, others = [e for e in found if e.seed == 0], [e for e in found if e.seed != 0]
    lines = []
    for name, these in (("Seed 0", first), ("The other seeds", others)):
        if len(these) > 3:
            rho = spearmanr([e.expected for e in these], [e.saved for e in these]).statistic
            lines.append(
                f"{name}: {len(these)} warm starts, rank correlation {rho:.2f}, on average expected "
                f"{mean(e.expected for e in these):.2f} and saved {mean(e.saved for e in these):.2f}, "
                f"root mean square error {error(these):.3f}."
            )
    if first and others:
        factors = {exact: factor([e for e in first if e.exact is exact]) for exact in (True, False)}
        fitted = [replace(e, expected=factors[e.exact] * e.expected) for e in others]
        lines.append(
            f"Fitted on seed 0, exact starts would be expected to save {factors[True]:.2f} times as much and "
            f"approximate ones {factors[False]:.2f} times; on the other seeds the error then is "
            f"{error(fitted):.3f} instead of {error(others):.3f}."
        )
    return " ".join(lines)


def factor(these: Sequence[Prediction]) -> float:
    """What expectations have to be multiplied by, by least squares."""
    squares = sum(each.expected**2 for each in these)
    return sum(each.expected * each.saved for each in these) / squares if squares else 1.0


def error(these: Sequence[Prediction]) -> float:
    """Root mean square, of what was expected against what was saved."""
    return math.sqrt(mean((each.expected - each.saved) ** 2 for each in these))
