"""What do all routes share? The coordinator, accounts, uploads, limits and counters of one service."""

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from anyio import CapacityLimiter

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.coordinator.wire import DIRECT_BYTES, Account, Told, UploadRequest, UploadState
from modelkeeper.errors import (
    CorruptWeights,
    InvalidMeta,
    InvalidSignature,
    InvalidWeights,
    ModelRefused,
    NotAllowed,
    NotReady,
    QuotaExceeded,
    UnknownModel,
    WrongStore,
    ZooUnusable,
)
from modelkeeper.logs import logger
from modelkeeper.meta import checked
from modelkeeper.policy.admission import Admission
from modelkeeper.policy.credit import CHECKED, Credit
from modelkeeper.server.administration import Administration
from modelkeeper.server.beat import Beat
from modelkeeper.server.comparisons import Comparisons
from modelkeeper.server.graphs import read_graph
from modelkeeper.server.limits import BodyRoom, FairThreads, Rates, Turns
from modelkeeper.server.loans import Loans
from modelkeeper.server.maps import Maps
from modelkeeper.server.prometheus import Metrics
from modelkeeper.server.readiness import Readiness
from modelkeeper.server.upload_store import Reserved, Sending, open_uploads
from modelkeeper.settings import OFF, ServiceSettings
from modelkeeper.signing.envelope import MAX_ENVELOPE
from modelkeeper.weights import MAX_HEADER, Header
from modelkeeper.zoo.accounts.holders import ADMIN, Holder
from modelkeeper.zoo.bounds import MAX_FRAMEWORK
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.evidence import unpack
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.records import PROJECT, Record, Registration, checked_name, is_id
from modelkeeper.zoo.zoo import MAX_PROGRAM, Registered, stored_tensors, taken

T = TypeVar("T")
_log = logger()

PROBES = 4  # threads for those who ask whether the service is ready
STORING = 64  # threads for bytes on their way to and from the store, which may hang
READERS = 16  # threads for what takes no matching: records, counts, files


class Service:
    """One coordinator, offered to many."""

    def __init__(self, coordinator: ServedCoordinator, settings: ServiceSettings) -> None:
        self.coordinator, self.settings = coordinator, settings
        self._expect_store()
        self.accounts = coordinator.accounts
        self.administration = Administration(self.accounts, settings)
        self.readiness = Readiness(coordinator)
        self.rates, self.strangers, self.turns = Rates(), Rates(), Turns()
        self.beat = Beat(coordinator.replica, self.rates)
        self.matching = FairThreads(coordinator.settings.threads or os.cpu_count() or 1)
        self.reading = FairThreads(READERS)
        self.probing, self.storing = CapacityLimiter(PROBES), CapacityLimiter(STORING)
        self.bodies = BodyRoom(settings.body_memory)
        self.metrics = Metrics(coordinator)
        self.maps = Maps(coordinator)
        self.uploads = open_uploads(coordinator)
        self.loans = Loans(coordinator, settings.query_time)
        self.comparisons = Comparisons(coordinator, settings.query_time)

    def _expect_store(self) -> None:
        """A service does not start on a wrong store; on one that is down it does, and says that in its log.

        Raises:
            WrongStore: It is not the one that the catalog belongs to.
            ShardsUnreachable: The search index lies in shards, and what runs them does not answer.
        """
        try:
            self.coordinator.ready()
        except WrongStore:
            raise
        except ZooUnusable as problem:
            _log.warning("%s", problem)
        if self.coordinator.settings.shards:
            with contextlib.suppress(NotReady):  # whoever runs the service goes on asking
                self.coordinator.follow()

    async def read(self, who: Holder, work: Callable[[], T]) -> T:
        """What takes no matching, in a thread, when it is its user's turn."""
        return await self.reading.run(who.user.name, work)

    # -- models of users ------------------------------------------------------------------------

    def announce(self, request: UploadRequest, holder: Holder) -> UploadState:
        """Begin, or go on with, sending a model."""
        owner = holder.user.id if self.settings.auth else checked_name("owner", request.owner)
        if not is_id(request.id):
            raise InvalidMeta("id", repr(request.id[:80]), "give 16 hexadecimal digits")
        done = self._registered(request.id, owner, holder, request.checksum)
        if done is not None:
            return UploadState(id=request.id, offset=request.size, size=request.size, registered=done)
        if re.fullmatch(r"[0-9a-f]{64}", request.checksum) is None:
            raise InvalidMeta("checksum", repr(request.checksum[:80]), "give a SHA-256 in hexadecimal")
        self._registration(request, holder)
        graph = read_graph(bytes(request.graph))
        checked_name("framework", graph.framework, longest=MAX_FRAMEWORK)
        header = Header.of(stored_tensors(graph))
        if not 8 < request.size - header.data_bytes <= MAX_HEADER:
            advice = f"its tensors have {header.data_bytes:,} bytes, and a header goes before them"
            raise InvalidMeta("size", f"{request.size:,}", advice)
        if len(request.program) > MAX_PROGRAM:
            advice = f"at most {MAX_PROGRAM:,}"
            raise InvalidMeta("the program", f"{len(request.program):,} bytes long", advice)
        if len(request.signature) > MAX_ENVELOPE:
            advice = f"at most {MAX_ENVELOPE:,}"
            raise InvalidMeta("the signature", f"{len(request.signature):,} bytes long", advice)
        if request.evidence:
            unpack(request.evidence)  # an error now spares sending the weights
        offset = self.uploads.begin(owner, request, partial(self._check_quota, holder))
        direct = ""
        if not offset and self._is_direct(request.size):
            direct = self.uploads.direct_url(self.uploads.get(request.id, owner))
        return UploadState(id=request.id, offset=offset, size=request.size, direct=direct)

    def _is_direct(self, size: int) -> bool:
        """Is a file of this size to go past this service, if its store can do that?"""
        return self.settings.direct != OFF and size >= DIRECT_BYTES

    def weights_url(self, record: Record) -> str:
        """Where the file of a model can be had from the store itself; "": here alone."""
        return self.coordinator.weights_url(record) if self._is_direct(record.bytes) else ""

    def complete(self, identity: str, holder: Holder, checksum: str = "") -> UploadState:
        """Take a model that was sent into the zoo. Asking again gives the same reply.

        With the `checksum` of its weights nobody is told that another model under its id is theirs.
        """
        checksum = checksum or self.uploads.announced_checksum(identity)
        done = self._completed(identity, holder, checksum)
        if done is not None:
            return done
        try:
            with self.uploads.working(identity):
                return self._complete(identity, holder, checksum)
        except (CorruptWeights, InvalidWeights, UnknownModel, ZooUnusable):
            # Perhaps another process was asked the same, was quicker, and has tidied up.
            done = self._completed(identity, holder, checksum)
            if done is None:
                raise
            return done

    def _completed(self, identity: str, holder: Holder, checksum: str) -> UploadState | None:
        """The reply for a model that is in the zoo already."""
        done = self._registered(identity, self.named(holder), holder, checksum)
        if done is None:
            return None
        self.uploads.forget(identity)
        return UploadState(id=identity, offset=done.record.bytes, size=done.record.bytes, registered=done)

    def _complete(self, identity: str, holder: Holder, checksum: str) -> UploadState:
        sending = self.uploads.get(identity, self.named(holder))
        request, offset = sending.request, sending.offset
        if checksum not in ("", request.checksum):
            raise CorruptWeights(identity, "another model was announced under its id")
        if not offset and self._is_direct(request.size) and self.uploads.take_direct(sending):
            offset = request.size
        if offset != request.size:
            raise CorruptWeights(identity, f"{offset:,} of its {request.size:,} bytes have arrived")
        with self.uploads.staged(identity) as staged:
            if (staged.written.bytes, staged.written.checksum) != (request.size, request.checksum):
                self.uploads.forget(identity)
                problem = "what has arrived has another checksum than what was announced"
                raise CorruptWeights(identity, problem)
            done = self._take_in(sending, staged, holder)
        self.uploads.forget(identity)
        self.metrics.registered.inc()
        self.metrics.evictions.inc(len(done.evicted))
        seen = self.coordinator.known(done.evicted, holder.viewer)
        evicted = tuple(identity for identity in done.evicted if identity in seen)
        done = msgspec.structs.replace(done, evicted=evicted)
        return UploadState(id=identity, offset=offset, size=offset, registered=done)

    def _take_in(self, sending: Sending, staged: Staged, holder: Holder) -> Registered:
        """Register a model whose bytes are all there."""
        request = sending.request
        identity, registration = request.id, self._registration(request, holder)
        self._check_quota(holder, [Reserved(identity, sending.owner, request.size)])
        graph = read_graph(bytes(request.graph))
        try:
            return self.coordinator.register(
                graph,
                registration,
                staged,
                owner=holder.user.name if self.settings.auth else sending.owner,
                model_id=identity,
                program=request.program,
                signature=request.signature,
                evidence=request.evidence,
                owner_id=holder.user.id,
                project_id=self._project_id(registration.project, holder),
            )
        except (InvalidSignature, InvalidWeights, ModelRefused):
            self.uploads.forget(identity)  # sending it again would not help
            raise

    def owned(self, identity: str, holder: Holder) -> Record:
        """A model that the holder may change.

        Raises:
            UnknownModel: There is none that they may see.
            NotAllowed: It is somebody else's.
        """
        if not is_id(identity):
            raise InvalidMeta("id", repr(identity[:80]), "give 16 hexadecimal digits")
        record = self.coordinator.show(identity, holder.viewer)
        if not holder.may(ADMIN) and record.owner_id != holder.user.id:
            raise NotAllowed(f"model {record.id} belongs to {record.owner}", "Ask them, or an administrator.")
        return record

    def pin(self, identity: str, pinned: bool, holder: Holder) -> Record:
        """Keep a model that the holder may change whatever it is worth, or no longer."""
        record = self.owned(identity, holder)
        most = _first(holder.user.pins, self.settings.quota_pins)
        if holder.may(ADMIN) or not self.settings.auth:
            most = None
        user = holder.user.name
        return self.coordinator.pin(record.id, pinned, user=user, viewer=holder.viewer, most=most)

    def tell(self, identity: str, told: Told, holder: Holder) -> Credit:
        """Note what somebody says came of a model.

        Raises:
            NotAllowed: It was not lent to them, so they cannot know.
        """
        record = self.coordinator.show(identity, holder.viewer)
        user = holder.user.id if self.settings.auth else told.user
        lent = not self.settings.auth or holder.may(ADMIN) or self.coordinator.was_lent(record, user)
        if told.kind != CHECKED and not lent:  # who may see a model may check it
            problem = f"model {record.id} was not lent to you"
            raise NotAllowed(problem, "Who started from it can say what came of it.")
        return self.coordinator.tell(record.id, told.kind, told.gain, user=user, viewer=holder.viewer)

    def publish(self, identity: str, published: bool, holder: Holder) -> Record:
        """Let partners see a model that the holder may change, or no longer."""
        record = self.owned(identity, holder)
        return self.coordinator.publish(record.id, published, user=holder.user.name, viewer=holder.viewer)

    def named(self, holder: Holder) -> str | None:
        """Whose uploads the holder may see; None: where there are no users, everyone's."""
        return holder.user.id if self.settings.auth else None

    def _registered(
        self, identity: str, owner: str | None, holder: Holder, checksum: str
    ) -> Registered | None:
        """What became of a model that was sent before; `checksum`: of its weights, "": nobody knows any more.

        Raises:
            NotAllowed: Another user has a model with this id.
            ModelRefused: The model with this id has other weights.
        """
        record = self.coordinator.known([identity]).get(identity)
        if record is None:
            return None
        if self.settings.auth and owner != record.owner_id:
            raise NotAllowed(f"the id {identity} is taken", "Choose another.")
        record = self.coordinator.show(identity, holder.viewer)
        if checksum not in ("", record.checksum):
            self.uploads.forget(identity)
            raise taken(record)
        return Registered(record, Admission("admitted", "it is registered already"))

    def gc(self, grace: float | None, verify: bool, user: str = "") -> Swept:
        """Sweep what was left behind, also by those who began to send a model."""
        old = self.uploads.sweep(self.coordinator.settings.grace if grace is None else grace)
        swept = self.coordinator.gc(grace=grace, verify=verify, user=user)
        self.metrics.evictions.inc(len(swept.evicted))
        return msgspec.structs.replace(swept, staging=swept.staging + old)

    def _registration(self, request: UploadRequest, holder: Holder) -> Registration:
        """What is said of a model that is sent, if it can be so and the holder may say it."""
        registration = checked(request.registration)
        for parent in registration.parents:
            if not is_id(parent):
                raise InvalidMeta("parent", repr(parent), "give the id of a model")
        registration = _for_project(registration, holder)
        if registration.seen_by == PROJECT and not registration.project:
            raise InvalidMeta("project", "''", "visibility is project: say which")
        if (
            registration.project
            and self.settings.auth
            and registration.project not in holder.projects
            and not holder.may(ADMIN)
        ):
            raise NotAllowed(
                f"you are no member of project {registration.project!r}", "Ask an administrator."
            )
        return registration

    def _project_id(self, project: str, holder: Holder) -> str:
        """The id of a project; administrators may name any."""
        if not project or not self.settings.auth:
            return ""
        identity = holder.projects.get(project) or self.accounts.project_id(project)
        if not identity:
            raise InvalidMeta("project", repr(project), "there is none of this name")
        return identity

    def account(self, holder: Holder) -> Account:
        """Who somebody is, what they may do, and how much they keep."""
        user, auth = holder.user, self.settings.auth
        models, size = self.coordinator.kept_by(user.id) if auth else (0, 0)
        return Account(
            user=user.name,
            id=user.id,
            scope=holder.scope,
            projects=tuple(holder.projects),
            models=models,
            bytes=size,
            most_models=_first(user.models, self.settings.quota_models) if auth else None,
            most_bytes=_first(user.bytes, self.settings.quota_bytes) if auth else None,
            most_pins=_first(user.pins, self.settings.quota_pins) if auth else None,
        )

    def _check_quota(self, holder: Holder, sending: Sequence[Reserved]) -> None:
        """May a user have all of these under way, beside what they keep?"""
        if not self.settings.auth:
            return
        ids = [upload.id for upload in sending]
        while True:
            arrived = self.coordinator.known(ids).keys()
            count, kept = self.coordinator.kept_by(holder.user.id)
            if self.coordinator.known(ids).keys() == arrived:  # else one came meanwhile, counted twice
                break
        sizes = [upload.bytes for upload in sending if upload.id not in arrived]  # the others are kept
        most = _first(holder.user.models, self.settings.quota_models)
        if most is not None and count + len(sizes) > most:
            under_way = f" and send {len(sizes)}" if len(sizes) > 1 else ""
            raise QuotaExceeded(f"you keep {count}{under_way} models, {most} are allowed", "Remove some.")
        most = _first(holder.user.bytes, self.settings.quota_bytes)
        if most is not None and kept + sum(sizes) > most:
            problem = f"{kept + sum(sizes):,} bytes with what is being sent, {most:,} are allowed"
            raise QuotaExceeded(problem, "Remove some of your models.")


def _for_project(registration: Registration, holder: Holder) -> Registration:
    """The same registration; who belongs to one project registers for it, unless they say otherwise."""
    if registration.project or registration.visibility not in ("", PROJECT) or len(holder.projects) != 1:
        return registration
    return msgspec.structs.replace(registration, project=next(iter(holder.projects)))


def _first(own: int | None, common: int | None) -> int | None:
    return common if own is None else own
