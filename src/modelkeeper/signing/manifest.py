"""What is signed of a model? Its manifest: what it is, how good it is said to be, where it comes from.

    manifest.to_bytes()                   canonical JSON, the same on every machine: see `canonical`
    Manifest.from_bytes(data)             or one error: these bytes are no manifest
    manifest.differences(facts)           what of it is not so, by the record and the files of the model

All but `owner`, `organisation` and `when` can be held against a record: those three are what the signer says
of themselves. Nothing that changes in a zoo (who used it, its state, its project) is part of it, so that a
signature holds in every zoo that a model comes to.
"""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidSignature
from modelkeeper.signing.canonical import canonical, number, parsed

FORMAT, VERSION = "modelkeeper.manifest", 1
MAX_MANIFEST = 256 * 2**10  # bytes
_SAID = ("owner", "organisation", "when")  # what a record cannot confirm
_ID, _DIGEST = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")
_ADVICE = "Take the model from where it was signed."


class SignedParent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that another one started from."""

    id: str
    weights: str = ""  # SHA-256 of its weights; "": the signer did not know it


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was registered."""

    id: str
    name: str
    framework: str
    fingerprint: str  # of the architecture
    graph: str  # SHA-256 of graph.json
    weights: str  # SHA-256 of model.safetensors
    program: str = ""  # SHA-256 of program.json; "": there is none
    evidence: str = ""  # SHA-256 of evidence.safetensors; "": there is none
    metrics: dict[str, float] = {}
    metric: str = ""
    value: float | None = None
    lower_is_better: bool = False
    finished: bool = True
    task: str = ""
    data: str = ""
    fold: str = ""
    tags: tuple[str, ...] = ()
    licence: str = ""
    parents: tuple[SignedParent, ...] = ()
    owner: str = ""
    organisation: str = ""
    when: str = ""  # of the signature, as the signer's clock has it: 2026-11-18T01:02:03Z

    def to_bytes(self) -> bytes:
        """The bytes that are signed.

        Raises:
            InvalidSignature: It is too long, or holds what cannot be written.
        """
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        try:
            plain |= {
                "format": FORMAT,
                "version": VERSION,
                "metrics": {name: number(value) for name, value in self.metrics.items()},
                "value": None if self.value is None else number(self.value),
                "tags": list(self.tags),
                "parents": [{"id": parent.id, "weights": parent.weights} for parent in self.parents],
            }
            data = canonical(plain)
        except (ValueError, TypeError) as problem:
            raise InvalidSignature(self.id, f"it cannot be signed ({problem})", _ADVICE) from problem
        if len(data) > MAX_MANIFEST:
            advice = "Say less of the model."
            raise InvalidSignature(self.id, f"its manifest has {len(data):,} bytes", advice)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """The manifest of bytes that `to_bytes` wrote.

        Raises:
            InvalidSignature: They are none.
        """
        try:
            if len(data) > MAX_MANIFEST:
                raise ValueError(f"{len(data):,} bytes")
            plain = parsed(data)
            if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
                raise ValueError("no manifest")
            if plain.pop("version", None) != VERSION:
                raise ValueError("of another version; a newer modelkeeper may know it")
            metrics = plain.get("metrics")
            plain["metrics"] = {name: _read(text) for name, text in dict(metrics or {}).items()}
            plain["value"] = None if plain.get("value") is None else _read(plain["value"])
            manifest = msgspec.convert(plain, cls)
            if manifest.to_bytes() != data:
                raise ValueError("not written as manifests are")
        except (ValueError, TypeError, msgspec.MsgspecError) as problem:
            raise InvalidSignature("?", f"what was signed is no manifest ({problem})", _ADVICE) from problem
        digests = (manifest.graph, manifest.weights)
        if _ID.fullmatch(manifest.id) is None or not all(map(_DIGEST.fullmatch, digests)):
            raise InvalidSignature("?", "what was signed names no model", _ADVICE)
        return manifest

    def differences(self, facts: "Manifest") -> list[str]:
        """The fields that are otherwise in what is known of the model.

        Parents are the same if their ids are, in order, and their weights where both sides know them.
        """
        different = []
        for name in self.__struct_fields__:
            mine, known = getattr(self, name), getattr(facts, name)
            same = mine == known
            if name in _SAID:
                continue
            if name == "parents":
                same = [parent.id for parent in mine] == [parent.id for parent in known] and all(
                    not one.weights or not other.weights or one.weights == other.weights
                    for one, other in zip(mine, known, strict=False)
                )
            if not same:
                different.append(name)
        return different


def at(seconds: float) -> str:
    """A moment as manifests name it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(text: Any) -> float:
    if not isinstance(text, str):
        raise ValueError("a number that is no text")
    return float(text)
