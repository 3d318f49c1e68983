"""How soon is a new replica ready, with a snapshot of the index in the store and without? `make starting`

A catalog of PostgreSQL with many records (see `helpers.synthetic_zoo`), and a store: a folder, or with --s3
one that speaks S3. Replicas are `modelkeeper serve` processes with empty homes: the first finds no snapshot,
reads all from the catalog, leads, and puts a snapshot; those after it begin with that. One more starts again
in the home that it had. Measured from the start of the process until `/readyz` says 200, which it does when
the index is there; and the CPU time up to then. Of several starts the fastest counts. Written to
benchmarks/results/starting.json, beside the time of a replica of an empty zoo: what Python, imports and the
catalog take whatever the zoo.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.helpers.synthetic_zoo import make_zoo
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.index.shared_snapshots import DATA, FOLDER
from tests.helpers.parts import ObjectStore, Postgres, free_ports, wait_until

RESULTS = Path(__file__).parent / "results"
KEYS = {"AWS_ACCESS_KEY_ID": "modelkeeper", "AWS_SECRET_ACCESS_KEY": "of-a-benchmark"}
TARGET = 3.0  # seconds, with a snapshot, at 100,000 models


def ready(url: str) -> bool:
    """Does a replica say that it is ready?"""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=60):
            return True
    except (urllib.error.URLError, OSError):
        return False


def start(home: Path, zoo: list[str], meanwhile: Callable[[], None] | None = None) -> dict[str, float]:
    """The seconds until a replica is ready, and how much of the processors that took."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "modelkeeper", "serve", "--no-auth", "--home", str(home)]
    began = time.perf_counter()
    with (home.parent / f"{home.name}.log").open("ab") as log:
        process = subprocess.Popen([*command, "--port", str(port), *zoo], stderr=log)
    try:
        while not ready(f"http://127.0.0.1:{port}"):
            if process.poll() is not None:
                raise RuntimeError((home.parent / f"{home.name}.log").read_text()[-2000:])
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        if meanwhile is not None:
            meanwhile()
    finally:
        process.terminate()
        process.wait()
    return {"seconds": seconds, "cpu": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")}


def fastest(home: Callable[[int], Path], zoo: list[str], runs: int) -> dict[str, float]:
    """The least of several starts."""
    every = [start(home(run), zoo) for run in range(runs)]
    return {name: round(min(each[name] for each in every), 2) for name in every[0]}


@contextlib.contextmanager
def a_store(folder: Path, s3: bool) -> Iterator[str]:
    """The URL of an empty store."""
    if not s3:
        yield str(folder / "store")
        return
    with ObjectStore(folder / "s3", keys=KEYS) as store:
        store.make_bucket("zoo")
        more = {"AWS_ENDPOINT_URL": store.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        os.environ.update(KEYS | more)
        yield "s3://zoo/of-many"


def measure(folder: Path, records: int, architectures: int, runs: int, s3: bool) -> dict[str, Any]:
    """All starts over one zoo."""
    with Postgres(database="zoo") as postgres, a_store(folder, s3) as url:
        place = f"postgresql+psycopg://postgres@/zoo?host={postgres.folder}"
        zoo = ["--catalog", place, "--blobs", url]
        settings = Settings(home=str(folder / "owner"), catalog=place, blobs=url)
        with contextlib.closing(LocalCoordinator(settings)) as owner:
            owner.zoo.expect_own_store()  # before there are records, whose files are nowhere
        make_zoo(folder, records, architectures, place)
        blobs = Blobs(url)

        def put() -> bool:
            return any("/at-" in name for name, _ in blobs.folders(FOLDER))

        first = start(folder / "first", zoo, lambda: wait_until(put, "a snapshot"))
        return {
            "without a snapshot": {name: round(value, 2) for name, value in first.items()},
            "with a snapshot": fastest(lambda run: folder / f"new-{run}", zoo, runs),
            "again in its home": fastest(lambda run: folder / "first", zoo, runs),
            "of an empty zoo": fastest(lambda run: folder / f"empty-{run}", [], runs),
            "snapshot_bytes": sum(
                len(blobs.read(f"{name}/{DATA}")) for name, _ in blobs.folders(FOLDER) if "/at-" not in name
            ),
        }


def main() -> None:
    """Make a zoo, start replicas of it, print and write down what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--architectures", type=int, default=20_000, help="different graphs among them")
    parser.add_argument("--runs", type=int, default=3, help="of each start; the fastest counts")
    parser.add_argument("--s3", action="store_true", help="a store that speaks S3, in place of a folder")
    parser.add_argument("--out", type=Path, default=RESULTS / "starting.json")
    arguments = parser.parse_args()
    sizes = {"records": arguments.records, "architectures": arguments.architectures}
    with tempfile.TemporaryDirectory(prefix="mk-starting-") as folder:
        found = measure(Path(folder), runs=arguments.runs, s3=arguments.s3, **sizes)
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    met = found["with a snapshot"]["seconds"] <= TARGET
    result = {"machine": machine, "s3": arguments.s3, **sizes, "target": TARGET, "met": met, **found}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
