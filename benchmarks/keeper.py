"""How long does a command take over a zoo of 10,000 models, from a cold start of the command? `make keeper`

A zoo is made of real graphs (pytorchcv's networks for small images and for ImageNet), varied in depth by
repeating blocks and in width by resizing their free spaces. Records go straight into the catalog; there are
no weights, which none of these commands reads. Then each command runs in processes of its own. Written to
benchmarks/results/keeper.json and keeper.md are the least wall time and the least CPU time (user and system)
of several runs: on a machine that others use, only the latter says what a command costs.

Two queries: a network that the zoo has relatives of, resized, and one of a family that it does not hold.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.helpers.synthetic_zoo import make_zoo

RESULTS = Path(__file__).parent / "results"
COMMANDS = {
    "stats": ["stats"],
    "models": ["models"],
    "models --json (all)": ["models", "--json"],
    "models --data CIFAR-10 --sort -value": ["models", "--data", "CIFAR-10", "--sort", "-value"],
    "log": ["log"],
    "query relative.json --dry-run": ["query", "relative.json", "--dry-run", "--data", "CIFAR-10"],
    "query stranger.json --dry-run": ["query", "stranger.json", "--dry-run", "--min-similarity", "0"],
    "explain relative.json": ["explain", "relative.json", "--data", "CIFAR-10"],
}


def main() -> None:
    """Make the zoo, run the commands, print and write down what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--architectures", type=int, default=1_500, help="different graphs among them")
    parser.add_argument("--runs", type=int, default=5, help="of each command; the least counts")
    parser.add_argument(
        "--keep", type=Path, help="make the zoo in this folder and leave it; reuse it if there"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "keeper.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = arguments.keep or Path(scratch)
        begun = time.perf_counter()
        if not (home / "zoo" / "catalog.db").exists():
            make_zoo(home, arguments.records, arguments.architectures)
        made = time.perf_counter() - begun
        first = run(
            home, COMMANDS["query relative.json --dry-run"]
        )  # finds no saved index, makes and saves it
        report: dict[str, Any] = {
            "machine": {
                "cores": os.cpu_count(),
                "processor": platform.processor() or platform.machine(),
                "load": round(os.getloadavg()[0], 1),
            },
            "zoo": json.loads(run(home, ["stats", "--json"])["output"]),
            "seconds_to_make_it": round(made, 1),
            "first_query": {key: first[key] for key in ("wall", "cpu")},
            "commands": {name: measure(home, command, arguments.runs) for name, command in COMMANDS.items()},
            "python_alone": measure(home, None, arguments.runs),
        }
    text = summary(report)
    print(text)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(text)


def measure(home: Path, command: list[str] | None, runs: int) -> dict[str, Any]:
    """The least wall and CPU time of several runs, and where a query says its time went."""
    done = [run(home, command) for _ in range(runs)]
    found: dict[str, Any] = {key: round(min(each[key] for each in done), 3) for key in ("wall", "cpu")}
    if command is not None and command[0] in ("query", "explain"):
        answer = json.loads(run(home, [*command, "--json"])["output"])
        found |= {key: answer[key] for key in ("similarity", "considered", "aligned")}
        found["seconds"] = {stage: round(seconds, 4) for stage, seconds in answer["seconds"].items()}
    return found


def run(home: Path, command: list[str] | None) -> dict[str, Any]:
    """One process: its wall and CPU time, and what it printed."""
    call = (
        [sys.executable, "-m", "modelkeeper", *command, "--zoo", "zoo"]
        if command
        else [sys.executable, "-c", ""]
    )
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(call, cwd=home, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "output": done.stdout}


def summary(report: dict[str, Any]) -> str:
    """The report as a page."""
    zoo, machine = report["zoo"], report["machine"]
    lines = [
        f"# Commands over a zoo of {zoo['models']:,} models of {zoo['architectures']:,} architectures",
        "",
        "`make keeper`. Every command is a process of its own, from a cold start; seconds, the least of",
        f"several runs, on {machine['cores']} cores with a load of {machine['load']}. CPU: user plus system.",
        "",
        "| command | wall | CPU |",
        "| --- | --- | --- |",
    ]
    python = report["python_alone"]
    for name, took in {**report["commands"], "python -c '' (nothing)": python}.items():
        lines.append(f"| {name} | {took['wall']:.2f} | {took['cpu']:.2f} |")
    lines += ["", "Where the queries spent it (seconds by stage, and what they looked at):", ""]
    for name, took in report["commands"].items():
        if "seconds" in took:
            spent = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in took["seconds"].items())
            lines.append(f"- {name}: {spent}; {took['considered']:,} models, {took['aligned']:,} aligned")
    first = report["first_query"]
    lines += [
        "",
        "The very first query found no saved index, made it from the catalog and saved it:",
        f"{first['wall']:.1f} s ({first['cpu']:.1f} s CPU). Later processes open the saved one.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
