"""Envelopes: who signed what. Any bit that is another is noticed."""

import base64
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidSignature
from modelkeeper.signing import Key, Manifest, opened, sign, verify
from modelkeeper.signing.canonical import canonical, parsed

KEY = Key(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = Key(Ed25519PrivateKey.from_private_bytes(bytes(32)))
GOLDEN = Path(__file__).parent / "golden"
PAYLOAD = (GOLDEN / "manifest-v1.json").read_bytes()
FACTS = Manifest.from_bytes(PAYLOAD)
ENVELOPE = sign(PAYLOAD, KEY)


def test_the_envelope_of_version_1_is_what_it_always_was() -> None:
    assert (GOLDEN / "envelope-v1.json").read_bytes() == ENVELOPE
    signed = verify(ENVELOPE, FACTS)
    assert (signed.signer, signed.manifest) == (KEY.public.id, FACTS)


def test_it_is_an_envelope_that_other_tools_verify() -> None:
    """By the words of the DSSE specification, without our code."""
    plain = msgspec.json.decode(ENVELOPE)
    kind, body = plain["payloadType"], base64.b64decode(plain["payload"])
    text = f"DSSEv1 {len(kind)} {kind} {len(body)} ".encode() + body
    public = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key()
    public.verify(base64.b64decode(plain["signatures"][0]["sig"]), text)


@given(st.integers(0, 8 * len(ENVELOPE) - 1))
@example(0)
@example(8 * len(ENVELOPE) - 1)
def test_any_bit_that_flips_is_noticed(bit: int) -> None:
    damaged = bytearray(ENVELOPE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidSignature):
        verify(bytes(damaged), FACTS)


@given(st.integers(0, 8 * len(PAYLOAD) - 1))
def test_any_bit_of_the_manifest_that_was_another_is_noticed(bit: int) -> None:
    damaged = bytearray(PAYLOAD)
    damaged[bit // 8] ^= 1 << bit % 8
    plain = parsed(ENVELOPE)
    with pytest.raises(InvalidSignature, match="not of key"):
        verify(canonical(plain | {"payload": base64.b64encode(damaged).decode()}), FACTS)


@given(st.binary(max_size=200) | st.sampled_from([b"{}", b"[]", b"null", b'""', b"[" * 9000]))
def test_other_bytes_are_no_envelope(data: bytes) -> None:
    with pytest.raises(InvalidSignature):
        opened(data)


def test_the_key_of_somebody_else_does_not_make_it_theirs() -> None:
    plain = parsed(ENVELOPE)
    (signature,) = plain["signatures"]
    stolen = signature | {"public": OTHER.public.raw.hex(), "keyid": OTHER.public.id}
    for wrong in (stolen, signature | {"keyid": OTHER.public.id}):
        with pytest.raises(InvalidSignature):
            verify(canonical(plain | {"signatures": [wrong]}), FACTS)
    with pytest.raises(InvalidSignature):
        verify(canonical(plain | {"signatures": [signature, signature]}), FACTS)


def test_what_was_signed_for_another_purpose_is_no_manifest() -> None:
    other = sign(PAYLOAD, KEY, "application/vnd.modelkeeper.other+json")
    with pytest.raises(InvalidSignature, match="another kind"):
        verify(other, FACTS)
    renamed = parsed(other) | {"payloadType": parsed(ENVELOPE)["payloadType"]}
    with pytest.raises(InvalidSignature, match="not of key"):
        verify(canonical(renamed), FACTS)
    assert opened(other, "application/vnd.modelkeeper.other+json").payload == PAYLOAD


def test_a_signature_of_another_model_says_what_differs() -> None:
    facts = msgspec.structs.replace(FACTS, weights="00" * 32, metrics={"accuracy": 0.9})
    with pytest.raises(InvalidSignature, match="weights, metrics"):
        verify(ENVELOPE, facts)


def test_an_endless_envelope_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidSignature, match="bytes"):
        opened(b" " * 10**6)
