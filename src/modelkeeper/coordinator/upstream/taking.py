"""May a model of another zoo come into this one, and as what? What they say is hostile until checked.

    unwanted(record, query, room)          why a query would not take it; "": it would
    Taking(zoo, settings, folder).take(line, record, prepared, least)    its record here

It keeps its id, unless that was used here before, and says where it comes from (`origin`). Here it has the
rights that this zoo gives it: it belongs to nobody, and everyone sees it, or one project. All models of
upstreams together take up a bounded part of the zoo; of them, those that lent last stay.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from modelkeeper.coordinator.remote.spool import locked
from modelkeeper.coordinator.upstream.line import Line
from modelkeeper.errors import InvalidGraph, InvalidWeights
from modelkeeper.graph import Graph, from_json
from modelkeeper.logs import logger
from modelkeeper.matching import Prepared, align
from modelkeeper.meta import Query, retold
from modelkeeper.settings import Settings
from modelkeeper.text import size
from modelkeeper.weights import MAX_HEADER, Header
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.files.blobs import WEIGHTS
from modelkeeper.zoo.files.folders import Written
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.records import (
    ACTIVE,
    EVICTED,
    PROJECT,
    PUBLIC,
    STORED,
    Filter,
    Record,
    Registration,
    is_id,
    new_id,
)
from modelkeeper.zoo.signatures import signed_by
from modelkeeper.zoo.zoo import MAX_PROGRAM, Zoo, stored_tensors

WITHOUT_CAPACITY = 10 * 10**9  # bytes of their models, in a zoo that keeps all of its own
_log = logger()


def room(settings: Settings) -> int:
    """How many bytes all models of upstreams may take up."""
    if settings.upstream_capacity is not None:
        return settings.upstream_capacity
    return WITHOUT_CAPACITY if settings.capacity is None else settings.capacity // 5


def unwanted(record: Record, query: Query, most: int) -> str:
    """Why a query here would not take this model of theirs; "" if it would."""
    if record.state != ACTIVE:
        return "it lends to nobody there"
    if query.task and record.task != query.task:
        return f"it is for the task {record.task!r}"
    if missing := set(query.tags) - set(record.tags):
        return f"it lacks the tag {sorted(missing)[0]!r}"
    if {record.id, record.name} & set(query.exclude):
        return "it is excluded"
    if query.fold and record.data == query.data and record.fold != query.fold:
        return "it may have seen what this fold is validated on"
    if record.bytes > most:
        return f"its {size(record.bytes)} exceed what models of upstreams may take up"
    return ""


class Taking:
    """What takes models of upstreams into one zoo."""

    def __init__(self, zoo: Zoo, settings: Settings, folder: Callable[[], Path]) -> None:
        """`folder` is where files lie while they come."""
        self._zoo, self._settings, self._folder = zoo, settings, folder

    def here(self, url: str, record: Record) -> bool:
        """Is it in this zoo already, from there or by its id?"""
        known = self._zoo.catalog.with_ids([record.id]).get(record.id)
        if known is not None and known.state in STORED:
            return True
        return any(copy.checksum == record.checksum for copy in self._copies([url]))

    def take(
        self, line: Line, record: Record, prepared: Prepared, least: float, key: str = ""
    ) -> Record | None:
        """Fetch a model and register it here; None if it is less similar, or signed by another key (an id).

        Raises:
            CoordinatorUnreachable: It does not come, or what comes cannot be meant.
            ModelKeeperError: It cannot be registered here.
        """
        signature = line.signature(record) if record.signer else b""
        if key and (not signature or signed_by(signature, record).signer != key):
            _log.warning("%s: model %s is not signed by the key of this upstream", line.url, record.id)
            return None
        graph = self._graph(line, record)
        if align(graph, prepared).similarity < least:
            _log.info("%s: model %s is not as similar as it says", line.url, record.id)
            return None
        program = self._program(line, record)
        folder = self._folder() / f"upstream-{record.checksum[:32]}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(folder) as mine:
            if not mine:  # another process is fetching it
                return None
            path = folder / WEIGHTS
            line.weights(record, path)
            try:
                return self._zoo.register(
                    graph,
                    self._registration(line.url, record),
                    Staged(path, Written(record.bytes, record.checksum)),
                    owner=urlsplit(line.url).netloc,
                    model_id=self._free_id(record),
                    program=program,
                    signature=signature,
                    project_id=self._project_id(),
                ).record
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def make_room(self, urls: Iterable[str], keep: Record) -> None:
        """Let those of their models go that lent longest ago, if together they take up too much."""
        copies = sorted(
            self._copies(urls), key=lambda copy: (copy.id == keep.id, copy.pinned, copy.last_used)
        )
        over = sum(copy.bytes for copy in copies) - room(self._settings)
        for copy in copies:
            if over <= 0 or copy.pinned or copy.id == keep.id:
                break
            self._zoo.remove(copy, "models of upstreams take up too much", state=EVICTED)
            over -= copy.bytes

    def _graph(self, line: Line, record: Record) -> Graph:
        """Its graph, if it is the one that its record names, and its weights can be as long as is said."""
        text = line.graph(record)
        if hashlib.sha256(text).hexdigest() != record.graph:
            line.refuse(f"another graph than that of model {record.id}")
        try:
            graph = from_json(text)
            numbers = Header.of(stored_tensors(graph)).data_bytes
        except (InvalidGraph, InvalidWeights) as problem:
            line.refuse(str(problem))
        if not 8 < record.bytes - numbers <= MAX_HEADER:
            line.refuse(f"{record.bytes:,} bytes for tensors of {numbers:,}")
        return graph

    def _program(self, line: Line, record: Record) -> bytes:
        if not record.program:  # there is none, or none that could be held against what comes
            return b""
        program = line.program(record)
        if len(program) > MAX_PROGRAM:
            line.refuse(f"a program of {len(program):,} bytes")
        if record.program != hashlib.sha256(program).hexdigest():
            line.refuse(f"another program than that of model {record.id}")
        return program

    def _registration(self, url: str, record: Record) -> Registration:
        """What is said of it here: what can be so of what they say, and where it comes from."""
        project = self._settings.upstream_project
        parents = record.parents if record.signer else self._foreign(url, record.parents)
        return retold(
            record,
            project=project,
            visibility=PROJECT if project else PUBLIC,
            parent=parents[0] if parents else "",
            more_parents=parents[1:],
            origin=url,
        )

    def _foreign(self, url: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """Parents that are not models of this zoo's own: who signs nothing says nothing of those."""
        known = self._zoo.catalog.with_ids(parents)
        return tuple(parent for parent in parents if parent not in known or known[parent].origin == url)

    def _free_id(self, record: Record) -> str:
        """Its id; a new one if a model that went had it."""
        return new_id() if self._zoo.catalog.with_ids([record.id]) or not is_id(record.id) else record.id

    def _project_id(self) -> str:
        project = self._settings.upstream_project
        return Accounts(self._zoo.catalog).project_id(project) if project else ""

    def _copies(self, urls: Iterable[str]) -> list[Record]:
        found: list[Record] = []
        for url in urls:
            found += self._zoo.catalog.find(Filter(states=STORED, origin=url))
        return found
