"""A model on its way into the zoo: what will its record be, and which files does its folder get?

    incoming = Incoming(graph, prepared, header, registration, tensors, owner)
    record = incoming.record(admission)                    all but the size and checksum of its weights
    record = incoming.write(folder, record, parents)       its files; now with both, and who signed it

Nothing here decides whether it is taken in, and nobody sees it before its folder is published: see `Zoo`.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from modelkeeper.graph import Graph, to_json
from modelkeeper.lasting import cached_property
from modelkeeper.matching import Prepared
from modelkeeper.policy.admission import Admission
from modelkeeper.weights import Array, Header, stream, without_nan
from modelkeeper.zoo import card
from modelkeeper.zoo.files.blobs import CARD, CONFIG, EVIDENCE, GRAPH, PROGRAM, SIGNATURE, WEIGHTS
from modelkeeper.zoo.files.folders import Folder
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.records import ACTIVE, BARRED, Record, Registration, new_id
from modelkeeper.zoo.signatures import Sign, signed_by


@dataclass(frozen=True)
class Incoming:
    """What somebody gives the zoo: a model, its weights, and what is said of it."""

    graph: Graph
    prepared: Prepared  # what the matcher makes of the graph
    header: Header  # where each tensor will lie in the file of its weights
    registration: Registration
    tensors: Iterable[tuple[str, Array]] | Staged
    owner: str
    model_id: str = ""  # "": it gets one
    program: bytes = b""  # "": whoever starts from it cannot calibrate
    owner_id: str = ""
    project_id: str = ""
    signature: bytes = b""  # an envelope; "": nobody signed it, unless `sign` does
    evidence: bytes = b""  # held-out examples, for whoever checks what is claimed
    sign: Sign | None = None  # makes the signature when all checksums are known

    @cached_property
    def graph_json(self) -> bytes:
        """The graph as it is stored."""
        return to_json(self.graph)

    @property
    def bytes_needed(self) -> int:
        """How long the file of its weights will be."""
        return len(self.header.to_bytes()) + self.header.data_bytes

    @property
    def signed(self) -> bool:
        """Did anybody sign it, or will?"""
        return bool(self.signature) or self.sign is not None

    def checksum(self) -> str:
        """The SHA-256 of its weights; tensors that come one by one are gone afterwards."""
        digest = hashlib.sha256()
        for chunk in self._chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def record(self, admission: Admission) -> Record:
        """Its record, without the size and checksum of weights that are not written yet."""
        admitted = admission.verdict == "admitted"
        return msgspec.structs.replace(
            drafted(self.graph, self.graph_json, self.registration, self.owner, self.model_id),
            attempt=secrets.token_hex(8) if self.model_id else "",  # an id that others know comes again
            owner_id=self.owner_id,
            project_id=self.project_id,
            state=ACTIVE if admitted else BARRED,
            reason="" if admitted else admission.reason,
        )

    def write(self, folder: Folder, record: Record, parents: Mapping[str, str]) -> Record:
        """Write its files; gives its record with the size and checksum of the weights, and who signed it.

        Args:
            folder: Where they go.
            record: As `record` made it.
            parents: The checksums of its parents' weights, by their ids, where they are known.

        Raises:
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            InvalidSignature: What was signed is not this model.
        """
        if isinstance(self.tensors, Staged):
            self.tensors.check(self.header)
            staged = self.tensors
            written = folder.adopt(WEIGHTS, staged.path, staged.written, staged.source)
        else:
            written = folder.write(WEIGHTS, self._chunks())
        record = with_files(record, written.bytes, written.checksum, self.program, self.evidence)
        signature = self.signature
        if self.sign is not None and not signature:
            signature = self.sign(record, parents)
        if signature:
            signer = signed_by(signature, record, parents).signer
            record = msgspec.structs.replace(record, signer=signer)
        small_files = {
            GRAPH: self.graph_json,
            CONFIG: card.config(record),
            CARD: card.card(record),
            PROGRAM: self.program,
            EVIDENCE: self.evidence,
            SIGNATURE: signature,
        }
        for name, content in small_files.items():
            if content:
                folder.write(name, [content])
        return record

    def _chunks(self) -> Iterator[bytes | memoryview]:
        if isinstance(self.tensors, Staged):
            return self.tensors.chunks()
        return stream(self.header, without_nan(self.tensors))


def drafted(
    graph: Graph, graph_json: bytes, said: Registration, owner: str = "", model_id: str = ""
) -> Record:
    """The record of a model by what is said of it, without what its files are."""
    now = time.time()
    return Record(
        id=model_id or new_id(),
        name=said.name,
        owner=owner,
        project=said.project,
        visibility=said.seen_by,
        data=said.data,
        fold=said.fold,
        task=said.task,
        tags=said.tags,
        metrics=said.metrics,
        metric=said.metric.name if said.metric else "",
        value=said.metric.value if said.metric else None,
        lower_is_better=said.metric.lower_is_better if said.metric else False,
        framework=graph.framework,
        parameters=graph.parameters,
        bytes=0,
        fingerprint=graph.fingerprint,
        graph=hashlib.sha256(graph_json).hexdigest(),
        checksum="",
        licence=said.licence,
        parent=said.parent,
        more_parents=said.more_parents,
        similarity=said.similarity,
        run=said.run,
        finished=said.finished,
        origin=said.origin,
        created=now,
        last_used=now,
    )


def with_files(record: Record, size: int, checksum: str, program: bytes, evidence: bytes) -> Record:
    """The same record with what the files of its model are: what a signature needs."""
    digests = {
        name: hashlib.sha256(data).hexdigest() if data else ""
        for name, data in (("program", program), ("evidence", evidence))
    }
    return msgspec.structs.replace(record, bytes=size, checksum=checksum, **digests)
