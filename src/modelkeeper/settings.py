"""What may a user set? Read once, at the edge, then passed down by hand.

    Settings(home="zoo/")                      one folder holds everything
    Settings.read(home="zoo/", capacity="20GB")  and the rest from MODELKEEPER_* variables

Every field can be set by a variable of its name: `minimum_similarity` by MODELKEEPER_MINIMUM_SIMILARITY.
"""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidSetting

MEMORY = ":memory:"
PREFIX = "MODELKEEPER_"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 2 ** (10 * power) for power, unit in enumerate("KMGT", start=1)}


def default_home() -> str:
    """The zoo of whoever does not say which."""
    return str(Path.home() / ".modelkeeper")


class Settings(Struct, frozen=True, kw_only=True):
    """How one zoo is kept."""

    home: str = ""  # a folder, or ":memory:"; "" is ~/.modelkeeper
    catalog: str = ""  # a SQLAlchemy URL; "" is a SQLite file in the home
    blobs: str = ""  # a folder or a URL; "" is the home
    capacity: int | None = None  # bytes of weights to keep; None: all
    policy: str = "buckets"  # how a parent is chosen: buckets, benefit
    minimum_similarity: float = 0.3  # a match below this is a cold start
    admission: str = "refuse"  # what becomes of outliers below their peers: refuse, not_a_parent, off
    admission_threshold: float = 3.5  # how many spreads below its peers make an outlier
    minimum_peers: int = 5  # with fewer peers than this, everyone is admitted
    half_life: float = 30.0  # days in which a model that nobody uses loses half of its value
    grace: float = 3600.0  # seconds before what no record names counts as left behind
    threads: int = 0  # for matching; 0: as many as there are cores

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity <= 0:
            raise InvalidSetting("capacity", str(self.capacity), "give a number of bytes above 0, e.g. 20GB")
        if not 0 <= self.minimum_similarity <= 1:
            raise InvalidSetting(
                "minimum_similarity", str(self.minimum_similarity), "give a number from 0 to 1"
            )
        for name in ("half_life", "admission_threshold"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidSetting(name, str(value), "give a number above 0")
        for name in ("grace", "threads", "minimum_peers"):
            if getattr(self, name) < 0:
                raise InvalidSetting(name, str(getattr(self, name)), "give 0 or more")

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, **given: Any) -> "Settings":
        """Settings from the environment, unless they are given (None: not given).

        Raises:
            InvalidSetting: A value cannot be read, or cannot work.
        """
        environment = os.environ if environment is None else environment
        values = {name: value for name, value in given.items() if value is not None}
        for name in cls.__struct_fields__:
            text = environment.get(PREFIX + name.upper())
            if name not in values and text is not None:
                values[name] = text
        for name, value in values.items():
            if isinstance(value, str) and name in _READERS:
                values[name] = _READERS[name](name, value)
        return cls(**values)

    @property
    def in_memory(self) -> bool:
        return self.home == MEMORY

    @property
    def folder(self) -> Path:
        """The home as a path."""
        return Path(self.home or default_home()).expanduser()

    @property
    def catalog_url(self) -> str:
        if self.catalog:
            return self.catalog
        return "sqlite://" if self.in_memory else f"sqlite:///{self.folder.absolute() / 'catalog.db'}"

    @property
    def blobs_url(self) -> str:
        return self.blobs or ("memory://" if self.in_memory else str(self.folder))


def parse_bytes(name: str, text: str) -> int:
    """`20GB`, `512 MiB` or a plain number, as bytes."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if found is None or found[2] == "I":
        raise InvalidSetting(name, repr(text), "give a number of bytes, e.g. 20GB or 512MiB")
    return int(float(found[1]) * _UNITS[found[2]])


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(name, repr(text), "give a number") from None


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise InvalidSetting(name, repr(text), "give a whole number, 0 or more")
    return int(text)


_READERS = {"capacity": parse_bytes, "threads": _count, "minimum_peers": _count} | dict.fromkeys(
    ("minimum_similarity", "admission_threshold", "half_life", "grace"), _number
)
