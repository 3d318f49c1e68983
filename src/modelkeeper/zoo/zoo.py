"""The zoo: models come, stay while they are worth their room, and go.

    zoo = Zoo(settings)
    zoo.register(graph, registration, tensors, owner)     acknowledged means durable
    zoo.weights(record)                                   the tensors of a model, checked once
    zoo.remove(record), zoo.make_room()

Registering writes the model's folder first, then its record in one transaction, then tells the index. A
process that dies in between leaves a folder that no record names, which `gc` sweeps. Removing goes the other
way round: first the record says so, then the files go.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import (
    CorruptWeights,
    InvalidMeta,
    ModelKeeperError,
    ModelRefused,
)
from modelkeeper.graph import Graph, to_json
from modelkeeper.policy.admission import Admission, Verdict, admit
from modelkeeper.policy.quality import Metric, Peers, standing
from modelkeeper.policy.retention import DAY, Item, retain
from modelkeeper.settings import Settings
from modelkeeper.zoo import card
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.records import (
    ACTIVE,
    BARRED,
    EVICTED,
    REMOVED,
    STORED,
    Event,
    Filter,
    Record,
    Registration,
    is_id,
    new_id,
)
from modelkeeper.zoo.unusable import zoo_unusable

if TYPE_CHECKING:
    from modelkeeper.matching import Index, Prepared
    from modelkeeper.weights import Array, Header, Weights
    from modelkeeper.zoo.blobs import Blobs
    from modelkeeper.zoo.index_sync import Follower
    from modelkeeper.zoo.staged import Staged

NEAR = 0.9  # models at least so similar are near-twins
MAX_PROGRAM = 8 * 2**20  # bytes
MOST_TWINS = 64  # looked at for one new model
_log = logging.getLogger("modelkeeper")


class Registered(Struct, frozen=True):
    """What became of a registration."""

    record: Record
    admission: Admission
    evicted: tuple[str, ...] = ()  # ids of models that had to make room

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {
            "record": self.record.to_dict(),
            "admission": msgspec.to_builtins(self.admission),
            "evicted": list(self.evicted),
        }


class Zoo:
    """Catalog, blobs and index of one zoo. Safe to use from several threads and processes."""

    def __init__(self, settings: Settings) -> None:
        """Open a zoo; a new home is made."""
        self.settings = settings
        if not settings.in_memory and not settings.catalog:
            try:
                settings.folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                advice = "Choose another folder, or make this one yours."
                text = problem.strerror or str(problem)
                raise zoo_unusable(str(settings.folder), text, advice, problem) from problem
        self.catalog = Catalog(settings.catalog_url)
        self._opening = threading.Lock()
        self._blobs: Blobs | None = None
        self._follower: Follower | None = None
        self._verified: set[str] = set()
        self._verifying = threading.Lock()

    def close(self) -> None:
        """Let go of the database."""
        if self._follower is not None:
            self._follower.close()
        self.catalog.close()

    # Whoever only counts or lists models needs neither blobs nor index, and should not wait for them.

    @property
    def blobs(self) -> "Blobs":
        """The files of the models."""
        from modelkeeper.zoo.blobs import Blobs

        with self._opening:
            if self._blobs is None:
                self._blobs = Blobs(self.settings.blobs_url)
            return self._blobs

    @property
    def follower(self) -> "Follower":
        """What keeps the search index in step with the catalog."""
        from modelkeeper.zoo.index_sync import Follower

        with self._opening:
            if self._follower is None:
                folder = None if self.settings.in_memory else self.settings.folder / "index"
                self._follower = Follower(self.catalog, folder, self.settings.threads)
            return self._follower

    def index(self) -> "Index":
        """The search index, with all that any process has registered up to now."""
        return self.follower.index()

    # -- coming ---------------------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        told: Registration,
        tensors: "Iterable[tuple[str, Array]] | Staged",
        owner: str,
        model_id: str = "",
        program: bytes = b"",
    ) -> Registered:
        """Take a model in. When this returns, the model is on the disk and can become a parent.

        With a `model_id` (16 hexadecimal digits) it may be sent again: the same weights with the same id
        are registered once. With a `program` those who start from it can calibrate.

        Raises:
            InvalidMeta: `model_id` is no id, or the program is too long.
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            TooLargeToMatch: The graph has more layers than an alignment takes.
            ZooUnusable: It could not be written. Nothing of it is visible.
        """
        from modelkeeper.matching import prepare
        from modelkeeper.weights import Header, stream, without_nan
        from modelkeeper.zoo.blobs import CARD, CONFIG, GRAPH, PROGRAM, WEIGHTS
        from modelkeeper.zoo.staged import Staged

        if model_id and not is_id(model_id):
            raise InvalidMeta("the model's id", repr(model_id)[:80], "give 16 hexadecimal digits, or none")
        if len(program) > MAX_PROGRAM:
            raise InvalidMeta("the program", f"{len(program):,} bytes long", f"at most {MAX_PROGRAM:,}")
        prepared = prepare(graph)
        header = Header.of(stored_tensors(graph), {"format": "pt" if graph.framework == "torch" else "np"})
        staged = tensors if isinstance(tensors, Staged) else None
        chunks = tensors.chunks() if isinstance(tensors, Staged) else stream(header, without_nan(tensors))
        known = self.catalog.with_ids([model_id]).get(model_id) if model_id else None
        if known is not None:
            digest = hashlib.sha256()
            for chunk in chunks:
                digest.update(chunk)
            _expect(known, owner, digest.hexdigest())
            verdict: Verdict = "not_a_parent" if known.state == BARRED else "admitted"
            return Registered(known, Admission(verdict, known.reason or "it was registered before"))
        admission = self._admission(told, header, owner)
        now = time.time()
        text = to_json(graph)
        record = Record(
            id=model_id or new_id(),
            name=told.name,
            owner=owner,
            project=told.project,
            visibility=told.visibility,
            data=told.data,
            task=told.task,
            tags=told.tags,
            metrics=told.metrics,
            metric=told.metric.name,
            value=told.metric.value,
            lower_is_better=told.metric.lower_is_better,
            framework=graph.framework,
            parameters=graph.parameters,
            bytes=0,
            fingerprint=graph.fingerprint,
            graph=hashlib.sha256(text).hexdigest(),
            checksum="",
            parent=told.parent,
            similarity=told.similarity,
            created=now,
            last_used=now,
            state=ACTIVE if admission.verdict == "admitted" else BARRED,
            reason="" if admission.verdict == "admitted" else admission.reason,
        )
        with self.blobs.writing(record.folder) as folder:
            if staged is not None:
                staged.check(header)
                written = folder.adopt(WEIGHTS, staged.path, staged.written)
            else:
                written = folder.write(WEIGHTS, chunks)
            record = msgspec.structs.replace(record, bytes=written.bytes, checksum=written.checksum)
            small = {GRAPH: text, CONFIG: card.config(record), CARD: card.card(record), PROGRAM: program}
            for name, content in small.items():
                if content:
                    folder.write(name, [content])
            detail = f"{record.name}: {told.metric}; {admission.reason}"
            event = Event(at=now, action="registered", model=record.id, user=owner, detail=detail)
            added = self.catalog.add(record, text, prepared.to_bytes(), event, folder.publish)
        _expect(added, owner, record.checksum)
        self._verified.add(added.id)
        evicted: tuple[str, ...] = ()
        try:
            self._find_twins(added, prepared)
            evicted = self.make_room()
        except ModelKeeperError as problem:  # the model is in; the next registration makes up for this
            _log.warning("after registering %s: %s", added.id, problem)
        return Registered(added, admission, evicted)

    def _admission(self, told: Registration, header: "Header", owner: str) -> Admission:
        settings = self.settings
        admission = self.judge(told.metric, told.task, told.data)
        advice = "It would be of no use as a parent; the setting `admission` decides about such models."
        size = len(header.to_bytes()) + header.data_bytes
        if settings.capacity is not None and size > settings.capacity:
            reason = f"its {size:,} bytes exceed the zoo's capacity of {settings.capacity:,}"
            admission, advice = Admission("refused", reason), "Raise the setting `capacity`."
        if admission.verdict == "refused":
            event = Event(
                at=time.time(), action="refused", user=owner, detail=f"{told.name}: {admission.reason}"
            )
            self.catalog.note(event)
            raise ModelRefused(told.name, admission.reason, advice)
        return admission

    def judge(self, metric: Metric, task: str, data: str) -> Admission:
        """Is a model with this value far below its peers?"""
        return admit(
            metric,
            self.catalog.peers(task, data, metric.name),
            threshold=self.settings.admission_threshold,
            minimum_peers=max(1, self.settings.minimum_peers),
            mode=self.settings.admission,
        )

    def _find_twins(self, record: Record, prepared: "Prepared") -> None:
        """Remember which near-twins are better than others: that is what retention values."""
        peers = self.catalog.keys(Filter(states=(ACTIVE,), task=record.task, data=record.data))
        peers = peers[peers != record.key]
        if not len(peers):
            return
        found = self.index().search(prepared, floor=NEAR, among=peers)
        near = {match.key: match.similarity for match in found.matches[:MOST_TWINS]}
        twins: dict[str, tuple[str, float]] = {}
        for key, other in self.catalog.with_keys(near).items():
            if other.metric != record.metric or other.value is None or record.value is None:
                continue
            similarity = near[key]
            better = (other.value < record.value) == record.lower_is_better or other.value == record.value
            if better:
                if similarity > twins.get(record.id, ("", 0.0))[1]:
                    twins[record.id] = other.id, similarity
            elif similarity > other.twin_similarity:
                twins[other.id] = record.id, similarity
        self.catalog.set_twins(twins)

    # -- staying --------------------------------------------------------------------------------

    def weights(self, record: Record) -> "Weights":
        """The tensors of a model. Its checksum is compared the first time that this process reads it.

        Raises:
            CorruptWeights: The file is missing, or is not what was registered.
        """
        weights = self.blobs.weights(record.folder, record.bytes)
        if record.id not in self._verified:
            with self._verifying:
                if record.id not in self._verified and self.blobs.checksum(record.folder) != record.checksum:
                    raise CorruptWeights(record.id, "its checksum is not that of what was registered")
            self._verified.add(record.id)
        return weights

    def program(self, record: Record) -> bytes | None:
        """The program that a model was registered with, or None. Its front end checks it before it runs."""
        from modelkeeper.zoo.blobs import PROGRAM

        try:
            return self.blobs.read(f"{record.folder}/{PROGRAM}")
        except FileNotFoundError:
            return None

    def pin(self, record: Record, pinned: bool, user: str = "") -> None:
        """Keep a model whatever it is worth, or no longer."""
        action = "pinned" if pinned else "unpinned"
        event = Event(at=time.time(), action=action, model=record.id, user=user, detail=record.name)
        self.catalog.update(record.id, event, pinned=pinned)

    # -- going ----------------------------------------------------------------------------------

    def remove(
        self, record: Record, reason: str = "removed by hand", user: str = "", state: str = REMOVED
    ) -> bool:
        """Take a model out of the zoo; its record stays, for those who descend from it. Was it there?"""
        gone = self.catalog.retire({record.id: reason}, state, user)
        for each in gone:
            self.blobs.delete(each.folder)
        return bool(gone)

    def make_room(self) -> tuple[str, ...]:
        """Evict what is worth least if the zoo is over its capacity. Which models went?"""
        capacity = self.settings.capacity
        if capacity is None or self.catalog.bytes_stored() <= capacity:
            return ()
        gone: list[str] = []
        for _ in range(10):  # while others register, the picture may be old by the time it is drawn
            clock = self.catalog.clock()
            records = self.catalog.find(Filter(states=STORED))
            chosen = retain(self._items(records), capacity, half_life=self.settings.half_life * DAY)
            reasons = {eviction.id: eviction.reason for eviction in chosen.evicted}
            retired = self.catalog.retire(reasons, EVICTED, clock=clock)
            if retired is not None:
                for record in retired:
                    self.blobs.delete(record.folder)
                    gone.append(record.id)
                break
        return tuple(gone)

    def _items(self, records: list[Record]) -> Iterator[Item]:
        now = time.time()
        present = {record.id for record in records}
        groups: dict[tuple[str, str, str, bool], list[float]] = {}
        for record in records:
            if record.value is not None:
                groups.setdefault(record.group, []).append(record.value)
        peers = {group: Peers.of(values, group[-1]) for group, values in groups.items()}
        for record in records:
            place = 0.5
            if record.value is not None:
                metric = Metric(record.metric, record.value, record.lower_is_better)
                place = standing(metric, peers[record.group])
            yield Item(
                id=record.id,
                bytes=record.bytes,
                standing=place,
                hits=record.hits,
                age=now - record.created,
                last_used_age=now - record.last_used if record.hits else None,
                pinned=record.pinned,
                cover=1 - record.twin_similarity if record.twin in present else 1.0,
            )


def _expect(record: Record, owner: str, checksum: str) -> None:
    """A registration may come twice, but an id belongs to one model."""
    if (record.owner, record.checksum) != (owner, checksum):
        reason = f"another model has the id {record.id}"
        raise ModelRefused(record.name, reason, "Leave the id out, and the zoo gives one.")


def stored_tensors(graph: Graph) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of every tensor that a file of this model's weights holds."""
    for name, tensor in graph.tensors.items():
        if tensor.stored:
            yield name, tensor.dtype, tensor.shape
