"""What does the first query of a process cost, beside `import torch` and beside later queries?

Each measurement is a process of its own, after `import torch`: import the client, open a zoo in a folder that
exists and ask for a small convolutional net; then ask again. Of all processes the fastest counts, since those
of a shared machine vary. Writes benchmarks/results/first_query.json.

    python -m benchmarks.first_query [--processes 5]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from torch import nn

from modelkeeper import ModelKeeperClient

RESULTS = Path(__file__).parent / "results"
LATER = 5  # queries after the first, of which the fastest counts
NET = """nn.Sequential(
    nn.Conv2d(3, {width}, 3), nn.BatchNorm2d({width}), nn.ReLU(), nn.Flatten(), nn.Linear({width} * 900, 4)
)"""
PROCESS = f"""
import json, sys, time
start = time.perf_counter()
import torch
from torch import nn
imported = time.perf_counter()
net = {NET.format(width=10)}
began = time.perf_counter()
from modelkeeper import ModelKeeperClient
client = ModelKeeperClient(sys.argv[1], on_error="raise")
_, answer = client.query_for_model(net)
first = time.perf_counter() - began
assert not answer.cold
later = []
for _ in range({LATER}):
    began = time.perf_counter()
    client.query_for_model(net)
    later.append(time.perf_counter() - began)
print(json.dumps({{"import_torch": imported - start, "first": first, "later": min(later)}}))
"""


def fill(folder: Path) -> None:
    """A zoo with three models."""
    with ModelKeeperClient(folder, on_error="raise") as client:
        for width in (8, 12, 16):
            layers = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten()
            model = nn.Sequential(*layers, nn.Linear(width * 900, 4))
            client.register_model(model, {"accuracy": 0.5})


def measure(folder: Path) -> dict[str, float]:
    """The seconds of one process."""
    ran = subprocess.run([sys.executable, "-c", PROCESS, str(folder)], check=True, capture_output=True)
    seconds: dict[str, float] = json.loads(ran.stdout)
    return seconds


def main() -> None:
    """Measure, print and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    count = parser.parse_args().processes
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "zoo")
        measure(Path(folder) / "zoo")  # files are read from the disk once
        rows = [measure(Path(folder) / "zoo") for _ in range(count)]
    fastest = {key: min(row[key] for row in rows) for key in rows[0]}
    result = {
        "processes": count,
        "seconds": {key: round(value, 4) for key, value in fastest.items()},
        "to_import_torch": round(fastest["first"] / fastest["import_torch"], 3),
        "to_later": round(fastest["first"] / fastest["later"], 1),
    }
    (RESULTS / "first_query.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
