"""Bytes from a stranger: always a graph or InvalidGraph, nothing else, and in no time."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph import Graph, from_json, to_json
from modelkeeper.graph.wire import MAX_BYTES
from tests.helpers.strategies import graphs

GOLDEN = (Path(__file__).parent / "golden" / "graph-v2.json").read_bytes()


@contextmanager
def quickly(seconds: float = 10) -> Iterator[None]:
    """Of this process's own time: far more than it takes, far less than what the attack would cost."""
    start = process_time()
    yield
    assert process_time() - start < seconds


def document(**fields: Any) -> bytes:
    """A valid document with no layers, with some of its fields replaced."""
    head = {"format": "modelkeeper.graph", "version": 2, "framework": "torch"}
    names = ("pins", "spaces", "terms", "axes", "paths", "layers", "notes")
    tables: dict[str, Any] = {name: [] for name in names}
    forms = [["w", "weight", "float32"]]
    return json.dumps({**head, **tables, "forms": forms, **fields}).encode()


def layer(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "kind": "linear", **fields}


def owner(*axes: int) -> dict[str, Any]:
    """A layer with one tensor of these axes."""
    return layer(tensors=[[0, *axes]])


def test_a_document_without_layers_is_a_graph() -> None:
    assert from_json(document()) == Graph("torch", ())


HOSTILE: dict[str, bytes | str] = {
    "no bytes": b"",
    "blank": b" " * 1_000,
    "not UTF-8": b'{"format": "\xff\xfe"}',
    "half a surrogate pair": '{"format": "\ud800"}',
    "an escaped half": document(framework="@").replace(b"@", b"\\ud800"),
    "UTF-16": GOLDEN.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + GOLDEN,
    "a pickle": b"\x80\x04\x95\x00\x00\x00\x00.",
    "two documents": GOLDEN + GOLDEN,
    "null": b"null",
    "a list": b"[]",
    "a number": b"1e999",
    "another format": document(format="modelkeeper.zoo"),
    "another version": document(version=3),
    "a version of another type": document(version="1"),
    "no version": b'{"format": "modelkeeper.graph"}',
    "an unknown field": document(extra=1),
    "an unknown field of a layer": document(layers=[layer(weights=[])]),
    "a missing field": b'{"format": "modelkeeper.graph", "version": 1, "framework": "torch"}',
    "NaN": document(layers=[layer(attributes={"eps": float("nan")})]),
    "Infinity": document(layers=[layer(attributes={"eps": float("inf")})]),
    "a number beyond floats": document(layers=[layer(attributes={"eps": 0})]).replace(
        b'"eps": 0', b'"eps": 1e999'
    ),
    "a number beyond 64 bits": document(spaces=[[10**30]]),
    "a number of 100,000 digits": document(spaces=[[0]]).replace(b"[[0]]", b"[[" + b"9" * 100_000 + b"]]"),
    "a negative size": document(spaces=[[-1]]),
    "a fractional size": document(spaces=[[1.5]]),
    "a boolean size": document(spaces=[[True]]),
    "a cycle of layers": document(layers=[layer(inputs=[1]), layer(inputs=[0])]),
    "a layer that feeds itself": document(layers=[layer(inputs=[0])]),
    "a forward edge": document(layers=[layer(inputs=[1]), layer()]),
    "a negative edge": document(layers=[layer(), layer(inputs=[-1])]),
    "an unknown path": document(layers=[layer(), layer(inputs=[[0, 0]])]),
    "a negative path": document(paths=[["relu"]], layers=[layer(), layer(inputs=[[0, -1]])]),
    "a term of itself": document(terms=[["+", 0, 0]]),
    "a forward term": document(terms=[["+", 1, 1], ["=", 1, ""]]),
    "a negative term": document(terms=[["=", 1, ""], ["+", 0, -1]]),
    "an unknown term": document(terms=[["?", 1]]),
    "an empty term": document(terms=[[]]),
    "a term of one part": document(terms=[["=", 1, ""], ["*", 0]]),
    "a term of text": document(terms=[["=", 1, ""], ["*", "0", "0"]]),
    "an unknown space": document(terms=[["@", 0]]),
    "a negative space": document(spaces=[[3]], terms=[["@", -1]]),
    "an axis of no term": document(axes=[["out", 0]]),
    "an axis of a negative term": document(terms=[["=", 1, ""]], axes=[["out", -1]]),
    "a tensor of no axis": document(layers=[owner(0)]),
    "a tensor of a negative axis": document(terms=[["=", 1, ""]], axes=[["out", 0]], layers=[owner(-1)]),
    "an unknown axis role": document(terms=[["=", 1, ""]], axes=[["up", 0]], layers=[owner(0)]),
    "a tensor that was not used before": document(layers=[layer(tensors=[0])]),
    "a negative tensor": document(layers=[owner(), layer(tensors=[-1])]),
    "a tensor of no form": document(layers=[layer(tensors=[[]])]),
    "an unknown form": document(layers=[layer(tensors=[[1]])]),
    "a negative form": document(layers=[layer(tensors=[[-1]])]),
    "unknown flags": document(forms=[["w", "weight", "float32", "z"]]),
    "an unknown dtype": document(forms=[["w", "weight", "float33"]], layers=[owner()]),
    "a dot without a name before it": document(forms=[[".w", "w", "int8"]], layers=[{**owner(), "name": ""}]),
    "a very long name": document(layers=[layer(name="a" * 1_000_000)]),
    "a very long framework": document(framework="a" * 1_000_000),
}

LONG_TERM: list[list[object]] = [["=", 0, ""], ["+", *[0] * 500_000]]
# What would take long, or a lot of memory, without care. Made when it is needed.
HEAVY: dict[str, Callable[[], bytes]] = {
    "nested lists": lambda: b"[" * 1_000_000,
    "nested lists in a field": lambda: document(spaces="@").replace(b'"@"', b"[" * 1_000_000),
    "nested lists in an unknown field": lambda: b'{"x": ' + b"[" * 1_000_000,
    "nested objects": lambda: b'{"x": ' * 1_000_000,
    "terms nested deeply": lambda: document(
        terms=[["=", 1, ""], *[["+*"[n % 2], n, 0] for n in range(1_000)]],
        axes=[["in", 1_000]],
        layers=[owner(0)],
    ),
    "terms that double": lambda: document(
        terms=[["=", 1, ""], *[["+", n, n] for n in range(60)]], axes=[["in", 60]], layers=[owner(0)]
    ),
    "terms that double in turn": lambda: document(
        terms=[["=", 1, ""], *[["+*"[n % 2], n, n] for n in range(60)]], axes=[["in", 60]], layers=[owner(0)]
    ),
    "a product of huge sizes": lambda: document(
        terms=[["=", 2**48, ""], ["*", *[0] * 500_000]], axes=[["in", 1]], layers=[owner(0)]
    ),
    "a long term of many axes": lambda: document(
        terms=LONG_TERM, axes=[["in", 1]] * 20_000, layers=[owner(number) for number in range(20_000)]
    ),
    "a long axis of many tensors": lambda: document(
        terms=LONG_TERM, axes=[["in", 1]], layers=[owner(*[0] * 16)] * 20_000
    ),
    "a tensor with a long axis, used often": lambda: document(
        terms=LONG_TERM, axes=[["in", 1]], layers=[owner(0), layer(tensors=[0] * 99_999)]
    ),
    "a long path of many edges": lambda: document(
        paths=[["relu"] * 500_000], layers=[layer(), *[layer(inputs=[[0, 0]] * 1_000)] * 20]
    ),
    "a long name of many tensors": lambda: document(
        forms=[["." + "w" * 20_000_000, "w", "int8"]], layers=[layer(tensors=[[0]] * 400_000)]
    ),
    "a long layer's name before many tensors": lambda: document(
        forms=[[".w", "w", "int8"]], layers=[layer(name="a" * 20_000_000, tensors=[[0]] * 400_000)]
    ),
    "a role that is costly to check": lambda: document(
        forms=[["w", "é" * 1_000, "int8"]], layers=[layer(tensors=[[0]] * 400_000), layer(inputs=[1])]
    ),
    "20 MB of edges": lambda: document(layers=[layer(inputs="@")]).replace(b'"@"', many(b"0", 10_000_000)),
    "20 MB of tensors": lambda: document(layers=[layer(tensors="@")]).replace(b'"@"', many(b"0", 10_000_000)),
    "20 MB of axes": lambda: document(axes="@").replace(b'"@"', many(b'["in",0]', 2_000_000)),
    "20 MB of spaces": lambda: document(spaces="@").replace(b'"@"', many(b"[1]", 5_000_000)),
    "20 MB of terms": lambda: document(terms="@").replace(b'"@"', many(b'["=",1,""]', 2_000_001)),
    "too many layers": lambda: document(layers=[layer()] * 100_001),
    "too many edges": lambda: document(layers=[layer(), *[layer(inputs=[0] * 1_000)] * 1_001]),
    "too many tensors": lambda: document(layers=[layer(tensors=[[0]] * 1_000)] * 501),
}


def many(item: bytes, count: int) -> bytes:
    return b"[" + (item + b",") * (count - 1) + item + b"]"


def as_version(version: int, data: bytes | str) -> bytes | str:
    """The attack on the reader of another version of the format: version 1 has no table of pins."""
    if version == 2 or isinstance(data, str):
        return data
    return data.replace(b'"version": 2', b'"version": 1', 1).replace(b'"pins": [], ', b"", 1)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_bytes_are_refused_quickly(attack: str, version: int) -> None:
    refused(as_version(version, HOSTILE[attack]))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("attack", HEAVY)
def test_heavy_bytes_are_refused_quickly(attack: str, version: int) -> None:
    refused(as_version(version, HEAVY[attack]()))


# What only version 1 has: pins are sentences, and are read with patterns.
HEAVY_SENTENCES: dict[str, str] = {
    "that hardly end": "opaque: sizes " + "meet in " * 1_900_000,
    "with much in brackets": "groups cut across parts (" + ") in (" * 2_500_000,
    "that begin over and over": "opaque reshape in " * 800_000,
    "with many places": "opaque " + ": " * 7_000_000,
}


@pytest.mark.parametrize("sentence", HEAVY_SENTENCES)
def test_heavy_sentences_of_version_1_are_refused_quickly(sentence: str) -> None:
    refused(as_version(1, document(spaces=[[3, [HEAVY_SENTENCES[sentence]]]])))


def filled(item: bytes) -> bytes:
    """A list of as many of these as a document may hold."""
    return many(item, (MAX_BYTES - 1_000) // (len(item) + 1))


@pytest.mark.parametrize("version", [1, 2])
def test_as_many_spaces_as_a_document_can_hold_are_refused_quickly(version: int) -> None:
    data = as_version(version, document(spaces="@"))
    assert isinstance(data, bytes)
    refused(data.replace(b'"@"', filled(b"[1]")))


def test_as_many_sentences_as_version_1_can_hold_are_refused_quickly() -> None:
    data = as_version(1, document(spaces=[[3, "@"]]))
    assert isinstance(data, bytes)
    refused(data.replace(b'"@"', filled(b'""')))


@pytest.mark.parametrize(
    "fields",
    [
        {"layers": {"name": "a", "kind": "linear"}},
        {"pins": [["output"]]},
        {"spaces": [[3, [0]], [4, ["output"]]]},
        {"spaces": [[10**30]]},
        {"terms": [["=", 10**30, ""]], "axes": [["out", 0]], "layers": [{**owner(0)}]},
    ],
    ids=str,
)
def test_what_version_1_never_wrote_is_refused(fields: dict[str, Any]) -> None:
    refused(as_version(1, document(**fields)))


def refused(data: bytes | str) -> None:
    with quickly(), pytest.raises(InvalidGraph) as raised:
        from_json(data)
    assert len(str(raised.value)) < 2_000


def test_a_huge_document_is_not_even_read() -> None:
    with quickly(1), pytest.raises(InvalidGraph, match="73,400,320 bytes; at most 16,777,216"):
        from_json(bytes(70 * 2**20))


def test_another_version_says_what_to_do() -> None:
    with pytest.raises(InvalidGraph, match="version 7; this modelkeeper reads versions 1 to 2: update it"):
        from_json(document(version=7, unknown="fields of the future"))


def test_a_truncated_document_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(InvalidGraph):
            from_json(GOLDEN[:length])


def refused_or_valid(data: bytes) -> None:
    """The law for any bytes. What is accepted is a whole graph: it can be written and fingerprinted."""
    try:
        graph = from_json(data)
    except InvalidGraph:
        return
    assert from_json(to_json(graph)) == graph
    assert len(graph.fingerprint) == 32


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    refused_or_valid(data)


@given(graphs(), st.data())
def test_mutated_bytes(graph: Graph, data: st.DataObject) -> None:
    mutated = bytearray(to_json(graph))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    refused_or_valid(bytes(mutated))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 30),
    st.sampled_from([2**48, 2**63, -(2**63), 1e308, -0.0, 0.5]),
    st.sampled_from(["", "@", "=", "*", "+", "f", ".", "out", "float32"]),
    st.lists(st.integers(-1, 5), max_size=3),
    st.just({}),
)


@given(graphs(), st.data())
def test_mutated_values(graph: Graph, data: st.DataObject) -> None:
    """Well-formed JSON with odd values in odd places: it gets further than mutated bytes do."""
    found = json.loads(to_json(graph))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(places(found))))
        match data.draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                holder[key] = data.draw(ODD)
            case "remove":
                del holder[key]
            case "repeat" if isinstance(holder, list):
                holder.append(holder[key])
        if not found:
            break
    refused_or_valid(json.dumps(found).encode())


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys, at any depth."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])
