"""The zoo: models come, stay while they are worth their room, and go.

    zoo = Zoo(settings)
    zoo.register(graph, registration, tensors, owner)     acknowledged means durable
    zoo.remove(record), zoo.make_room()                   and all that `ZooReader` answers

Registering writes the model's folder first (`incoming`), then its record in one transaction. A process that
dies in between leaves a folder that no record names, which `gc` sweeps. Removing goes the other way round:
first the record says so, then the files go.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from modelkeeper.errors import (
    DiskFull,
    InvalidMeta,
    ModelKeeperError,
    ModelRefused,
    ZooUnusable,
)
from modelkeeper.graph import Graph
from modelkeeper.logs import logger
from modelkeeper.policy.admission import Admission, admit
from modelkeeper.policy.credit import TRAINED, Outcome
from modelkeeper.policy.quality import Metric, zscore
from modelkeeper.settings import DAY, Verdict
from modelkeeper.zoo import bounds
from modelkeeper.zoo.catalog.event_data import done_to, refusal
from modelkeeper.zoo.records import (
    ACTIVE,
    BARRED,
    EVICTED,
    KEPT,
    PINNED,
    PUBLISHED,
    REGISTERED,
    REMOVED,
    REPORTED,
    UNPINNED,
    UNPUBLISHED,
    Event,
    Filter,
    Record,
    Registration,
    is_id,
)
from modelkeeper.zoo.valuation import better_twins, items
from modelkeeper.zoo.zoo_reader import ZooReader

if TYPE_CHECKING:
    from modelkeeper.matching import Prepared
    from modelkeeper.weights import Array
    from modelkeeper.zoo.files.staged import Staged
    from modelkeeper.zoo.incoming import Incoming
    from modelkeeper.zoo.signatures import Sign

MAX_PROGRAM = 8 * 2**20  # bytes
NEAR = 0.9  # models at least so similar are near-twins
MOST_TWINS = 64  # looked at for one new model
# Up to so many models what goes is just what must, to the byte. To choose among more takes longer than to
# register one: then this part of the capacity (0.1 %) is made free besides, by what would have gone next, and
# the registrations that follow find it.
MANY, SPARE = 10_000, 1_000
TRIES = 10  # to choose who goes while nothing changes
T = TypeVar("T")
_log = logger()


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


class Zoo(ZooReader):
    """One zoo, to be read and written. Safe to use from several threads and processes."""

    # -- coming ---------------------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        registration: Registration,
        tensors: "Iterable[tuple[str, Array]] | Staged",
        owner: str,
        model_id: str = "",
        program: bytes = b"",
        *,
        owner_id: str = "",
        project_id: str = "",
        signature: bytes = b"",
        evidence: bytes = b"",
        sign: "Sign | None" = None,
    ) -> Registered:
        """Take a model in. When this returns, the model is on the disk and can become a parent.

        With a `model_id` (16 hexadecimal digits) it may be sent again: the same weights with the same id
        are registered once. With a `program` those who start from it can calibrate. Where there are users,
        ids say whose it is. A `signature` comes with it, or `sign` makes one; it must be of just this model.
        `evidence` are held-out examples, as `zoo.evidence` packs them.

        Raises:
            InvalidMeta: `model_id` is no id, or too much is said of it: see `bounds`.
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            InvalidSignature: It was signed, but not as what it is.
            TooLargeToMatch: The graph has more layers than an alignment takes.
            ZooUnusable: It could not be written. Nothing of it is visible.
        """
        from modelkeeper.matching import prepare
        from modelkeeper.weights import Header
        from modelkeeper.zoo.incoming import Incoming

        _expect_sound(model_id, registration.parents, program, evidence)
        bounds.check(registration, owner, graph.framework)
        self.catalog.database.expect_writable()
        self.reserve.keep()
        header = Header.of(stored_tensors(graph), {"format": "pt" if graph.framework == "torch" else "np"})
        given = (graph, prepare(graph), header, registration, tensors, owner, model_id, program)
        incoming = Incoming(*given, owner_id, project_id, signature, evidence, sign)
        known = self.catalog.with_ids([model_id]).get(model_id) if model_id else None
        if known is not None:
            return _registered_before(known, incoming)
        admission = self._admission(incoming)
        record = self._publish(incoming, admission)
        evicted = self._aftermath(record, incoming.prepared)
        state = EVICTED if record.id in evicted else record.state  # there may be no room beside better ones
        return Registered(msgspec.structs.replace(record, state=state), admission, evicted)

    def _admission(self, incoming: "Incoming") -> Admission:
        """Judge a model that comes in; if it is refused, the log says so.

        Raises:
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
        """
        said, capacity = incoming.registration, self.settings.capacity
        admission = self.judge(said.metric, said.task, said.data, incoming.owner_id or incoming.owner)
        advice = "It would be of no use as a parent; the setting `admission` decides about such models."
        size = incoming.bytes_needed
        if capacity is not None and size > capacity:
            reason = f"its {size:,} bytes exceed the zoo's capacity of {capacity:,}"
            admission, advice = Admission("refused", reason), "Raise the setting `capacity`."
        if admission.verdict == "refused":
            self.catalog.note(refusal(incoming.record(admission), size, admission.reason))
            raise ModelRefused(said.name, admission.reason, advice)
        return admission

    def _publish(self, incoming: "Incoming", admission: Admission) -> Record:
        """Write a model's folder, then its record: only then it is seen, and on the disk.

        Nothing of the catalog is held meanwhile but a lease on the folder.
        """
        self.expect_own_store()
        draft = incoming.record(admission)
        parents = self.catalog.with_ids(draft.parents) if incoming.signed else {}
        checksums = {parent.id: parent.checksum for parent in parents.values()}
        with self.leases.writing(draft.folder):
            with self.blobs.writing(draft.folder) as folder:
                record = incoming.write(folder, draft, checksums)
                folder.publish()
            said = incoming.registration
            quality = said.metric or "of unknown quality"
            action = REGISTERED if record.finished else REPORTED
            detail = f"{record.name}: {quality}; {admission.reason}"
            event = Event(at=record.created, action=action, model=record.id, user=record.owner, detail=detail)
            curve, start = (said.curve, said.start) if self.settings.history else (None, "")
            what = record, incoming.graph_json, incoming.prepared.to_bytes(), event
            added = self.catalog.add(*what, leased=True, curve=curve, start=start)
        if added.folder != record.folder:  # another was first, or the training has ended since
            self._discard(record.folder)
        if added.id != record.id:
            return added
        _expect(added, (record.owner, record.owner_id), record.checksum)
        self._verified.add(added.id)
        self._discard(*(version.folder for version in self.catalog.replaced_by(added)))
        return added

    def _discard(self, *folders: str) -> None:
        """Delete the files of models that have gone; what cannot be deleted now is swept later."""
        for folder in folders:
            try:
                self.blobs.delete(folder)
            except ZooUnusable as problem:
                _log.warning("left to `modelkeeper gc`: %s", problem)

    def _aftermath(self, record: Record, prepared: "Prepared") -> tuple[str, ...]:
        """Note a new model's twins and make room for it. Which models went?"""
        try:
            self._find_twins(record, prepared)
            self._note_gain(record)
            return self.make_room()
        except ModelKeeperError as problem:  # the model is in; the next registration makes up for this
            _log.warning("after registering %s: %s", record.id, problem)
            return ()

    def judge(self, metric: Metric | None, task: str, data: str, owner: str = "") -> Admission:
        """Is somebody's model with this value far below its peers?"""
        if metric is None:
            return Admission("admitted", "how good it is, is not known")
        followed, group = self.follower.followed(), (task, data, metric.name)
        values, voices = followed.columns.peers(group)
        return admit(
            metric,
            values.tolist(),
            voices.tolist(),
            owner=followed.columns.number(owner),
            summary=followed.peerage.of(group, metric.lower_is_better),
            threshold=self.settings.admission_threshold,
            minimum_peers=max(1, self.settings.minimum_peers),
            mode=self.settings.admission,
        )

    def _find_twins(self, record: Record, prepared: "Prepared") -> None:
        """Remember which near-twins are better than others: that is what retention values."""
        peers = Filter(states=(ACTIVE,), task=record.task, data=record.data)
        index, _, mask = self.passing(peers)
        mask[record.key] = False
        matches = index.search(prepared, floor=NEAR, among=mask).matches[:MOST_TWINS]
        near = {match.key: match.similarity for match in matches}
        self.catalog.set_twins(better_twins(record, near, self.catalog.with_keys(near).values()))

    def _note_gain(self, record: Record) -> None:
        """Say of a new model's parents what came of starting from them, by its place among its peers.

        Nobody praises himself; and where there are users, only who was lent a model can have started from it.
        """
        if record.value is None or not record.finished or not record.parents:
            return
        from modelkeeper.policy.standings import peers_of

        group = record.task, record.data, record.metric
        others = self.follower.followed().columns.peers(group, but=record.key)
        peers = peers_of(*others, record.lower_is_better)
        z = zscore(Metric(record.metric, record.value, record.lower_is_better), peers)
        if peers.number < max(1, self.settings.minimum_peers) or -1 <= z < 0:  # a little below: nobody knows
            return
        gain = z / (1 + abs(z)) or 0.01
        for parent in self.catalog.with_ids(record.parents).values():
            known = not record.owner_id or self.outcomes.was_lent(parent.id, record.owner_id)
            if known and parent.voice != record.voice:
                self.outcomes.add(
                    Outcome(
                        parent=parent.id,
                        user=record.voice,
                        kind=TRAINED,
                        gain=gain,
                        at=record.created,
                        child=record.id,
                    )
                )

    # -- staying --------------------------------------------------------------------------------

    def pin(self, record: Record, pinned: bool, user: str = "", most: int | None = None) -> None:
        """Keep a model whatever it is worth, or no longer.

        Raises:
            QuotaExceeded: Its owner would have more than `most` pinned models.
        """
        event = done_to(record, PINNED if pinned else UNPINNED, user)
        self.freeing(lambda: self.catalog.pin(record, pinned, event, most))

    def publish(self, record: Record, published: bool, user: str = "") -> None:
        """Let partners of other organisations see a model, or no longer.

        Raises:
            InvalidMeta: It has no licence: nobody knows what they may do with it.
        """
        if published and not record.licence:
            advice = f"who uses {record.name!r} must know what is allowed: register it with one, e.g. MIT"
            raise InvalidMeta("licence", "empty", advice)
        event = done_to(record, PUBLISHED if published else UNPUBLISHED, user)
        self.catalog.update(record.id, event, published=published)

    # -- going ----------------------------------------------------------------------------------

    def remove(
        self, record: Record, reason: str = "removed by hand", user: str = "", state: str = REMOVED
    ) -> bool:
        """Take a model out of the zoo; its record stays, for those who descend from it. Was it there?"""

        def retire() -> list[Record]:
            return self.catalog.retire({record.id: reason}, state, user)

        try:
            gone = self.freeing(retire)
        except DiskFull:  # there is no room to say it: first the files, then
            if record.state not in KEPT:
                raise
            self.blobs.delete(record.folder)
            gone = retire()
        self._discard(*(retired.folder for retired in gone))
        self.reserve.keep()
        return bool(gone)

    def freeing(self, act: Callable[[], T]) -> T:
        """Do what makes room, on a full disk by giving up what is there for that, or can be made again."""
        for give_up in (self.reserve.give_up, self._drop_derived):
            try:
                return act()
            except ZooUnusable as problem:
                if not isinstance(problem, DiskFull) and not self.reserve.short:
                    raise
                give_up()
        return act()

    def _drop_derived(self) -> None:
        self.snapshots.drop()
        with contextlib.suppress(ZooUnusable):
            self.catalog.database.truncate_log()

    def make_room(self) -> tuple[str, ...]:
        """Evict what is worth least if the zoo is over its capacity. Which models went?

        In a zoo of many models that means to choose among all of them. So that not every registration has to,
        more goes then than must: see `MANY`.
        """
        capacity = self.settings.capacity
        if capacity is None or self.catalog.bytes_stored() <= capacity:
            return ()
        from modelkeeper.policy.retention import retain

        gone: list[str] = []
        for left in reversed(range(TRIES)):  # while others register, the picture may be old when it is drawn
            clock, stock = self.catalog.clock(), self.catalog.stock()
            valued = items(stock, time.time(), self.outcomes.found())
            spare = capacity // SPARE if len(valued) > MANY else 0
            chosen = retain(valued, capacity, half_life=self.settings.half_life * DAY, spare=spare)
            reasons = {stock.ids[place]: chosen.reason(place) for place in chosen.evicted}
            pinned = {stock.ids[place] for place in chosen.evicted if stock.pinned[place]}
            over = None if left and not spare else capacity  # an old picture is better than none
            retire = partial(self.catalog.retire, reasons, EVICTED, clock=clock, pinned=pinned, over=over)
            retired = self.freeing(retire)
            if retired is not None:
                self._discard(*(record.folder for record in retired))
                gone += [record.id for record in retired]
                if not reasons.keys() & self.catalog.damaged.keys():  # what is damaged stays: others go
                    break
        return tuple(gone)


def _expect_sound(model_id: str, parents: Sequence[str], program: bytes, evidence: bytes) -> None:
    """What becomes part of paths is an id, and nothing is longer than it may be."""
    if model_id and not is_id(model_id):
        raise InvalidMeta("the model's id", repr(model_id)[:80], "give 16 hexadecimal digits, or none")
    if not all(map(is_id, parents)):
        raise InvalidMeta("parent", repr(parents)[:80], "give ids of models")
    if len(program) > MAX_PROGRAM:
        raise InvalidMeta("the program", f"{len(program):,} bytes long", f"at most {MAX_PROGRAM:,}")
    if evidence:
        from modelkeeper.zoo.evidence import unpack

        unpack(evidence)


def _registered_before(known: Record, incoming: "Incoming") -> Registered:
    """The reply to a model that was sent again.

    Raises:
        ModelRefused: Another model has its id.
    """
    _expect(known, (incoming.owner, incoming.owner_id), incoming.checksum())
    verdict: Verdict = "not_a_parent" if known.state == BARRED else "admitted"
    return Registered(known, Admission(verdict, known.reason or "it was registered before"))


def _expect(record: Record, owner: tuple[str, str], checksum: str) -> None:
    """A registration may come twice, but an id belongs to one model."""
    if (record.owner, record.owner_id, record.checksum) != (*owner, checksum):
        raise taken(record)


def taken(record: Record) -> ModelRefused:
    """The error for a model that comes with the id of another one."""
    reason = f"its id is taken: another model has the id {record.id}"
    return ModelRefused(record.name, reason, "Leave the id out, and the zoo gives one.")


def stored_tensors(graph: Graph) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of every tensor that a file of this model's weights holds."""
    for name, tensor in graph.tensors.items():
        if tensor.stored:
            yield name, tensor.dtype, tensor.shape
