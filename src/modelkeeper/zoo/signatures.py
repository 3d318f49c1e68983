"""Is a model of a zoo what its signer says? Between records and the manifests that are signed.

    sign = signing_with(key, owner="ada")           what a client gives to whoever registers
    envelope = sign(record, {parent: checksum})     when the record is known, and all checksums in it
    signed_by(envelope, record, {parent: checksum})   who signed just this model; or InvalidSignature

The record says what the files hold, by their checksums; that they do is compared when they are read.
"""

import time
from collections.abc import Callable, Mapping

import msgspec

from modelkeeper.errors import InvalidSignature
from modelkeeper.settings import Settings
from modelkeeper.signing import Key, Manifest, Signed, SignedParent, load_key, opened, verify
from modelkeeper.signing import sign as sign_bytes
from modelkeeper.signing.keys import place
from modelkeeper.signing.manifest import at
from modelkeeper.zoo.records import Record

# Makes the signature of a model from its record and the checksums of its parents' weights, where known.
Sign = Callable[[Record, Mapping[str, str]], bytes]


def manifest_of(record: Record, parents: Mapping[str, str] | None = None) -> Manifest:
    """What a record says of a model, as it is signed; with the checksums of parents that are known."""
    known = parents or {}
    return Manifest(
        id=record.id,
        name=record.name,
        framework=record.framework,
        fingerprint=record.fingerprint,
        graph=record.graph,
        weights=record.checksum,
        program=record.program,
        evidence=record.evidence,
        metrics={name: float(value) for name, value in record.metrics.items()},
        metric=record.metric,
        value=record.value,
        lower_is_better=record.lower_is_better,
        finished=record.finished,
        task=record.task,
        data=record.data,
        fold=record.fold,
        tags=record.tags,
        licence=record.licence,
        parents=tuple(SignedParent(id=parent, weights=known.get(parent, "")) for parent in record.parents),
    )


def signing_with(key: Key, *, owner: str = "", organisation: str = "") -> Sign:
    """What signs models with a key, as said by these."""

    def sign(record: Record, parents: Mapping[str, str]) -> bytes:
        who = {"owner": owner, "organisation": organisation, "when": at(time.time())}
        return sign_bytes(msgspec.structs.replace(manifest_of(record, parents), **who).to_bytes(), key)

    return sign


def signer_of(settings: Settings, owner: str) -> Sign | None:
    """What signs the models of a user, if a key is set; None: nothing is signed.

    Raises:
        InvalidKey: The key cannot be used.
    """
    if not settings.key:
        return None
    key = load_key(place(settings.key))
    return signing_with(key, owner=owner, organisation=settings.organisation)


def signed_as_seen(envelope: bytes, record: Record) -> Signed:
    """Who signed a model, by its record as a viewer sees it: without parents that are hidden from them.

    Raises:
        InvalidSignature: The signature does not hold, or something that it says is not so.
    """
    try:
        named = [parent.id for parent in Manifest.from_bytes(opened(envelope).payload).parents]
    except InvalidSignature as problem:
        raise InvalidSignature(record.id, problem.problem, problem.advice) from problem
    if [parent for parent in named if parent in record.parents] == list(record.parents) and named:
        record = msgspec.structs.replace(record, parent=named[0], more_parents=tuple(named[1:]))
    return signed_by(envelope, record)


def signed_by(envelope: bytes, record: Record, parents: Mapping[str, str] | None = None) -> Signed:
    """Who signed a model, if all that was signed is what its record says.

    Raises:
        InvalidSignature: The signature does not hold, or something that it says is not so.
    """
    return verify(envelope, manifest_of(record, parents))
