"""The zoo: models come, stay while they are worth their room, and go.

    zoo = Zoo.open(settings)
    zoo.register(graph, registration, tensors, owner)     acknowledged means durable
    zoo.weights(record)                                   the tensors of a model, checked once
    zoo.remove(id), zoo.gc()

Registering writes the model's folder first, then its record in one transaction, then tells the index. A
process that dies in between leaves a folder that no record names, which `gc` sweeps. Removing goes the other
way round: first the record says so, then the files go.
"""

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from modelkeeper.errors import CorruptWeights, InvalidWeights, ModelRefused
from modelkeeper.graph import Graph, to_json
from modelkeeper.matching import Index, Prepared, prepare
from modelkeeper.metrics import Metric, standing
from modelkeeper.settings import Settings
from modelkeeper.weights import Array, Header, Weights, holds_nan, stream
from modelkeeper.zoo import card
from modelkeeper.zoo.admission import Admission, admit
from modelkeeper.zoo.blobs import CARD, CONFIG, GRAPH, WEIGHTS, Blobs
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.following import Follower
from modelkeeper.zoo.records import (
    ACTIVE,
    BARRED,
    DAMAGED,
    EVICTED,
    REMOVED,
    STORED,
    Event,
    Filter,
    Record,
    Registration,
    new_id,
)
from modelkeeper.zoo.retention import DAY, Item, retain

NEAR = 0.9  # models at least so similar are near-twins
MOST_TWINS = 64  # looked at for one new model


class Registered(Struct, frozen=True):
    """What became of a registration."""

    record: Record
    admission: Admission
    evicted: tuple[str, ...] = ()  # ids of models that had to make room


class Swept(Struct, frozen=True):
    """What `gc` did."""

    staging: int  # unfinished writes that were deleted
    folders: tuple[str, ...]  # models' folders that no record named
    graphs: int
    damaged: tuple[str, ...]  # models whose weights are not what was registered
    evicted: tuple[str, ...]  # models beyond the capacity


class Zoo:
    """Catalog, blobs and index of one zoo. Safe to use from several threads and processes."""

    def __init__(self, settings: Settings) -> None:
        """Open a zoo; a new home is made."""
        self.settings = settings
        self.blobs = Blobs(settings.blobs_url)
        if not settings.in_memory and not settings.catalog:
            settings.folder.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog(settings.catalog_url)
        folder = None if settings.in_memory else settings.folder / "index"
        self._follower = Follower(self.catalog, folder, settings.threads)
        self._verified: set[str] = set()
        self._verifying = threading.Lock()

    def close(self) -> None:
        """Let go of the database."""
        self._follower.close()
        self.catalog.close()

    def index(self) -> Index:
        """The search index, with all that any process has registered up to now."""
        return self._follower.index()

    # -- coming ---------------------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        told: Registration,
        tensors: Iterable[tuple[str, Array]],
        owner: str,
        model_id: str = "",
    ) -> Registered:
        """Take a model in. When this returns, the model is on the disk and can become a parent.

        Raises:
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            TooLargeToMatch: The graph has more layers than an alignment takes.
            ZooUnusable: It could not be written. Nothing of it is visible.
        """
        prepared = prepare(graph)
        header = Header.of(stored_tensors(graph), {"format": "pt" if graph.framework == "torch" else "np"})
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
            for name, small in ((GRAPH, text), (CONFIG, card.config(record)), (CARD, card.card(record))):
                folder.write(name, [small])
            written = folder.write(WEIGHTS, stream(header, _finite(tensors)))
        record = msgspec.structs.replace(record, bytes=written.bytes, checksum=written.checksum)
        detail = f"{record.name}: {told.metric}; {admission.reason}"
        event = Event(at=now, action="registered", model=record.id, user=owner, detail=detail)
        record = self.catalog.add(record, text, prepared.to_bytes(), event)
        self._verified.add(record.id)
        self._find_twins(record, prepared)
        return Registered(record, admission, self.make_room())

    def _admission(self, told: Registration, header: Header, owner: str) -> Admission:
        settings = self.settings
        admission = admit(
            told.metric,
            self.catalog.peers(told.task, told.data, told.metric.name),
            threshold=settings.admission_threshold,
            minimum_peers=max(1, settings.minimum_peers),
            mode=settings.admission,
        )
        advice = "It would be of no use as a parent; the setting `admission` decides about such models."
        if settings.capacity is not None and header.data_bytes > settings.capacity:
            reason = f"its {header.data_bytes:,} bytes exceed the zoo's capacity of {settings.capacity:,}"
            admission, advice = Admission("refused", reason), "Raise the setting `capacity`."
        if admission.verdict == "refused":
            event = Event(
                at=time.time(), action="refused", user=owner, detail=f"{told.name}: {admission.reason}"
            )
            self.catalog.note(event)
            raise ModelRefused(told.name, admission.reason, advice)
        return admission

    def _find_twins(self, record: Record, prepared: Prepared) -> None:
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

    def weights(self, record: Record) -> Weights:
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
        groups: dict[tuple[str, str, str], list[float]] = {}
        for record in records:
            if record.value is not None:
                groups.setdefault((record.task, record.data, record.metric), []).append(record.value)
        for record in records:
            place = 0.5
            if record.value is not None:
                peers = groups[record.task, record.data, record.metric]
                place = standing(Metric(record.metric, record.value, record.lower_is_better), peers)
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

    def gc(self, *, grace: float | None = None, verify: bool = False) -> Swept:
        """Delete what no record names, and mark models whose weights are lost.

        Args:
            grace: What is younger than so many seconds may belong to a registration under way, and stays.
            verify: Compare every model's checksum, not just the size of its file.
        """
        before = time.time() - (self.settings.grace if grace is None else grace)
        records = {record.folder: record for record in self.catalog.find(Filter(states=STORED))}
        swept = []
        there = set()
        for folder, written in list(self.blobs.folders()):
            there.add(folder)
            if folder not in records and written <= before:
                # It may have been registered since the records were read.
                found = self.catalog.with_ids([folder.rpartition("/")[2]])
                if not any(record.state in STORED for record in found.values()):
                    self.blobs.delete(folder)
                    swept.append(folder)
        damaged = []
        for folder, record in records.items():
            try:
                self.blobs.weights(folder, record.bytes)
                if verify and self.blobs.checksum(folder) != record.checksum:
                    raise CorruptWeights(record.id, "its checksum is not that of what was registered")
            except (CorruptWeights, InvalidWeights) as problem:
                self.catalog.retire({record.id: str(problem)}, DAMAGED)
                damaged.append(record.id)
        staging = self.blobs.sweep_staging(before)
        evicted = self.make_room()
        graphs = self.catalog.sweep_graphs()
        if staging or swept:
            detail = f"{staging} unfinished writes, {len(swept)} folders without a record"
            self.catalog.note(Event(at=time.time(), action="swept", detail=detail))
        return Swept(staging, tuple(swept), graphs, tuple(damaged), evicted)


def stored_tensors(graph: Graph) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of every tensor that a file of this model's weights holds."""
    for name, tensor in graph.tensors.items():
        if tensor.stored:
            yield name, tensor.dtype, tensor.shape


def _finite(tensors: Iterable[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
    for name, array in tensors:
        if holds_nan(array):
            raise InvalidWeights(name, "it holds NaN: the training has failed")
        yield name, array
