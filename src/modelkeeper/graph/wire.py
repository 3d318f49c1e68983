"""Graphs as bytes: version 2 of the format, one compact JSON document.

Whatever repeats stands in a table and is referred to by its number: why widths are not free (`pins`: code,
where, detail), expressions (`terms`), axes, edge labels (`paths`), and what tensors look like apart from
their axes (`forms`: name, role, dtype, flags; a name that continues its layer's name is written from the dot
on). A tensor is its form and its axes; one that a layer used before is the number of that use. Terms refer
only to earlier terms, so a document cannot describe a cycle, and the leaves they unfold to are counted before
anything is built: bad bytes cost no more than their length.

    {"format": "modelkeeper.graph", "version": 2, "framework": "torch",
     "pins":   [["output"]],
     "spaces": [[16], [10, [0]]],
     "terms":  [["@", 0], ["=", 3, "kernel"], ["*", 0, 1]],
     "axes":   [["out", 0], ["in", 2, [[0, 1]]]],
     "paths":  [["relu"]],
     "forms":  [[".weight", "weight", "float32"]],
     "layers": [{"name": "fc", "kind": "linear", "inputs": [0, [1, 0]],
                 "tensors": [[0, 0, 1]]}],
     "notes":  []}

Version 1, in which pins were sentences, is read and upgraded: see `wire_v1`.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph import wire_v1
from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, Space
from modelkeeper.graph.rules import MAX_DEPTH, MAX_EDGES, MAX_LEAVES, MAX_TENSORS, MAX_TEXT, limit
from modelkeeper.graph.structure import Attribute, Axis, Edge, Graph, Layer, Note, Tensor
from modelkeeper.graph.vocabulary import Pin

T = TypeVar("T")

FORMAT = "modelkeeper.graph"
VERSION = 2
MAX_BYTES = 16 * 2**20

# A tensor is a trainable, live, stored parameter unless a letter says otherwise.
FROZEN, BUFFER, DEAD, DERIVED = "f", "b", "d", "n"


class _Form(Struct, array_like=True):
    name: str
    role: str
    dtype: str
    flags: str = ""


class _Layer(Struct, forbid_unknown_fields=True):
    name: str
    kind: str
    inputs: tuple[int | tuple[int, int], ...] = ()
    tensors: tuple[int | tuple[int, ...], ...] = ()
    attributes: dict[str, bool | int | float | str | tuple[int, ...]] = {}


class _Space(Struct, array_like=True):
    size: int
    pins: tuple[int, ...] = ()
    averaged: bool = False


class _Axis(Struct, array_like=True):
    role: str
    term: int
    degrees: tuple[tuple[int, int], ...] = ()


class Document(Struct, forbid_unknown_fields=True):
    """A graph as it is written."""

    format: str
    version: int
    framework: str
    pins: tuple[Pin, ...]
    spaces: tuple[_Space, ...]
    terms: tuple[tuple[int | str, ...], ...]
    axes: tuple[_Axis, ...]
    paths: tuple[tuple[str, ...], ...]
    forms: tuple[_Form, ...]
    layers: tuple[_Layer, ...]
    notes: tuple[tuple[str, str, str], ...]


class _Head(Struct):
    format: str = ""
    version: int = 0


# Made while this is imported: two threads that first read a type at the same time crash msgspec.
_heads, _documents = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Document)


def to_json(graph: Graph) -> bytes:
    """The graph as bytes. The same graph always gives the same bytes."""
    pins, terms, axes, paths, forms = _Table(), _Table(), _Table(), _Table(), _Table()
    spaces = [
        _trim([space.size, _pack_pins(space, pins), space.averaged], [[], False]) for space in graph.spaces
    ]
    used: dict[Tensor, int] = {}
    layers = []
    for layer in graph.layers:
        row: dict[str, Any] = {"name": layer.name, "kind": layer.kind}
        if layer.inputs:
            row["inputs"] = [_pack_edge(edge, paths) for edge in layer.inputs]
        if layer.tensors:
            row["tensors"] = [
                used[tensor] if tensor in used else _pack_tensor(tensor, layer.name, forms, axes, terms, used)
                for tensor in layer.tensors
            ]
        if layer.attributes:
            row["attributes"] = dict(sorted(layer.attributes.items()))
        layers.append(row)
    return msgspec.json.encode(
        {
            "format": FORMAT,
            "version": VERSION,
            "framework": graph.framework,
            "pins": pins.rows,
            "spaces": spaces,
            "terms": terms.rows,
            "axes": axes.rows,
            "paths": paths.rows,
            "forms": forms.rows,
            "layers": layers,
            "notes": [[note.topic, note.where, note.text] for note in graph.notes],
        }
    )


def from_json(data: bytes | str) -> Graph:
    """The graph that `to_json` wrote. Anything else raises InvalidGraph and says where it is wrong."""
    if len(data) > MAX_BYTES:
        raise InvalidGraph("document", f"{len(data):,} bytes; at most {MAX_BYTES:,}")
    try:
        head = _heads.decode(data)
        if head.format != FORMAT:
            raise InvalidGraph("document", f"its format is {head.format[:40]!r}, not {FORMAT!r}")
        if head.version not in (1, VERSION):
            advice = f"this modelkeeper reads versions 1 to {VERSION}: update it"
            raise InvalidGraph("document", f"version {head.version}; {advice}")
        document = _documents.decode(wire_v1.upgrade(data) if head.version == 1 else data)
    except (msgspec.DecodeError, RecursionError, UnicodeError, OverflowError) as error:
        raise InvalidGraph("document", str(error)) from error
    limit("edges", sum(len(layer.inputs) for layer in document.layers), MAX_EDGES)
    limit("tensors", sum(len(layer.tensors) for layer in document.layers), MAX_TENSORS)
    limit("axes", len(document.axes), MAX_TENSORS)
    limit("spaces", len(document.spaces), MAX_TENSORS)
    limit("pins", sum(len(space.pins) for space in document.spaces), MAX_TENSORS)
    limit("terms", len(document.terms), MAX_LEAVES)
    spaces = tuple(
        Space(space.size, tuple(_at(document.pins, pin, "pins") for pin in space.pins), space.averaged)
        for space in document.spaces
    )
    terms = _unpack_terms(document.terms, spaces)
    axes = [Axis(axis.role, _at(terms, axis.term, "terms"), axis.degrees) for axis in document.axes]
    for number, form in enumerate(document.forms):  # here, not where they are used: that may be often
        if len(form.name) > MAX_TEXT or not set(form.flags) <= {FROZEN, BUFFER, DEAD, DERIVED}:
            raise InvalidGraph(f"form {number}", f"name {form.name[:40]!r}, flags {form.flags[:40]!r}")
    used: list[Tensor] = []
    return Graph(
        framework=document.framework,
        layers=tuple(_unpack_layer(layer, document, axes, used) for layer in document.layers),
        spaces=spaces,
        notes=tuple(Note(*note) for note in document.notes),
    )


class _Table:
    """Rows told apart by a key, numbered as they first come."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._numbers: dict[Any, int] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._numbers

    def number(self, key: Any, row: list[Any]) -> int:
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.rows)
            self.rows.append(row)
        return known


def _trim(row: list[Any], defaults: list[Any]) -> list[Any]:
    """Drop trailing fields that hold their default."""
    while defaults and row[-1] == defaults[-1]:
        row, defaults = row[:-1], defaults[:-1]
    return row


def _pack_pins(space: Space, pins: _Table) -> list[int]:
    return [pins.number(pin, _trim([pin.code, pin.where, pin.detail], ["", ""])) for pin in space.pins]


def _pack_edge(edge: Edge, paths: _Table) -> int | list[int]:
    return [edge.source, paths.number(edge.via, list(edge.via))] if edge.via else edge.source


def _pack_tensor(
    tensor: Tensor, owner: str, forms: _Table, axes: _Table, terms: _Table, used: dict[Tensor, int]
) -> list[Any]:
    used[tensor] = len(used)
    name = tensor.name.removeprefix(owner) if owner and tensor.name.startswith(owner + ".") else tensor.name
    flags = (
        FROZEN * (not tensor.trainable)
        + BUFFER * tensor.buffer
        + DEAD * (not tensor.live)
        + DERIVED * (not tensor.stored)
    )
    form = _trim([name, tensor.role, tensor.dtype, flags], [""])
    numbers = [
        axes.number(axis, [])
        if axis in axes
        else axes.number(axis, _trim([axis.role, _pack(axis.of, terms), axis.degrees], [()]))
        for axis in tensor.axes
    ]
    return [forms.number(tuple(form), form), *numbers]


def _pack(expression: Expression, terms: _Table) -> int:
    match expression:
        case Atom(space):
            return terms.number(expression, ["@", space])
        case Fixed(size, origin):
            return terms.number(expression, ["=", size, origin])
        case Product(parts):
            return terms.number(expression, ["*", *[_pack(part, terms) for part in parts]])
        case Concat(parts):
            return terms.number(expression, ["+", *[_pack(part, terms) for part in parts]])


def _unpack_terms(rows: tuple[tuple[int | str, ...], ...], spaces: tuple[Space, ...]) -> list[Expression]:
    terms: list[Expression] = []
    depth: list[int] = []
    count: list[int] = []
    total = 0
    for number, row in enumerate(rows):
        where = f"term {number}"
        match row:
            case ("@", int(space)):
                terms.append(Atom(space, _at(spaces, space, "spaces").size))
                depth.append(0)
                count.append(1)
            case ("=", int(size), str(origin)):
                terms.append(Fixed(size, origin))
                depth.append(0)
                count.append(1)
            case ("*" | "+", *parts) if len(parts) >= 2 and all(_earlier(part, number) for part in parts):
                below = [int(part) for part in parts]
                depth.append(1 + max(depth[p] for p in below))
                count.append(sum(count[p] for p in below))
                if depth[-1] >= MAX_DEPTH:
                    raise InvalidGraph(where, f"nested deeper than {MAX_DEPTH}")
                members: Any = tuple(terms[p] for p in below)
                terms.append(Product(members) if row[0] == "*" else Concat(members))
            case _:
                raise InvalidGraph(where, f"{str(row)[:80]} is no term")
        total += count[-1]
        if total > MAX_LEAVES:
            raise InvalidGraph(where, f"the terms unfold to more than {MAX_LEAVES:,} leaves")
    return terms


def _earlier(part: int | str, number: int) -> bool:
    return isinstance(part, int) and 0 <= part < number


def _unpack_layer(layer: _Layer, document: Document, axes: list[Axis], used: list[Tensor]) -> Layer:
    inputs = []
    for edge in layer.inputs:
        source, via = (
            (edge, ()) if isinstance(edge, int) else (edge[0], _at(document.paths, edge[1], "paths"))
        )
        inputs.append(Edge(source, via))
    tensors = []
    for row in layer.tensors:
        if isinstance(row, int):
            tensors.append(_at(used, row, "tensors"))
        else:
            tensors.append(_unpack_tensor(row, layer.name, document.forms, axes))
            used.append(tensors[-1])
    attributes: dict[str, Attribute] = layer.attributes
    return Layer(layer.name, layer.kind, tuple(inputs), tuple(tensors), attributes)


def _unpack_tensor(row: tuple[int, ...], owner: str, forms: Sequence[_Form], axes: list[Axis]) -> Tensor:
    if not row or len(owner) > MAX_TEXT:
        raise InvalidGraph(f"a tensor of layer {owner[:80]!r}", "it has no form, or too long a name")
    form = _at(forms, row[0], "forms")
    return Tensor(
        name=owner + form.name if form.name.startswith(".") else form.name,
        role=form.role,
        dtype=form.dtype,
        axes=tuple(_at(axes, number, "axes") for number in row[1:]),
        trainable=FROZEN not in form.flags,
        buffer=BUFFER in form.flags,
        live=DEAD not in form.flags,
        stored=DERIVED not in form.flags,
    )


def _at(table: Sequence[T], number: int, name: str) -> T:
    if not 0 <= number < len(table):
        raise InvalidGraph(name, f"no entry {number} among {len(table)}")
    return table[number]
