"""Where are the results kept? One line for each training, on disk before the next one begins.

FOLDER/WORKLOAD-SEED-scratch.jsonl holds what was trained from scratch and does not depend on ModelKeeper,
FOLDER/WORKLOAD-SEED-warm.jsonl all that began from a zoo. A run that was killed goes on after the last line.
"""

import json
import os
from pathlib import Path
from typing import Any

CACHE = Path.home() / ".cache" / "modelkeeper" / "training"
RESULTS = Path(__file__).parent.parent / "results" / "training"
Record = dict[str, Any]


def records(path: Path) -> list[Record]:
    """What has been written; a last line that a kill cut short is as if it had not been."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]


def append(path: Path, record: Record) -> None:
    """One line, on disk before the next training begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.truncate(_whole(file))
        file.write((json.dumps(record) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _whole(file: Any) -> int:
    """Where the last whole line ends: what a kill has left after it is written over."""
    file.seek(0)
    return int(file.read().rfind(b"\n")) + 1


def rounded(values: Record) -> Record:
    """Numbers as they are written: four digits are more than is known."""
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
