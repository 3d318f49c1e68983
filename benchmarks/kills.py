"""Does a zoo lose anything when the processes that use it are killed at any moment?

    python -m benchmarks.kills --kills 5000

Rounds of 250 kills (SIGKILL) each: four processes at a time register, remove, sweep, query and back up in one
zoo. After each round:

    every model that was acknowledged, and not removed, is there with the bytes that were acknowledged
    what is visible is whole, what was removed is gone, gc finds nothing damaged and leaves nothing behind
    the backup that these processes made, if they came to make one, restores to models with the right bytes

The protocol was written before the first run. What was reached goes to results/kills.json after each round,
and a later run goes on from there; a round with a loss is counted and named, never left out.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.care.archive import Archive
from modelkeeper.zoo.care.backup import restore
from modelkeeper.zoo.files.blobs import WEIGHTS

RESULTS = Path(__file__).parent / "results" / "kills.json"
ROUND = 250


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=5000, help="in all, with those of earlier runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {"kills": 0, "rounds": 0, "seconds": 0.0, "killed while": {}, "wrong": []}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    while results["kills"] < options.kills:
        start = time.monotonic()
        counts, killed, wrong = one_round(min(ROUND, options.kills - results["kills"]), results["rounds"])
        for name, number in counts.items():
            results[name] = results.get(name, 0) + number
        results["killed while"] = dict(Counter(results["killed while"]) + Counter(killed))
        results["wrong"] += [f"round {results['rounds']}: {problem}" for problem in wrong]
        results["rounds"] += 1
        results["seconds"] = round(results["seconds"] + time.monotonic() - start, 1)
        options.results.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results), flush=True)
    sys.exit(1 if results["wrong"] else 0)


def one_round(kills: int, seed: int) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Kill so often in a new zoo: counts, what was killed, and what is wrong."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        home, acknowledged = Path(folder) / "zoo", Path(folder) / "acknowledged"
        command = [sys.executable, "-m", "tests.helpers.nursery", str(home), str(acknowledged)]
        run = subprocess.run([*command, str(kills), str(seed)], check=True, capture_output=True, text=True)
        counts, wrong = audit(home, acknowledged)
        counts["kills"] = kills
        if Archive(home.parent / "backup").snapshots():
            counts["restored models"], damaged = audit_backup(home, acknowledged)
            wrong += damaged
        return counts, json.loads(run.stdout), wrong


def told(acknowledged: Path) -> tuple[dict[str, str], set[str], set[str]]:
    """What the processes were told: registered (id -> checksum), perhaps removed, removed."""
    lines = [line.split() for line in acknowledged.read_text().splitlines()]
    registered = {line[1]: line[2] for line in lines if line[0] == "+"}
    perhaps, removed = ({line[1] for line in lines if line[0] == sign} for sign in "?-")
    return registered, perhaps, removed


def audit(home: Path, acknowledged: Path) -> tuple[dict[str, int], list[str]]:
    """Is all that was acknowledged there, and right?"""
    registered, perhaps, removed = told(acknowledged)
    coordinator = LocalCoordinator(Settings(home=str(home)))
    stored = {record.id: record for record in coordinator.models()}
    lost = registered.keys() - perhaps - stored.keys()
    left = coordinator.known(lost)
    wrong = [
        f"{model} was acknowledged and is lost: "
        + (f"{left[model].state}, {left[model].reason}" if model in left else "it has no record")
        for model in lost
    ]
    wrong += [f"{model} was removed and is there" for model in removed & stored.keys()]
    wrong += [
        f"{model} has other bytes"
        for model, record in stored.items()
        if registered.get(model, record.checksum) != record.checksum
        or not whole(home, record.id, record.checksum)
    ]
    swept = coordinator.gc(grace=0, verify=True)
    wrong += [f"gc: {model} is damaged" for model in (*swept.damaged, *swept.unreadable, *swept.failed)]
    behind = [path.name for path in (*home.glob("staging/*"), *home.glob("index/tmp-*"))]
    wrong += [f"{name} was left behind" for name in behind]
    if {folder.name for folder in (home / "models").iterdir()} != stored.keys():
        wrong.append("folders and records differ")
    coordinator.close()
    return {"acknowledged": len(registered), "removed": len(removed), "stored": len(stored)}, wrong


def audit_backup(home: Path, acknowledged: Path) -> tuple[int, list[str]]:
    """Does the newest backup give models with the bytes that were acknowledged?"""
    registered, _, _ = told(acknowledged)
    copy = home.parent / "restored"
    made = restore(home.parent / "backup", Settings(home=str(copy)))
    coordinator = LocalCoordinator(Settings(home=str(copy)))
    records = coordinator.models()
    coordinator.close()
    wrong = [f"the backup lacks {model}" for model in made.missing]
    wrong += [
        f"{record.id} was restored with other bytes"
        for record in records
        if registered.get(record.id, record.checksum) != record.checksum
        or not whole(copy, record.id, record.checksum)
    ]
    return len(records), wrong


def whole(home: Path, model: str, checksum: str) -> bool:
    """Is the file of a model's weights what its checksum says?"""
    path = home / "models" / model / WEIGHTS
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == checksum


if __name__ == "__main__":
    main()
