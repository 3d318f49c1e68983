"""Which models pass a filter? What is asked of every model in every query, as arrays in memory.

    columns = Columns()
    columns.apply(changes)                 what came, went and changed: see `changes`
    columns.mask(Filter(task="t"))         by key, whether a model passes; just as `rows.passing` says in SQL
    columns.save(folder), Columns.load(folder)

A model's place in each array is its key, which catalogs count up from 1. Texts are numbered: equal numbers
are equal texts, whichever column they stand in. Readers and the one writer take turns, for microseconds, so
that nobody sees a model half changed.
"""

import json
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkeeper.errors import InvalidIndex, InvalidMetric
from modelkeeper.policy.credit import REFUTED
from modelkeeper.policy.quality import Metric, gap
from modelkeeper.zoo.catalog.changes import FLAGS, FOLLOWED, TEXTS, Changes
from modelkeeper.zoo.database.schema import VERSION
from modelkeeper.zoo.database.whose import NOBODY, Bearers
from modelkeeper.zoo.records import PROJECT, PUBLIC, STATES, STORED, Filter, Viewer

FILE = "columns.npz"
_FIRST = 1024  # models there is room for at first

GROUP = ("task", "data", "metric")  # models of which these are the same are peers

Mask = NDArray[np.bool_]

TYPES: dict[str, Any] = {
    "state": np.int8,  # 0: there is no such model; else its place among STATES, from 1 on
    **dict.fromkeys(TEXTS, np.int32),
    **dict.fromkeys(FLAGS, np.bool_),
    "value": np.float64,  # NaN: none is known
    "gap": np.float64,  # `quality.gap` of its metrics; NaN: none is known
    "credit": np.float64,  # how far what is claimed of it is believed: `policy.credit`
    "created": np.float64,
    "parameters": np.int64,
}


class Columns:
    """The models of a catalog, by columns. One writer at a time, any number of readers."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._size = 1  # one more than the largest key; there is no key 0
        self._arrays = {name: np.zeros(_FIRST, dtype) for name, dtype in TYPES.items()}
        self._words: dict[str, int] = {"": 0}
        self._texts: list[str] = [""]
        self._tagged: dict[int, array[int]] = {}  # by the number of a tag the keys of models that have it
        self._changed: dict[tuple[int, ...], int] = {}  # how often a group of peers has changed

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """How many bytes the arrays take, as far as they are used."""
        tagged = sum(8 * len(keys) for keys in self._tagged.values())
        return tagged + sum(column[: self._size].nbytes for column in self._arrays.values())

    # -- writing ----------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> None:
        """Take over what changed in the catalog."""
        if not changes.rows:
            return
        said = dict(zip(FOLLOWED, zip(*changes.rows, strict=True), strict=True))
        keys = np.array(said["key"], np.int64)
        made = self._made(said, changes.believed)
        tags = self._tags(said)
        with self._turn:
            self._grow(int(keys.max()) + 1)
            known = self._arrays["state"][keys] > 0
            for key, numbers in zip(keys[~known].tolist(), tags[~known].tolist(), strict=True):
                for number in numbers or ():  # a model keeps its tags
                    self._tagged.setdefault(number, array("q")).append(key)
            before = self._groups(keys[known])
            for name, values in made.items():
                self._arrays[name][keys] = values
            for group in before | self._groups(keys):
                self._changed[group] = self._changed.get(group, 0) + 1

    def _groups(self, keys: NDArray[np.int64]) -> set[tuple[int, ...]]:
        return set(zip(*(self._arrays[name][keys].tolist() for name in GROUP), strict=True))

    def _made(self, said: Mapping[str, Sequence[Any]], believed: Mapping[int, float]) -> dict[str, Any]:
        """The values of each column, of rows given by fields."""
        states = {state: number for number, state in enumerate(STATES, start=1)}
        made: dict[str, Any] = {name: self._numbers(said[name]) for name in TEXTS if name != "licence"}
        made["licence"] = self._numbers([str(licence).lower() for licence in said["licence"]])
        made |= {name: [bool(flag) for flag in said[name]] for name in FLAGS}
        made["value"] = _floats(said["value"])
        made["created"] = _floats(said["created"])
        made["parameters"] = np.nan_to_num(_floats(said["parameters"])).astype(np.int64)
        rows = zip(
            said["metrics"], said["metric"], made["value"].tolist(), said["lower_is_better"], strict=True
        )
        made["gap"] = [_gap(*row) for row in rows]
        made["credit"] = [believed.get(key, 1.0) for key in said["key"]]
        made["state"] = [states.get(state, 0) for state in said["state"]]
        return made

    def _tags(self, said: Mapping[str, Sequence[Any]]) -> NDArray[np.object_]:
        """The numbers of each row's tags."""
        tags = np.empty(len(said["key"]), np.object_)
        for row, names in enumerate(said["tags"]):
            if names and isinstance(names, list):
                tags[row] = self._numbers(dict.fromkeys(names))
        return tags

    def _numbers(self, texts: Iterable[Any]) -> list[int]:
        """The numbers of texts; new ones get one."""
        words, numbers = self._words, []
        for text in texts:
            number = words.get(text)
            if number is None:
                text = str(text)  # a damaged row may hold anything
                number = words.get(text)
                if number is None:
                    self._texts.append(text)  # before anybody can look it up
                    number = words[text] = len(self._texts) - 1
            numbers.append(number)
        return numbers

    def _grow(self, size: int) -> None:
        room = len(self._arrays["state"])
        if size > room:
            for name, column in self._arrays.items():
                grown = np.zeros(max(size, 2 * room), column.dtype)
                grown[:room] = column
                self._arrays[name] = grown
        self._size = max(self._size, size)

    # -- reading ----------------------------------------------------------------------------------

    def mask(self, wanted: Filter, bearers: Bearers = NOBODY) -> Mask:
        """By key, whether a model passes a filter; `bearers`: who is called as its restrictions say.

        Raises:
            ValueError: It asks for text in names, which are not here.
        """
        if wanted.text:
            raise ValueError(f"columns hold no names, and so cannot be asked for {wanted.text!r}")
        if wanted.fingerprints is not None:
            raise ValueError("columns hold no fingerprints, and so cannot be asked for some")
        if bounds := [name for name, bound in wanted.ranges.items() if bound is not None]:
            raise ValueError(f"columns are not asked for bounds of numbers, such as {bounds[0]}")
        with self._turn:
            mask = self._in_states(wanted.states) & self._seen_by(wanted.viewer)
            for name in ("task", "data", "origin"):
                if (text := getattr(wanted, name)) is not None:
                    mask &= self._is(name, text)
            for tag in wanted.tags:
                mask &= self._having(tag)
            for restriction in wanted.restrictions:
                if restriction.owners:
                    mask &= self._of("owner", restriction.owners, bearers.owners)
                if restriction.projects:
                    mask &= self._of("project", restriction.projects, bearers.projects)
                if restriction.signed:
                    mask &= self._any_of("signer", [key for key in bearers.trusted if key])
                if restriction.licences:
                    mask &= self._any_of("licence", [licence.lower() for licence in restriction.licences])
            return mask

    def row(self, key: int) -> dict[str, Any]:
        """What is known of a model here, by the names of the columns; numbers that are not known are None."""
        with self._turn:
            row = {name: column[key].item() for name, column in self._arrays.items()}
        row |= {name: self._texts[row[name]] for name in TEXTS}
        return {name: None if value != value else value for name, value in row.items()}

    def take(self, keys: NDArray[np.int64], *names: str) -> list[NDArray[Any]]:
        """What columns say of models, in the order of their keys."""
        with self._turn:
            return [self._arrays[name][keys] for name in names]

    def number(self, text: str) -> int:
        """The number of a text; -1: no model has it."""
        return self._words.get(text, -1)

    def text(self, number: int) -> str:
        """The text that has a number."""
        return self._texts[number]

    def times_changed(self, group: tuple[str, str, str]) -> int:
        """How often the models of a GROUP have changed since this process follows them."""
        return self._changed.get(tuple(map(self.number, group)), 0)

    def peers(
        self, group: tuple[str, str, str], viewer: Viewer | None = None, but: int = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The values of a GROUP's models that others are measured by, and a number for whose each is.

        These are the stored ones that are trained to their end, that the viewer may see and nobody has
        refuted; but for the one of this key.
        """
        with self._turn:
            mask = self._in_states(STORED) & self._column("finished") & self._seen_by(viewer)
            for name, text in zip(GROUP, group, strict=True):
                mask &= self._is(name, text)
            mask &= (self._column("credit") > REFUTED) & ~np.isnan(self._column("value"))
            mask[but if but < self._size else 0] = False
            keys = np.flatnonzero(mask)
            owner, identity = self._arrays["owner"][keys], self._arrays["owner_id"][keys]
            voices = np.where(identity > 0, identity, owner).astype(np.int64)  # as `Record.voice`
            return self._arrays["value"][keys], voices

    def _column(self, name: str) -> NDArray[Any]:
        column: NDArray[Any] = self._arrays[name][: self._size]
        return column

    def _is(self, name: str, text: str) -> Mask:
        mask: Mask = self._column(name) == self._words.get(text, -1)
        return mask

    def _any_of(self, name: str, texts: Iterable[str]) -> Mask:
        numbers = [self._words[text] for text in dict.fromkeys(texts) if text in self._words]
        return np.isin(self._column(name), numbers)

    def _in_states(self, states: Iterable[str]) -> Mask:
        wanted = np.array([False, *(state in states for state in STATES)])
        mask: Mask = wanted[self._column("state")]
        return mask

    def _seen_by(self, viewer: Viewer | None) -> Mask:
        """As `rows.visible`."""
        if viewer is None or viewer.all:
            return np.ones(self._size, np.bool_)
        if viewer.partner:
            published: Mask = self._column("published").copy()
            return published
        seen = self._is("visibility", PUBLIC)
        if viewer.user:
            seen |= self._is("owner_id", viewer.user)
        if viewer.projects:
            seen |= self._is("visibility", PROJECT) & self._any_of("project_id", viewer.projects)
        return seen

    def _having(self, tag: str) -> Mask:
        mask = np.zeros(self._size, np.bool_)
        keys = self._tagged.get(self._words.get(tag, -1))
        if keys is not None:
            mask[np.array(keys, np.int64)] = True
        return mask

    def _of(self, label: str, names: Iterable[str], borne: Mapping[str, frozenset[str]]) -> Mask:
        """As `whose.owner_is` and `project_is`, for any of these names or ids."""
        named = [name for name in names if name]
        identities = {identity for name in named for identity in (name, *borne.get(name, ()))} - {""}
        nobodys = [name for name in named if not borne.get(name)]
        unowned: Mask = self._column(f"{label}_id") == 0
        return self._any_of(f"{label}_id", identities) | (unowned & self._any_of(label, nobodys))

    # -- files ------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write all of it to a file of a folder."""
        with self._turn:
            arrays = {name: self._column(name).copy() for name in TYPES}
            tags = list(self._tagged)
            arrays["tags"] = np.repeat(np.array(tags, np.int64), [len(self._tagged[tag]) for tag in tags])
            arrays["tagged"] = np.array([key for tag in tags for key in self._tagged[tag]], np.int64)
            head = {"version": VERSION, "texts": list(self._texts)}
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        with (folder / FILE).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> "Columns":
        """Read what was saved.

        Raises:
            InvalidIndex: There is none, it is damaged, or of another version of the catalog.
        """
        columns = cls()
        try:
            with np.load(folder / FILE, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            head = json.loads(arrays.pop("head").tobytes())
            if head["version"] != VERSION:
                raise InvalidIndex(str(folder), f"its columns are of version {head['version']}")
            columns._texts = [str(text) for text in head["texts"]]
            columns._words = {text: number for number, text in enumerate(columns._texts)}
            tags, keys = arrays.pop("tags"), arrays.pop("tagged")
            for tag in np.unique(tags).tolist():
                columns._tagged[tag] = array("q", keys[tags == tag].astype(np.int64).tobytes())
            columns._size = len(arrays["state"])
            columns._arrays = {name: arrays[name].astype(dtype, copy=False) for name, dtype in TYPES.items()}
        except (OSError, ValueError, KeyError, TypeError, EOFError) as problem:
            raise InvalidIndex(str(folder), f"its columns cannot be read: {problem}") from problem
        if columns._size < 1 or any(len(column) != columns._size for column in columns._arrays.values()):
            raise InvalidIndex(str(folder), "its columns do not fit one another")
        return columns


def _gap(metrics: Any, metric: str, value: float, lower_is_better: bool) -> float:
    if value == value and isinstance(metrics, dict) and len(metrics) > 1:
        try:
            found = gap(metrics, Metric(metric, value, bool(lower_is_better)))
        except (InvalidMetric, TypeError):
            found = None
        if found is not None:
            return found
    return np.nan


def _floats(values: Sequence[Any]) -> NDArray[np.float64]:
    """Numbers, NaN for what is none."""
    try:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except (ValueError, TypeError):  # a damaged row may hold anything
        return np.array([_float(value) for value in values], np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        return np.nan
