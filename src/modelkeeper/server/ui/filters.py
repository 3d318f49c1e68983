"""Which models does an address ask for, in which order, and what are the addresses of others like it?

Everything that a person can choose stands in the address, so that a view can be sent to a colleague. What
cannot be understood is said on the page and left out, rather than that a half-typed number ends in an error.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from modelkeeper.errors import ModelKeeperError
from modelkeeper.zoo.records import STATES, STORED, Filter, Viewer, checked_name, is_id
from modelkeeper.zoo.restriction import Restriction

SIZE = 50  # models on a page
COLUMNS = ("name", "task", "data", "value", "parameters", "bytes", "hits", "created")
ALL = "all"
AFTER, BEFORE, END = "after", "before", "end"  # ?after=<id of a model>, ?before=<id>, ?before=end
TEXTS = ("text", "task", "data", "project", "owner", "tag")
SIZES = ("least_bytes", "most_bytes")
SCORES = ("least_value", "most_value")
MAP, LIKE = "map", "architecture"  # ?map=<mark>,left,bottom,right,top, ?architecture=<ids of models>
MOST_LIKE = 100  # models whose architectures are meant
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SIZE = re.compile(r"([0-9][0-9_,]*\.?[0-9]*)\s*([kmgt]?)b?", re.IGNORECASE)


class Region(Struct, frozen=True):
    """A part of the map of the zoo, in its units."""

    mark: str  # of the map
    left: float
    bottom: float
    right: float
    top: float


class Wanted(Struct, frozen=True):
    """What an address asks for."""

    filter: Filter
    order: str
    given: dict[str, str]  # fields as they were typed
    way: str = ""  # AFTER or BEFORE a model; "": the first page
    model: str = ""  # an id, or END
    problems: tuple[str, ...] = ()
    region: Region | None = None
    like: tuple[str, ...] = ()  # ids of models whose architectures are meant

    @property
    def where(self) -> dict[str, Any]:
        """Where the page is, as a coordinator is asked for it."""
        if self.model == END:
            return {"last": True}
        return {self.way: self.model} if self.way else {}

    def address(self, **changes: Any) -> str:
        """The query of the same view with something else in it; another choice begins at its first page."""
        asked = {**self.given, "order": self.order, **changes}
        return urlencode({name: value for name, value in asked.items() if value != _DEFAULTS.get(name, "")})

    def sorted_by(self, column: str) -> str:
        """The query that orders by a column: what people look for first, then the other way round."""
        first = column if column in ("name", "task", "data") else f"-{column}"
        return self.address(order=_turned(first) if self.order == first else first)

    def chips(self) -> Iterator[tuple[str, str, str]]:
        """What is chosen: a name, its value, and the query without it."""
        for name, value in self.given.items():
            if name != "text":
                yield _NAMES.get(name, name), self._said(name, value), self.address(**{name: ""})

    def _said(self, name: str, value: str) -> str:
        if name == MAP:
            return "of the map"
        return f"that of {len(self.like)} models" if name == LIKE and len(self.like) > 1 else value


_NAMES = {
    MAP: "a part",
    "least_bytes": "size from",
    "most_bytes": "size to",
    "least_value": "score from",
    "most_value": "score to",
}
_DEFAULTS: dict[str, object] = {"order": "-created"}


def _turned(order: str) -> str:
    return order[1:] if order.startswith("-") else f"-{order}"


def read(parameters: Iterable[tuple[str, str]], viewer: Viewer) -> Wanted:
    """What the query of an address asks for, of the models that somebody may see."""
    asked = {name: value.strip()[: 20 * MOST_LIKE if name == LIKE else 200] for name, value in parameters}
    given = {name: asked[name] for name in (*TEXTS, "state", *SIZES, *SCORES, MAP, LIKE) if asked.get(name)}
    problems: list[str] = []
    parts: dict[str, Any] = {}
    for name in list(given):
        try:
            parts[name] = _read(name, given[name])
        except (ModelKeeperError, ValueError) as problem:
            problems.append(str(problem))
            del given[name]
    order = asked.get("order", "")
    wanted = Filter(viewer=viewer, states=parts.pop("state", STORED))
    region, like = parts.pop(MAP, None), parts.pop(LIKE, ())
    restriction = Restriction(owners=parts.pop("owner", ()), projects=parts.pop("project", ()))
    wanted = msgspec.structs.replace(
        wanted, tags=parts.pop("tag", ()), restrictions=(restriction,) if restriction else (), **parts
    )
    return Wanted(
        wanted,
        order if order.removeprefix("-") in COLUMNS else "-created",
        given,
        *_place(asked),
        tuple(problems),
        region,
        like,
    )


def _place(asked: dict[str, str]) -> tuple[str, str]:
    """Where the page is; what is no place is the first page."""
    if is_id(asked.get(AFTER, "")):
        return AFTER, asked[AFTER]
    model = asked.get(BEFORE, "")
    return (BEFORE, model) if is_id(model) or model == END else ("", "")


def _read(name: str, text: str) -> Any:
    """The value of a field.

    Raises:
        ValueError: It has none, in words for people.
    """
    if name == "state":
        if text not in (*STATES, ALL):
            raise ValueError(f"There is no state {text!r}.")
        return STATES if text == ALL else (text,)
    if name in SIZES:
        return size_of(text)
    if name in SCORES:
        return _score(text)
    if name == MAP:
        return _region(text)
    if name == LIKE:
        return _ids(text)
    checked = checked_name(name, text, empty=False)
    if name in ("owner", "project"):
        return (checked,)
    if name == "tag":
        return tuple(part.strip() for part in checked.split(",") if part.strip())
    return checked


def size_of(text: str) -> int:
    """Bytes, as people write them.

    Raises:
        ValueError: It is no size, in words for people.
    """
    parts = _SIZE.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is no size: write 500 kB or 2 GB.")
    return min(int(float(re.sub("[_,]", "", parts[1])) * _UNITS[parts[2].lower()]), 2**60)


def _score(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no score: write a number, like 0.93.")
    return value


def _region(text: str) -> Region:
    mark, *numbers = text.split(",")
    try:
        left, bottom, right, top = map(_score, numbers)
    except ValueError:
        mark = ""
    if re.fullmatch("[0-9a-f]{8}", mark) is None:
        raise ValueError(f"{text[:80]!r} is no part of the map: choose one there.")
    return Region(mark, min(left, right), min(bottom, top), max(left, right), max(bottom, top))


def _ids(text: str) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not 1 <= len(ids) <= MOST_LIKE or not all(map(is_id, ids)):
        raise ValueError(f"An architecture is named by ids of 1 to {MOST_LIKE} models, not {text[:80]!r}.")
    return ids
