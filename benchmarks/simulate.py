"""What becomes of a zoo in a year, by who is evicted when it is full? `make simulate`

    python -m benchmarks.simulate                       100,000 models: minutes, on one core
    python -m benchmarks.simulate --models 10000000     hours: see the page for how many
    python -m benchmarks.simulate --minutes 30          the first way ends there, the others where it did

A year of trainings arrives (see `benchmarks.helpers.simulated_zoo`), each starts from the stored model that
most is expected of, is admitted or not, and what the capacity does not hold is evicted: by what it is worth
(the policies of the service), by when it was last used (LRU), or by when it came (FIFO). All three see the
same trainings and have the same capacity. Deterministic by the seed. Where a zoo of that size would choose
more than once a day, since 0.1 % of the capacity is made free each time, that is counted in what choosing
costs a day. Writes benchmarks/results/simulate.json and simulate.md; sizes that were run stay there.
"""

import argparse
import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.helpers.simulated_zoo import SimulatedZoo, World
from modelkeeper.zoo.zoo import MANY, SPARE

RESULTS = Path(__file__).parent / "results"
WAYS = {"worth": "what it is worth", "lru": "last used (LRU)", "fifo": "came first (FIFO)"}
ROWS = {
    "hit rate": "{:.1%}",
    "mean benefit of a training": "{:.3f}",
    "mean standing of what is kept": "{:.3f}",
    "share of what is kept that lent": "{:.1%}",
    "age, days: median": "{:.0f}",
    "age, days: 90th percentile": "{:.0f}",
    "days": "{:,}",
    "models": "{:,}",
    "bytes": "{:.3g}",
    "evicted a day": "{:,.0f}",
    "owners with models": "{:,}",
    "owners that lost models": "{:,}",
    "owners that lost models within their fair share": "{:,}",
    "models lost within fair shares": "{:,}",
    "largest owner's share of the bytes": "{:.1%}",
    "CPU seconds of a choice": "{:.3f}",
    "CPU seconds of choosing a day": "{:.2f}",
}


def simulate(world: World, way: str, days: int, *, minutes: float = math.inf) -> dict[str, Any]:
    """One way to keep, for so many days, or as many as it takes so many minutes to simulate."""
    zoo = SimulatedZoo(world, way)
    began, end, lived = time.process_time(), time.monotonic() + 60 * minutes, 0
    while lived < days and (not lived or time.monotonic() < end):
        zoo.live(lived)
        lived += 1
        if sys.stderr.isatty() or lived % 10 == 0:
            last = "\r" if sys.stderr.isatty() and lived < days else "\n"
            spent = time.process_time() - began
            print(f"{WAYS[way]}: day {lived} of {days}, {spent:.0f} s", end=last, file=sys.stderr, flush=True)
    result = zoo.report(lived - 1) | {"days": lived}
    # What a registration over capacity frees besides is what the next ones find.
    models = max(1, result["models"])
    per_choice = max(1.0, models / SPARE) if models > MANY else 1.0
    admitted = result["evicted a day"]
    result["CPU seconds of choosing a day"] = result["CPU seconds of a choice"] * admitted / per_choice
    result["CPU seconds of the simulation"] = round(time.process_time() - began, 1)
    return result


def page(runs: list[dict[str, Any]]) -> str:
    """The results for people."""
    lines = [
        "# A year of a zoo, simulated",
        "",
        "`make simulate`; how: benchmarks/helpers/simulated_zoo.py.",
        "",
    ]
    for run in runs:
        lines += [
            f"## {run['models']:,} models, {run['trainings a day']:,} trainings a day, {run['days']} days, "
            f"seed {run['seed']}",
            "",
            f"Capacity {run['capacity'] / 1e12:.3g} TB, {run['owners']:,} owners, {run['groups']:,} groups. "
            f"CPU {run['CPU seconds']:,.0f} s in all, peak memory {run['peak memory, GB']:.2g} GB.",
            "",
            "| | " + " | ".join(WAYS[result["way"]] for result in run["ways"]) + " |",
            "| --- |" + " --- |" * len(run["ways"]),
        ]
        for name, form in ROWS.items():
            said = " | ".join(form.format(result[name]) for result in run["ways"])
            lines.append(f"| {name} | {said} |")
        lines.append("")
    return "\n".join(lines)


def run(
    models: int, days: int, seed: int, turnover: float, ways: list[str], minutes: float = math.inf
) -> dict[str, Any]:
    """All ways on the same trainings."""
    world = World(models, seed, turnover=turnover)
    began = time.process_time()
    results = []
    for way in ways:
        results.append(simulate(world, way, days, minutes=minutes))
        days, minutes = results[0]["days"], math.inf
        print(json.dumps(results[-1]), flush=True)
    return {
        "models": models,
        "days": days,
        "turnover": turnover,
        "seed": seed,
        "trainings a day": world.arrivals,
        "capacity": world.capacity,
        "owners": world.owners,
        "groups": world.groups,
        "CPU seconds": round(time.process_time() - began, 1),
        "peak memory, GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3),
        "ways": results,
    }


def main() -> None:
    """Simulate, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100_000, help="that the zoo has room for")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turnover", type=float, default=100, help="days of trainings that fill the zoo")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for simulate.json and simulate.md")
    parser.add_argument("--minutes", type=float, default=math.inf, help="for the first way")
    options = parser.parse_args()
    found = run(options.models, options.days, options.seed, options.turnover, options.ways, options.minutes)
    file = options.out / "simulate.json"
    before = json.loads(file.read_text())["runs"] if file.exists() else []
    same = found["models"], found["turnover"]
    runs = [each for each in before if (each["models"], each["turnover"]) != same] + [found]
    runs.sort(key=lambda each: (each["models"], each["turnover"]))
    options.out.mkdir(exist_ok=True, parents=True)
    file.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    (options.out / "simulate.md").write_text(page(runs))


if __name__ == "__main__":
    main()
