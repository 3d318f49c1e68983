"""What do hostile programs, graphs, files, requests and replies do to who takes them? `make fuzz`

    python -m benchmarks.fuzz [programs graphs safetensors bodies replies] [--count 100000]

A process takes one hostile thing after the other (benchmarks/helpers/fuzzed.py), and may do nothing but
refuse it or use it. Another one watches: that the first dies, hangs for two minutes, or raises anything but
the errors meant for this is a fault, which is kept with the number of the thing; then it goes on behind it.

What was reached goes to results/fuzz.json as it grows, and a later run goes on from there, as long as the
code of the generators is the same. Programs run in the process apart, 25 to a room, which costs less than a
room for each; those that end it are counted, and the next one gets a new room.
"""

import argparse
import hashlib
import json
import select
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.helpers.fuzzed import TARGETS

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "fuzz.json"
GENERATORS = ("fuzzed.py", "hostile_bytes.py", "hostile_programs.py")
PATIENCE = 120.0  # seconds for a single thing, and for all imports before the first
ROUND = 2_500
FAULT, READY = "fault", "ready"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--count", type=int, default=100_000, help="of each, with those of earlier runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", nargs=3, metavar=("TARGET", "FROM", "TO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], int(options.work[1]), int(options.work[2]))
        return
    generators = generation()
    results: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    if results.get("generators") != generators:
        results = {"generators": generators, "targets": {}}
    for target in options.targets or TARGETS:
        found = results["targets"].setdefault(
            target, {"count": 0, "seconds": 0.0, "became": {}, "faults": []}
        )
        while found["count"] < options.count:
            add(found, target, min(ROUND, options.count - found["count"]))
            options.results.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(target, json.dumps(found), flush=True)
    sys.exit(1 if any(found["faults"] for found in results["targets"].values()) else 0)


def generation() -> str:
    """Which generators made what is counted."""
    code = b"".join((HERE / "helpers" / name).read_bytes() for name in GENERATORS)
    return hashlib.sha256(code).hexdigest()[:16]


def add(found: dict[str, Any], target: str, count: int) -> None:
    """Take so many more of a kind, in a process that is watched."""
    began, first = time.monotonic(), found["count"]
    became: Counter[str] = Counter(found["became"])
    for number, outcome in watched(target, first, first + count):
        if outcome.startswith(FAULT):
            found["faults"].append(f"{number}: {outcome}"[:1000])
            outcome = FAULT
        became[outcome] += 1
    found["count"] += count
    found["became"] = dict(became)
    found["seconds"] = round(found["seconds"] + time.monotonic() - began, 1)


def watched(target: str, first: int, end: int) -> Iterator[tuple[int, str]]:
    """What became of each, from processes that are started anew where they died."""
    while first < end:
        command = [sys.executable, "-m", "benchmarks.fuzz", "--work", target, str(first), str(end)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None
            said = lines(process)
            if next(said, "") != READY:
                raise SystemExit(f"what takes {target} does not start")
            for line in said:
                yield first, line
                first += 1
            process.kill()
            died = process.wait()
        if first < end:
            yield first, f"{FAULT}: died with {died}, or hung"
            first += 1


def lines(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """The lines that a process writes, until it ends or writes none for too long."""
    assert process.stdout is not None
    rest = b""
    while select.select([process.stdout], [], [], PATIENCE)[0]:
        piece = process.stdout.read(65536)
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)


def work(target: str, first: int, end: int) -> None:
    """Take one thing after the other, and write what became of it."""
    with TARGETS[target]() as one:
        print(READY, flush=True)
        for number in range(first, end):
            try:
                outcome = one(number)
            except BaseException as problem:  # noqa: BLE001 (whatever it is, it should not have come here)
                where = traceback.extract_tb(problem.__traceback__)[-1]
                outcome = f"{FAULT}: {type(problem).__name__}: {problem} ({where.filename}:{where.lineno})"
            print(outcome.replace("\n", " ")[:1000], flush=True)


if __name__ == "__main__":
    main()
