"""What does a zoo give when it is no longer empty, and was the expected benefit right?"""

import math
from collections.abc import Sequence
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


def predictions(results: Sequence[Results]) -> list[tuple[int, float, float]]:
    """Of every warm start: the seed, the benefit that was expected, and the share of the steps saved."""
    return [
        (each.record["seed"], each.record["benefit"], 1 - 1 / each.speedup())
        for workload in results
        for each in workload.outcomes("keeper")
        if each.record["parents"] and each.record["benefit"] is not None
    ]


def benefit_table(results: Sequence[Results]) -> str:
    """Predicted against realised, in equal parts from the least to the most that was expected."""
    found = sorted(predictions(results), key=lambda one: one[1])
    if len(found) < BINS:
        return ""
    lines = [
        "| expected benefit | jobs | expected, mean | steps saved, mean | least saved |",
        "| --- |" + " ---: |" * 4,
    ]
    edges = [round(number * len(found) / BINS) for number in range(BINS + 1)]
    for low, high in pairwise(edges):
        part = found[low:high]
        saved = [each for _, _, each in part]
        lines.append(
            f"| {part[0][1]:.2f} to {part[-1][1]:.2f} | {len(part)} | {mean(e for _, e, _ in part):.2f} "
            f"| {mean(saved):.2f} | {min(saved):+.2f} |"
        )
    return "\n".join(lines)


def benefit_sentence(results: Sequence[Results]) -> str:
    """Rank correlation and error, by seed; and a line fitted on seed 0 held against the others."""
    from scipy.stats import spearmanr

    found = predictions(results)
    parts = []
    for name, these in (
        ("seed 0", [each for each in found if each[0] == 0]),
        ("the other seeds", [each for each in found if each[0] != 0]),
    ):
        if len(these) > 3:
            rho = spearmanr([e for _, e, _ in these], [s for _, _, s in these]).statistic
            parts.append(
                f"{name}: {len(these)} warm starts, rank correlation {rho:.2f}, mean expected "
                f"{mean(e for _, e, _ in these):.2f}, mean saved {mean(s for _, _, s in these):.2f}, "
                f"root mean square error {error(these):.3f}"
            )
    return "; ".join(parts)


def error(these: Sequence[tuple[int, float, float]]) -> float:
    """Root mean square, of what was expected against what was saved."""
    return math.sqrt(mean((expected - saved) ** 2 for _, expected, saved in these))
