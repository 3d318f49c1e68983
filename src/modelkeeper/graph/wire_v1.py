"""Graphs as version 1 of the format wrote them: what became of it in version 2?

Version 1 wrote why widths are not free as sentences, and what fixed an axis likewise; both are codes now.
Some operations went by several of ATen's names, and arguments that only steer kernels were written down.
Everything else is the same. What cannot be told from a sentence is kept as it is.
"""

import re
from typing import Any

import msgspec

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


def upgrade(data: bytes | str) -> bytes:
    """A document of version 1 as one of version 2. What is no such document stays wrong in the same place."""
    document = msgspec.json.decode(data)
    pins: dict[tuple[str, str, str], int] = {}
    spaces = [_space(row, pins) for row in _rows(document, "spaces")]
    terms = [_term(row) for row in _rows(document, "terms")]
    paths = [[_step(step) for step in row] if _texts(row) else row for row in _rows(document, "paths")]
    layers = [_layer(row) for row in _rows(document, "layers")]
    changed = {"version": 2, "spaces": spaces, "terms": terms, "paths": paths, "layers": layers}
    kept = {key: value for key, value in changed.items() if key in document}
    return msgspec.json.encode({**document, **kept, "pins": [list(pin) for pin in pins]})


def _rows(document: dict[str, Any], name: str) -> list[Any]:
    rows = document.get(name)
    return rows if isinstance(rows, list) else [rows]


def _texts(row: Any) -> bool:
    return isinstance(row, list) and all(isinstance(text, str) for text in row)


def _space(row: Any, pins: dict[tuple[str, str, str], int]) -> Any:
    if not isinstance(row, list) or len(row) < 2 or not _texts(row[1]):
        return row
    return [row[0], [pins.setdefault(read_pin(text), len(pins)) for text in row[1]], *row[2:]]


def _term(row: Any) -> Any:
    if isinstance(row, list) and len(row) == 3 and row[0] == "=" and isinstance(row[2], str):
        return [*row[:2], _origin(row[2])]
    return row


def _layer(row: Any) -> Any:
    if isinstance(row, dict) and isinstance(row.get("kind"), str):
        return {**row, "kind": _RENAMED.get(row["kind"], row["kind"])}
    return row


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
