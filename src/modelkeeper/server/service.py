"""What do all routes share? The coordinator, accounts, uploads, limits and counters of one service."""

import functools
import hashlib
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from modelkeeper.coordinator.local import Coordinator, Warmth
from modelkeeper.coordinator.wire import UploadRequest, UploadState, WeightsRequest, weights_key
from modelkeeper.errors import (
    CorruptWeights,
    InvalidGraph,
    InvalidMeta,
    InvalidWeights,
    ModelRefused,
    NotAllowed,
    QuotaExceeded,
)
from modelkeeper.graph import Graph, from_json
from modelkeeper.meta import checked
from modelkeeper.policy.admission import Admission
from modelkeeper.server.limits import Matching, Rates
from modelkeeper.server.prometheus import Metrics
from modelkeeper.server.uploads import Uploads
from modelkeeper.settings import ServiceSettings
from modelkeeper.weights import MAX_HEADER, Header
from modelkeeper.zoo.accounts import ADMIN, Accounts, Holder
from modelkeeper.zoo.gc import Swept
from modelkeeper.zoo.records import PROJECT, Record, Registration, is_id
from modelkeeper.zoo.zoo import Registered, stored_tensors

PIECE = 2**20  # bytes handed to the network at a time
MOST_WARM = 16  # streams that are begun again without planning again
MOST_CHECKSUMS = 1000
MAX_FRAMEWORK = 40
SMALL = 2**18  # bytes of a graph that is worth remembering


class Service:
    """One coordinator, offered to many."""

    def __init__(self, coordinator: Coordinator, settings: ServiceSettings) -> None:
        self.coordinator, self.settings = coordinator, settings
        self.accounts = Accounts(coordinator.zoo.catalog)
        self.rates = Rates()
        self.matching = Matching(coordinator.settings.threads or os.cpu_count() or 1)
        self.metrics = Metrics(coordinator)
        self.uploads = Uploads(_upload_folder(coordinator))
        self._warm: OrderedDict[str, Warmth] = OrderedDict()
        self._checksums: OrderedDict[str, str] = OrderedDict()

    # -- weights of a child ---------------------------------------------------------------------

    def warmth(self, request: WeightsRequest, holder: Holder) -> tuple[str, Warmth]:
        """What a parent lends to a model, and the name of just these bytes."""
        if not is_id(request.parent):
            raise InvalidMeta("parent", repr(request.parent[:80]), "give the id that the answer names")
        parent = self.coordinator.show(request.parent, holder.viewer)
        key = weights_key(parent.checksum, bytes(request.graph), request.query)
        found = self._warm.pop(key, None)
        if found is None:
            graph = read_graph(bytes(request.graph))
            found = self.coordinator.lend(graph, request.query, parent.id, holder.viewer)
        self._warm[key] = found
        while len(self._warm) > MOST_WARM:
            self._warm.popitem(last=False)
        return key, found

    def gathered(self, key: str, warmth: Warmth, total: int, start: int) -> Iterator[memoryview]:
        """The bytes of a stream from a place on; at its end its checksum is known."""
        digest, at = hashlib.sha256(), 0
        for chunk in warmth.stream():
            digest.update(chunk)
            if at + len(chunk) == total:  # before its last byte leaves, so that nobody can ask too early
                self._checksums[key] = digest.hexdigest()
                while len(self._checksums) > MOST_CHECKSUMS:
                    self._checksums.popitem(last=False)
            view = memoryview(chunk)[max(0, start - at) :]
            for begin in range(0, len(view), PIECE):
                yield view[begin : begin + PIECE]
            at += len(chunk)

    def checksum(self, key: str) -> str | None:
        """The checksum of a stream that this process has sent to its end."""
        return self._checksums.get(key)

    # -- models of users ------------------------------------------------------------------------

    def announce(self, request: UploadRequest, holder: Holder) -> UploadState:
        """Begin, or go on with, sending a model."""
        owner = self.owner(request, holder)
        if not is_id(request.id):
            raise InvalidMeta("id", repr(request.id[:80]), "give 16 hexadecimal digits")
        done = self._registered(request.id, owner, holder)
        if done is not None:
            return UploadState(id=request.id, offset=request.size, size=request.size, registered=done)
        if re.fullmatch(r"[0-9a-f]{64}", request.checksum) is None:
            raise InvalidMeta("checksum", repr(request.checksum[:80]), "give a SHA-256 in hexadecimal")
        self._told(request, holder)
        graph = read_graph(bytes(request.graph))
        if len(graph.framework) > MAX_FRAMEWORK:
            raise InvalidGraph("framework", f"{graph.framework[:40]!r}…; at most {MAX_FRAMEWORK} characters")
        header = Header.of(stored_tensors(graph))
        if not 8 < request.size - header.data_bytes <= MAX_HEADER:
            advice = f"its tensors have {header.data_bytes:,} bytes, and a header goes before them"
            raise InvalidMeta("size", f"{request.size:,}", advice)
        if not self.uploads.has(request.id, owner):
            self._check_quota(owner, holder, request.size)
        offset = self.uploads.begin(owner, request)
        return UploadState(id=request.id, offset=offset, size=request.size)

    def complete(self, identity: str, holder: Holder) -> UploadState:
        """Take a model that was sent into the zoo. Asking again gives the same reply."""
        owner = self.named(holder)
        done = self._registered(identity, owner, holder)
        if done is not None:
            self.uploads.forget(identity)
            return UploadState(id=identity, offset=done.record.bytes, size=done.record.bytes, registered=done)
        announced, offset = self.uploads.get(identity, owner)
        request = announced.request
        if offset != request.size:
            raise CorruptWeights(identity, f"{offset:,} of its {request.size:,} bytes have arrived")
        staged = self.uploads.staged(identity)
        if staged.written.checksum != request.checksum:
            self.uploads.forget(identity)
            raise CorruptWeights(identity, "what has arrived has another checksum than what was announced")
        told, graph = self._told(request, holder), read_graph(bytes(request.graph))
        try:
            done = self.coordinator.register(
                graph, told, staged, owner=announced.owner, model_id=identity, program=request.program
            )
        except (InvalidWeights, ModelRefused):
            self.uploads.forget(identity)  # sending it again would not help
            raise
        self.uploads.forget(identity)
        self.metrics.registered.inc()
        self.metrics.evictions.inc(len(done.evicted))
        seen = self.coordinator.zoo.catalog.with_ids(done.evicted, holder.viewer)
        done = msgspec.structs.replace(done, evicted=tuple(each for each in done.evicted if each in seen))
        return UploadState(id=identity, offset=offset, size=offset, registered=done)

    def owned(self, identity: str, holder: Holder) -> Record:
        """A model that the holder may change.

        Raises:
            UnknownModel: There is none that they may see.
            NotAllowed: It is somebody else's.
        """
        if not is_id(identity):
            raise InvalidMeta("id", repr(identity[:80]), "give 16 hexadecimal digits")
        record = self.coordinator.show(identity, holder.viewer)
        if not holder.may(ADMIN) and record.owner != holder.user.name:
            raise NotAllowed(f"model {record.id} belongs to {record.owner}", "Ask them, or an administrator.")
        return record

    def owner(self, request: UploadRequest, holder: Holder) -> str:
        """In whose name a model is registered: where there are users, nobody else's."""
        return holder.user.name if self.settings.auth else request.owner[:200]

    def named(self, holder: Holder) -> str | None:
        """Whose uploads the holder may see; None: where there are no users, everyone's."""
        return holder.user.name if self.settings.auth else None

    def _registered(self, identity: str, owner: str | None, holder: Holder) -> Registered | None:
        record = self.coordinator.zoo.catalog.with_ids([identity]).get(identity)
        if record is None:
            return None
        if owner not in (None, record.owner):
            raise NotAllowed(f"the id {identity} is taken", "Choose another.")
        record = self.coordinator.show(identity, holder.viewer)
        return Registered(record, Admission("admitted", "it is registered already"))

    def gc(self, grace: float | None, verify: bool) -> Swept:
        """Sweep what was left behind, also by those who began to send a model."""
        old = self.uploads.sweep(self.coordinator.settings.grace if grace is None else grace)
        swept = self.coordinator.gc(grace=grace, verify=verify)
        return msgspec.structs.replace(swept, staging=swept.staging + old)

    def _told(self, request: UploadRequest, holder: Holder) -> Registration:
        told = checked(request.registration)
        if told.parent and not is_id(told.parent):
            raise InvalidMeta("parent", repr(told.parent), "give the id of a model")
        if told.visibility == PROJECT and not told.project:
            raise InvalidMeta("project", "''", "visibility is project: say which")
        if (
            told.project
            and self.settings.auth
            and told.project not in holder.projects
            and not holder.may(ADMIN)
        ):
            raise NotAllowed(f"you are no member of project {told.project!r}", "Ask an administrator.")
        return told

    def _check_quota(self, owner: str, holder: Holder, size: int) -> None:
        if not self.settings.auth:
            return
        count, kept = self.coordinator.zoo.catalog.kept_by(owner)
        sending = [each.request.size for each in self.uploads.open() if each.owner == owner]
        most = _first(holder.user.models, self.settings.quota_models)
        if most is not None and count + len(sending) >= most:
            raise QuotaExceeded(f"you keep {count} models, {most} are allowed", "Remove some.")
        most = _first(holder.user.bytes, self.settings.quota_bytes)
        if most is not None and kept + sum(sending) + size > most:
            problem = f"{kept + sum(sending) + size:,} bytes of weights, {most:,} are allowed"
            raise QuotaExceeded(problem, "Remove some of your models.")


@functools.lru_cache(maxsize=64)
def _read_small(text: bytes) -> Graph:
    return from_json(text)


def read_graph(text: bytes) -> Graph:
    """A graph from its JSON. Trials of one search ask for few architectures again and again."""
    return _read_small(text) if len(text) <= SMALL else from_json(text)


def _first(own: int | None, common: int | None) -> int | None:
    return common if own is None else own


def _upload_folder(coordinator: Coordinator) -> Path:
    local = coordinator.zoo.blobs.staging
    if local is not None:
        return local
    if coordinator.settings.in_memory:
        return Path(tempfile.mkdtemp(prefix="modelkeeper-uploads-"))
    return coordinator.settings.folder / "uploads"
