"""Is this what somebody signed? An envelope: a payload, who signed it, and the signature.

    envelope = sign(manifest.to_bytes(), key)      goes where the model goes, as signature.json
    opened(envelope)                               payload and key, if the signature holds
    verify(envelope, facts)                        likewise, and all that it says is so: by which key?

It is a DSSE envelope (github.com/secure-systems-lab/dsse) with the public key beside the signature: signed is
the type of the payload with the payload, each with its length before it (PAE), so that nothing that was
signed for another purpose passes for a manifest. An envelope is canonical JSON: if a single bit of it is
another, it is no envelope any more, or the signature does not hold.

That a signature holds says who signed, not that they are to be trusted: see `trusted`.
"""

import base64
import binascii
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidKey, InvalidSignature
from modelkeeper.signing.canonical import canonical, parsed
from modelkeeper.signing.keys import Key, PublicKey
from modelkeeper.signing.manifest import MAX_MANIFEST, Manifest

MANIFEST = "application/vnd.modelkeeper.manifest+json"
MAX_ENVELOPE = 2 * MAX_MANIFEST
_ADVICE = "Do not use the model; ask who registered it."


class Opened(Struct, frozen=True):
    """What an envelope holds, whose signature holds."""

    payload: bytes
    public: PublicKey


class Signed(Struct, frozen=True):
    """A model that is what its signer says."""

    manifest: Manifest
    public: PublicKey

    @property
    def signer(self) -> str:
        """The id of the key."""
        return self.public.id


def sign(payload: bytes, key: Key, kind: str = MANIFEST) -> bytes:
    """An envelope with a payload of a kind, signed by a key."""
    public = key.public
    signature = {
        "keyid": public.id,
        "public": public.raw.hex(),
        "sig": _base64(key.sign(_signed(kind, payload))),
    }
    return canonical({"payload": _base64(payload), "payloadType": kind, "signatures": [signature]})


def opened(envelope: bytes, kind: str = MANIFEST) -> Opened:
    """The payload of an envelope and the key that signed it.

    Raises:
        InvalidSignature: It is no envelope of this kind, or the signature does not hold.
    """
    try:
        if len(envelope) > MAX_ENVELOPE:
            raise ValueError(f"{len(envelope):,} bytes")
        payload, public, signature = _parts(parsed(envelope), kind)
    except (ValueError, TypeError, KeyError, InvalidKey, binascii.Error) as problem:
        raise InvalidSignature("?", f"this is no signature ({problem})", _ADVICE) from problem
    if not public.verifies(signature, _signed(kind, payload)):
        raise InvalidSignature("?", f"the signature is not of key {public.id[:16]}", _ADVICE)
    return Opened(payload, public)


def verify(envelope: bytes, facts: Manifest) -> Signed:
    """What was signed of a model, and by which key, if it is what is known of the model.

    Raises:
        InvalidSignature: The signature does not hold, or something that it says is not so.
    """
    try:
        inside = opened(envelope)
        manifest = Manifest.from_bytes(inside.payload)
    except InvalidSignature as problem:
        raise InvalidSignature(facts.id, problem.problem, problem.advice) from problem
    different = manifest.differences(facts)
    if different:
        raise InvalidSignature(facts.id, f"signed was something else: {', '.join(different)}", _ADVICE)
    return Signed(manifest, inside.public)


def _signed(kind: str, payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _parts(plain: Any, kind: str) -> tuple[bytes, PublicKey, bytes]:
    if set(plain) != {"payload", "payloadType", "signatures"} or plain["payloadType"] != kind:
        raise ValueError("it is of another kind")
    (signature,) = plain["signatures"]
    if set(signature) != {"keyid", "public", "sig"}:
        raise ValueError("it has other fields")
    public = PublicKey.of_hex(signature["public"])
    if signature["keyid"] != public.id:
        raise ValueError("the id is not that of the key")
    return _bytes(plain["payload"]), public, _bytes(signature["sig"])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    """What a text in base64 stands for; of the texts that some decoders take for it, one alone is right."""
    data = base64.b64decode(text, validate=True)
    if _base64(data) != text:
        raise ValueError("base64 that others would write otherwise")
    return data
