"""Graphs as version 1 of the format wrote them: what became of it in version 2?

Version 1 wrote why widths are not free as sentences, and what fixed an axis likewise; both are codes now.
Some operations went by several of ATen's names, arguments that only steer kernels were written down, and so
were numbers that are as usual. Everything else is the same. What cannot be told from a sentence is kept as
it is.
"""

import re

import msgspec
from msgspec import Raw, Struct

from modelkeeper.graph.rules import MAX_TENSORS, limit
from modelkeeper.graph.vocabulary import CUTS, NORMS, ORIGINS, REASONS, RECTIFIERS, USUAL_NUMBERS, operation

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
_NUMBERED = re.compile(r"(\w+)\[([^\[\]]*)\]")  # an operation with its numbers, alone or within a function
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


_documents = msgspec.json.Decoder(_Document)  # made here, where just one thread comes by


def upgrade(data: bytes | str) -> bytes:
    """A document of version 1 as one of version 2.

    Raises:
        InvalidGraph: It is too large.
        msgspec.DecodeError: It is none. What it hands on unread may still be wrong, in the same place.
        OverflowError: A number is beyond 64 bits.
    """
    document = _documents.decode(data)
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
    text = new + text[len(name[0]) :]
    return _KERNELS.sub("]", text) if new in NORMS else _NUMBERED.sub(_respelled, text)


def _respelled(step: re.Match[str]) -> str:
    """An operation with its numbers as it is written now: see `tracing.paths`."""
    name, numbers = step[1], step[2].split(",")
    try:
        if len(numbers) == sum(map(bool, CUTS.get(name, ()))):
            below, above = float(numbers[0]), float(numbers[1]) if len(numbers) > 1 else None
            for ends, text in RECTIFIERS.items():
                if ends == (below, above):
                    return text
        if name in USUAL_NUMBERS:
            numbers = _unusual(numbers, list(USUAL_NUMBERS[name].values()))
        elif "pools" in operation(name).traits:
            numbers = _window(name, numbers)
    except ValueError:  # no numbers: it stays what it is
        return step[0]
    return f"{name}[{','.join(numbers)}]" if numbers else name


def _unusual(given: list[str], usual: list[float | str]) -> list[str]:
    """The numbers of an activation, up to the last that is not as usual."""
    read = [
        text if isinstance(value, str) else float(text) for text, value in zip(given, usual, strict=False)
    ]
    while read and read[-1] == usual[len(read) - 1]:
        read.pop()
    return [text if isinstance(text, str) else repr(text) for text in read]


def _window(name: str, given: list[str]) -> list[str]:
    """The numbers of a pooling, for each axis; behind the stride, what is as usual is left out."""
    rank = int(name.partition("_pool")[2][0])
    sizes = [[int(n) for n in text.split("x")] for text in given if text != "yes"]
    sizes = [numbers * rank if len(numbers) == 1 else numbers for numbers in sizes]
    sizes += sizes[:1] if len(sizes) == 1 else []  # the stride is the window
    usual = [[], [], [0] * rank, [1] * rank]
    ceiled = "yes" in given
    if ceiled:
        sizes += usual[len(sizes) : 4 if name.startswith("max") else 3]
    while len(sizes) > 2 and sizes[-1] == usual[len(sizes) - 1] and not ceiled:
        sizes.pop()
    return ["x".join(map(str, numbers)) for numbers in sizes] + (["yes"] if ceiled else [])


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
