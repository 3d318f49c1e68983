"""Graphs as version 1 of the format wrote them: what became of it in version 2?

Version 1 wrote why widths are not free as sentences, and what fixed an axis likewise; both are codes now.
Some operations went by several of ATen's names, and arguments that only steer kernels were written down.
Everything else is the same. What cannot be told from a sentence is kept as it is.
"""

import re

import msgspec
from msgspec import Raw, Struct

from modelkeeper.graph.rules import MAX_TENSORS, limit
from modelkeeper.graph.vocabulary import NORMS, ORIGINS, REASONS

# Names of operations on an edge, as version 1 wrote them.
_RENAMED = {
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "native_channel_shuffle": "channel_shuffle",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "unsafe_split": "split",
    "_unsafe_index": "index",
    "_index_put_impl": "index_put",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "baddbmm": "addmm",
    "vdot": "dot",
    "_weight_norm": "weight_norm",
    "_weight_norm_interface": "weight_norm",
}
_IN_PLACE = ("hardtanh[0,6]", "relu6")  # what an in-place relu6 was seen to do
_KERNELS = re.compile(r",yes\]$")  # a norm could be computed by cuDNN


class _Space(Struct, array_like=True):
    size: int
    pins: tuple[str, ...] = ()
    averaged: bool = False


class _Layer(Struct, forbid_unknown_fields=True):
    name: Raw
    kind: str
    inputs: Raw = Raw(b"[]")
    tensors: Raw = Raw(b"[]")
    attributes: Raw = Raw(b"{}")


class _Document(Struct, forbid_unknown_fields=True):
    """What changed is read, all else is handed on as it is written."""

    format: Raw
    version: int
    framework: Raw
    spaces: tuple[_Space, ...]
    terms: tuple[tuple[int | str, ...], ...]
    axes: Raw
    paths: tuple[tuple[str, ...], ...]
    forms: Raw
    layers: tuple[_Layer, ...]
    notes: Raw


def upgrade(data: bytes | str) -> bytes:
    """A document of version 1 as one of version 2.

    Raises:
        InvalidGraph: It is too large.
        msgspec.DecodeError: It is none. What it hands on unread may still be wrong, in the same place.
        OverflowError: A number is beyond 64 bits.
    """
    document = msgspec.json.decode(data, type=_Document)
    limit("spaces", len(document.spaces), MAX_TENSORS)
    limit("pins", sum(len(space.pins) for space in document.spaces), MAX_TENSORS)
    pins: dict[tuple[str, str, str], int] = {}
    changed = {
        "version": 2,
        "spaces": [
            [space.size, [pins.setdefault(read_pin(text), len(pins)) for text in space.pins], space.averaged]
            for space in document.spaces
        ],
        "terms": [_term(term) for term in document.terms],
        "paths": [[_step(step) for step in path] for path in document.paths],
        "layers": [
            {**msgspec.structs.asdict(layer), "kind": _RENAMED.get(layer.kind, layer.kind)}
            for layer in document.layers
        ],
    }
    return msgspec.json.encode({**msgspec.structs.asdict(document), **changed, "pins": list(pins)})


def _term(term: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """A term; one of a fixed size has its sentence written as a code."""
    match term:
        case ("=", size, str(sentence)):
            return "=", size, _origin(sentence)
    return term


def _step(text: str) -> str:
    name = re.match(r"\w*", text)
    assert name is not None
    new = _RENAMED.get(name[0], name[0])
    text = (new + text[len(name[0]) :]).replace(*_IN_PLACE)
    return _KERNELS.sub("]", text) if new in NORMS else text


def _origin(text: str) -> str:
    for code, sentence in ORIGINS.items():
        if text == sentence or text.startswith((f"{sentence} in ", f"{sentence} (")):
            return code
    return text


def read_pin(text: str) -> tuple[str, str, str]:
    """The code, the place and the detail that a sentence was made of."""
    for code, pattern in _SENTENCES:
        sentence = pattern.fullmatch(text)
        if sentence is not None:
            parts = sentence.groupdict()
            return code, parts.get("where", ""), parts.get("detail", "")
    return "other", "", text


def _pattern(sentence: str) -> re.Pattern[str]:
    text = re.escape(sentence)
    for name in ("where", "detail"):
        text = text.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>.*?)")
    return re.compile(text, re.DOTALL)


# The most particular sentence first: others are contained in it.
_SENTENCES = sorted(
    ((code, _pattern(sentence)) for code, sentence in REASONS.items() if code != "other"),
    key=lambda row: (row[0] == "opaque", -len(row[1].pattern)),
)
