"""Is all that a zoo holds what was registered? A look at everything, while it is in use; nothing is changed.

report = verify(zoo)
report.whole            True: records, graphs, programs and weights are what was written
report.problems         else what is wrong, with the model or graph that it concerns
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import (
    CorruptCatalog,
    CorruptWeights,
    InvalidGraph,
    InvalidWeights,
    UnreadableWeights,
    ZooUnusable,
)
from modelkeeper.zoo.database.postgres import unhurried
from modelkeeper.zoo.database.schema import metadata
from modelkeeper.zoo.files.blobs import PROGRAM
from modelkeeper.zoo.records import KEPT, STORED, Filter, Record
from modelkeeper.zoo.zoo_reader import ZooReader

Progress = Callable[[float, float], None]
MANY = 20  # problems that SQLite names of its own file, or totals that are wrong


class Report(Struct, frozen=True):
    """What was looked at, and what is not as it should be: what it concerns -> what is wrong."""

    records: int = 0
    graphs: int = 0
    weights: int = 0
    programs: int = 0
    bytes: int = 0  # of weights
    catalog: tuple[str, ...] = ()  # what the database says of itself
    damaged_records: tuple[str, ...] = ()
    damaged_graphs: dict[str, str] = {}
    damaged_weights: dict[str, str] = {}
    damaged_programs: dict[str, str] = {}
    unreadable: dict[str, str] = {}  # what cannot be read here; it may be whole

    @property
    def whole(self) -> bool:
        """Is everything what was written?"""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """All that is wrong, in words."""
        found = [f"the catalog: {problem}" for problem in self.catalog]
        found += [f"the record of {model} is not what was written" for model in self.damaged_records]
        found += [f"the graph {digest}: {problem}" for digest, problem in self.damaged_graphs.items()]
        found += list(self.damaged_weights.values())
        found += [f"the program of {model}: {problem}" for model, problem in self.damaged_programs.items()]
        return found + list(self.unreadable.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {"whole": self.whole} | plain


def verify(zoo: ZooReader, *, quick: bool = False, progress: Progress | None = None) -> Report:
    """Look at everything that a zoo holds.

    Args:
        zoo: Others may go on using it; what goes meanwhile is not missed.
        quick: Look at the sizes of weights alone, and do not read them.
        progress: Is told how many bytes of how many were looked at.

    Raises:
        ZooUnusable: The catalog or the store cannot be reached.
    """
    with unhurried():
        return _look(zoo, quick, progress)


def _look(zoo: ZooReader, quick: bool, progress: Progress | None) -> Report:
    looking = _Looking(zoo, quick)
    looking.at_catalog()
    records: list[Record] = []
    try:
        looking.found["damaged_records"] = tuple(zoo.catalog.damaged_records())
        records = zoo.catalog.find(Filter(states=KEPT))
        looking.counts["records"] = zoo.catalog.count_all()
        looking.problems += zoo.catalog.wrong_totals()[:MANY]
    except CorruptCatalog as problem:
        looking.problems.append(problem.problem)
    looking.at_graphs({record.graph for record in records})
    done, total = 0, sum(record.bytes for record in records)
    for record in records:
        looking.at_files(record)
        done += record.bytes
        if progress is not None:
            progress(done, total)
    return looking.report()


class _Looking:
    """One look on its way."""

    def __init__(self, zoo: ZooReader, quick: bool) -> None:
        self._zoo, self._quick = zoo, quick
        self.counts: dict[str, Any] = dict.fromkeys(("records", "graphs", "weights", "programs", "bytes"), 0)
        self.problems: list[str] = []
        self.found: dict[str, Any] = {"damaged_records": ()}
        self._graphs: dict[str, str] = {}
        self._weights: dict[str, str] = {}
        self._programs: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}

    def report(self) -> Report:
        """What was found."""
        return Report(
            **self.counts,
            **self.found,
            catalog=tuple(self.problems),
            damaged_graphs=self._graphs,
            damaged_weights=self._weights,
            damaged_programs=self._programs,
            unreadable=self._unreadable,
        )

    def at_catalog(self) -> None:
        """What does SQLite say of its pages and indexes (others look after theirs)? Is each table there?"""
        try:
            with self._zoo.catalog.database.reading() as connection:
                if connection.dialect.name == "sqlite":
                    check = sa.text(f"PRAGMA integrity_check({MANY})")
                    said = [str(row[0]) for row in connection.execute(check)]
                    self.problems += [line for line in said if line != "ok"]
        except CorruptCatalog as problem:
            self.problems.append(problem.problem)
        for table in metadata.sorted_tables:
            try:
                with self._zoo.catalog.database.reading() as connection:
                    connection.execute(sa.select(table).limit(1)).all()
            except CorruptCatalog as problem:
                self.problems.append(f"table {table.name}: {problem.problem}")

    def at_graphs(self, digests: set[str]) -> None:
        """Is each graph what its digest says, and what was made of it what was written?"""
        for digest in sorted(digests):
            self.counts["graphs"] += 1
            try:
                self._zoo.catalog.graph(digest)
                if not self._zoo.catalog.prepared([digest]).get(digest):
                    self._graphs[digest] = "what was prepared of it is damaged; it is made anew when needed"
            except (CorruptCatalog, InvalidGraph) as problem:
                if self._still_named(digest):
                    self._graphs[digest] = str(problem)

    def at_files(self, record: Record) -> None:
        """Are the weights and the program of a model what was registered?"""
        self.counts["weights"] += 1
        self.counts["bytes"] += record.bytes
        try:
            self._zoo.blobs.weights(record.folder, record.bytes)
            if not self._quick and self._zoo.blobs.checksum(record.folder) != record.checksum:
                raise CorruptWeights(record.id, "its checksum is not that of what was registered")
        except (CorruptWeights, InvalidWeights) as problem:
            if self._still_there(record):
                self._weights[record.id] = str(problem)
        except UnreadableWeights as problem:
            self._unreadable[record.id] = str(problem)
        self._at_program(record)

    def _at_program(self, record: Record) -> None:
        if not record.program:
            return
        self.counts["programs"] += 1
        try:
            program = self._zoo.blobs.read(f"{record.folder}/{PROGRAM}")
        except FileNotFoundError:
            if self._still_there(record):
                self._programs[record.id] = "it is missing"
        except ZooUnusable as problem:
            self._programs[record.id] = problem.problem
        else:
            if hashlib.sha256(program).hexdigest() != record.program:
                self._programs[record.id] = "it is not what was registered"

    def _still_there(self, record: Record) -> bool:
        """Has the model not gone meanwhile, and was it not known to be damaged?"""
        now = self._zoo.catalog.with_ids([record.id]).get(record.id)
        return now is not None and now.state in KEPT

    def _still_named(self, digest: str) -> bool:
        return any(record.graph == digest for record in self._zoo.catalog.find(Filter(states=STORED)))
