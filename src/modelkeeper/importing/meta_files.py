"""What does a file say of many models, by patterns of their paths?

    {"runs/*.pt": {"data": "Flowers102", "accuracy": 0.9}, "*bert*": {"task": "text"}}      JSON
    path,data,task,tags,accuracy                                                            CSV: a header,
    runs/*.pt,Flowers102,classification,small;nightly,0.9                                   a line for each

Where several patterns fit, the later one counts. Columns that `meta` does not know are metrics.
"""

import csv
import fnmatch
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidMeta
from modelkeeper.meta import REGISTRATION_KEYS, read_registration

_PATH = "path"


@dataclass(frozen=True)
class MetaFile:
    """What was said, by patterns."""

    entries: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None) -> "MetaFile":
        """Read a JSON or CSV file; None says nothing.

        Raises:
            InvalidMeta, InvalidMetric: It cannot be read, or something that it says cannot be so.
        """
        if path is None:
            return cls()
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8-sig")
            entries = tuple(_of_csv(text) if file.suffix.lower() == ".csv" else _of_json(text))
        except (OSError, ValueError, RecursionError, csv.Error) as problem:
            advice = 'give JSON, {"runs/*.pt": {"data": ...}}, or CSV with a column "path"'
            raise InvalidMeta("the file", str(file), f"it cannot be read ({problem}): {advice}") from problem
        for _, meta in entries:
            read_registration(meta, "check", measured=False)
        return cls(entries)

    def of(self, path: Path) -> dict[str, Any]:
        """What is said of the thing at a path: of all patterns that fit it, or the end of it."""
        said: dict[str, Any] = {}
        full = path.absolute().as_posix()
        for pattern, meta in self.entries:
            anywhere = pattern if os.path.isabs(pattern) else f"*/{pattern.removeprefix('./')}"
            if fnmatch.fnmatchcase(full, anywhere.rstrip("/")):
                said |= meta
        return said


def _of_json(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = json.loads(text)
    if not isinstance(entries, dict) or not all(isinstance(meta, dict) for meta in entries.values()):
        raise ValueError("it is no object of objects")
    yield from entries.items()


def _of_csv(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = csv.DictReader(io.StringIO(text))
    if _PATH not in (rows.fieldnames or ()):
        raise ValueError(f"there is no column {_PATH!r}")
    for row in rows:
        meta: dict[str, Any] = {}
        for key, value in row.items():
            if key == _PATH or not isinstance(value, str) or not value.strip():
                continue
            if key == "tags":
                meta[key] = [tag.strip() for tag in value.split(";") if tag.strip()]
            elif key == "accuracy":
                meta[key] = float(value)
            elif key in REGISTRATION_KEYS:
                meta[key] = value
            else:
                meta.setdefault("metrics", {})[key] = float(value)
        yield row[_PATH], meta
