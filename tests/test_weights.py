"""Weights as bytes: what is written is read again, by others too; what is hostile is refused."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper import weights as ours
from modelkeeper.errors import InvalidWeights
from modelkeeper.weights import Array, Header, Weights, dtype_of, holds_nan, open_file, stream

DTYPES = sorted(ours._CODES)
THEIRS = [
    name for name in DTYPES if "float8" not in name and name != "bfloat16"
]  # what the package reads into NumPy

names = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != ours.METADATA)
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def array_of(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Random bytes, so that every number of a type may come up, NaN and infinities too."""
    wanted = dtype_of(dtype)
    count = int(np.prod(shape, dtype=int))
    random = np.random.default_rng(seed).integers(0, 256, count * wanted.itemsize, np.uint8)
    if dtype == "bool":
        random &= 1
    return random.view(wanted).reshape(shape)


@st.composite
def files(draw: st.DrawFn, dtypes: list[str] = DTYPES) -> dict[str, Array]:
    each = st.builds(array_of, st.sampled_from(dtypes), shapes, st.integers(0, 9))
    return draw(st.dictionaries(names, each, max_size=6))


def to_bytes(arrays: dict[str, Array], metadata: dict[str, str] | None = None) -> bytes:
    header = Header.of(((name, str(a.dtype), a.shape) for name, a in arrays.items()), metadata)
    return b"".join(stream(header, arrays.items()))


def from_bytes(data: bytes) -> Weights:
    return Weights(lambda offset, length: memoryview(data)[offset : offset + length], len(data))


def same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@settings(max_examples=40)
@given(files())
def test_what_is_written_is_read_again(arrays: dict[str, Array]) -> None:
    data = to_bytes(arrays, {"format": "np"})
    found = from_bytes(data)
    assert found.header.metadata == {"format": "np"}
    assert set(found) == set(arrays)
    assert all(same(found[name], array) for name, array in arrays.items())
    for spec in found.header.tensors.values():
        assert (len(data) - found.header.data_bytes + spec.begin) % dtype_of(spec.dtype).itemsize == 0


@settings(max_examples=40)
@given(files(THEIRS))
def test_the_safetensors_package_reads_ours_and_we_read_its(arrays: dict[str, Array]) -> None:
    theirs = safetensors.numpy.load(to_bytes(arrays))
    assert set(theirs) == set(arrays)
    assert all(same(np.asarray(theirs[name]), array) for name, array in arrays.items())
    again = from_bytes(safetensors.numpy.save(arrays))
    assert set(again) == set(arrays)
    assert all(same(again[name], array) for name, array in arrays.items())


def test_torch_reads_float8_and_bfloat16_of_ours() -> None:
    import torch
    from safetensors.torch import load, save

    kinds = [name for name in DTYPES if "float8" in name or name == "bfloat16"]
    arrays = {name: array_of(name, (3, 5), 1) for name in kinds}
    found = load(to_bytes(arrays))
    for name, array in arrays.items():
        assert found[name].dtype == getattr(torch, name)
        assert found[name].view(torch.uint8).numpy().tobytes() == array.tobytes()
    again = from_bytes(save(found))
    assert all(same(again[name], array) for name, array in arrays.items())


def test_bytes_are_what_they_were() -> None:
    arrays = {"b": np.array([1, 2], np.int8), "a": np.array([[1.5]], np.float32), "s": np.float64(2)}
    assert to_bytes({name: np.asarray(array) for name, array in arrays.items()}, {"format": "pt"}) == (
        b"\xc8\x00\x00\x00\x00\x00\x00\x00"
        b'{"__metadata__":{"format":"pt"},'
        b'"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},'
        b'"b":{"dtype":"I8","shape":[2],"data_offsets":[12,14]}}' + b" " * 6 + b"\0\0\0\0\0\0\0@"
        b"\0\0\xc0?\x01\x02"
    )


@settings(max_examples=40)
@given(files(), st.randoms())
def test_tensors_may_come_in_any_order(arrays: dict[str, Array], random: Any) -> None:
    header = Header.of((name, str(a.dtype), a.shape) for name, a in arrays.items())
    mixed = list(arrays.items())
    random.shuffle(mixed)
    assert b"".join(stream(header, mixed)) == b"".join(stream(header, arrays.items()))


def test_strided_and_foreign_endian_arrays() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for other in (array.T.copy().T, array[::1], array.astype(">f4"), np.asfortranarray(array)):
        header = Header.of([("x", "float32", (3, 4))])
        assert same(from_bytes(b"".join(stream(header, [("x", other)])))["x"], array)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "missing"),
        ([("y", np.zeros(2, np.float32))], "nobody asked"),
        ([("x", np.zeros(3, np.float32))], "instead of"),
        ([("x", np.zeros(2, np.float64))], "instead of"),
        ([("x", np.zeros(2, np.float32))] * 2, "twice"),
    ],
)
def test_what_does_not_fit_the_header_is_not_written(given: list[tuple[str, Array]], problem: str) -> None:
    with pytest.raises(InvalidWeights, match=problem):
        list(stream(Header.of([("x", "float32", (2,))]), given))


def test_what_the_format_cannot_hold_is_refused() -> None:
    for name, dtype in (("x", "complex128"), ("x", "nonsense"), ("__metadata__", "float32")):
        with pytest.raises(InvalidWeights):
            Header.of([(name, dtype, (2,))])
    with pytest.raises(InvalidWeights, match="twice"):
        Header.of([("x", "float32", (2,)), ("x", "float32", (2,))])


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def file_of(header: Any, data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


HOSTILE = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "no header": (2).to_bytes(8, "little"),
    "a header beyond the end": file_of({"x": entry()}, length=10**6),
    "a huge header": file_of({"x": entry()}, length=2**63),
    "no JSON": file_of(b"{]"),
    "a list": file_of([]),
    "nested deeply": file_of(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "invalid unicode": file_of(b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    "half a surrogate": file_of(b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    "overlapping": file_of({"x": entry(), "y": entry()}),
    "overlapping by one": file_of({"x": entry(), "y": entry(offsets=(7, 15))}, b"\0" * 15),
    "a gap": file_of({"x": entry(), "y": entry(offsets=(9, 17))}, b"\0" * 17),
    "a gap in front": file_of({"x": entry(offsets=(1, 9))}, b"\0" * 9),
    "the end first": file_of({"x": entry(offsets=(8, 0))}),
    "negative offsets": file_of({"x": entry(offsets=(-8, 0))}),
    "more data than tensors": file_of({"x": entry()}, b"\0" * 9),
    "less data than tensors": file_of({"x": entry()}, b"\0" * 7),
    "no tensors but data": file_of({}),
    "another size than the type's": file_of({"x": entry("F64")}),
    "an unknown type": file_of({"x": entry("F32X")}),
    "a huge type": file_of({"x": entry("F" * 10**6)}),
    "a negative dimension": file_of({"x": entry(shape=(-2,))}),
    "two negative dimensions": file_of({"x": entry(shape=(-1, -2))}),
    "a dimension that is no number": file_of({"x": entry(shape=("2",))}),
    "a dimension of 1e999": file_of(b'{"x":{"dtype":"F32","shape":[1e999],"data_offsets":[0,8]}}'),
    "a huge dimension": file_of({"x": entry(shape=(2**70,), offsets=(0, 2**72))}),
    "a huge dimension of nothing": file_of({"x": entry(shape=(0, 2**62, 8), offsets=(0, 0))}, b""),
    "a number of 5,000 digits": file_of(
        b'{"x":{"dtype":"F32","shape":[1' + b"0" * 5000 + b'],"data_offsets":[0,8]}}'
    ),
    "many dimensions": file_of({"x": entry(shape=[1] * 40, offsets=(0, 4))}, b"\0" * 4),
    "dimensions without end": file_of({"x": entry(shape=[1] * 10**6, offsets=(0, 4))}, b"\0" * 4),
    "three offsets": file_of({"x": entry(offsets=(0, 8, 8))}),
    "no offsets": file_of({"x": {"dtype": "F32", "shape": [2]}}),
    "metadata that is no text": file_of({"__metadata__": {"a": 1}, "x": entry()}),
    "a name twice": file_of(
        b'{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
        b'"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    ),
    "a name twice, written otherwise": file_of(
        b'{"x":1,"\\u0078":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    ),
    "too many tensors": file_of(
        b"{%s}"
        % b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % n for n in range(200_001)),
        b"",
    ),
    "a long name": file_of({"x" * 10**6: entry("X")}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused_at_once(kind: str) -> None:
    data = HOSTILE[kind]
    tracemalloc.start()
    begun = time.perf_counter()
    try:
        with pytest.raises(InvalidWeights) as problem:
            from_bytes(data)
        assert time.perf_counter() - begun < 5
        assert tracemalloc.get_traced_memory()[1] < 2**20 + 20 * len(data)
        assert len(str(problem.value)) < 2000
    finally:
        tracemalloc.stop()


def test_good_headers_that_look_odd_are_read() -> None:
    spaced = file_of(b' {"x" : {"shape":[2], "dtype":"F32","data_offsets":[0,8]} } \n')
    assert list(from_bytes(spaced)) == ["x"]
    quoted = {
        'a"b': entry(),
        "\\": entry(shape=(0, 2**40), offsets=(8, 8)),
        "": entry(shape=(), offsets=(8, 12)),
    }
    found = from_bytes(file_of(quoted, b"\0" * 12))
    assert [found[name].shape for name in quoted] == [(2,), (0, 2**40), ()]
    assert len(from_bytes(file_of({}, b""))) == 0
    assert list(from_bytes(file_of({"x": entry(more="ignored")}))) == ["x"]


@settings(max_examples=40)
@given(files(), st.data())
def test_a_damaged_file_gives_weights_or_one_clear_error(
    arrays: dict[str, Array], data: st.DataObject
) -> None:
    good = to_bytes(arrays)
    at = data.draw(st.integers(0, len(good) - 1))
    cut = data.draw(st.booleans())
    bad = good[:at] if cut else good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
    try:
        found = dict(from_bytes(bad))
    except InvalidWeights:
        return
    assert not cut
    assert sum(array.nbytes for array in found.values()) <= len(bad)


def test_a_file_is_mapped_and_outlives_the_block(tmp_path: Path) -> None:
    array = np.arange(1000, dtype=np.float32)
    path = tmp_path / "model.safetensors"
    path.write_bytes(to_bytes({"x": array}))
    kept = open_file(path)["x"]
    path.unlink()
    assert same(kept, array)
    assert not kept.flags.writeable
    for bad in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidWeights):
            open_file(bad)
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidWeights, match="empty"):
        open_file(tmp_path / "empty")


@given(st.sampled_from(DTYPES), shapes, st.integers(0, 99))
def test_nan_is_found_just_where_it_is(dtype: str, shape: tuple[int, ...], seed: int) -> None:
    array = array_of(dtype, shape, seed)
    floating = "float" in dtype or "complex" in dtype
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = array.astype(np.complex128) if floating else array
    assert holds_nan(array) == (floating and bool(np.isnan(wide).any()))


def test_infinities_and_huge_numbers_are_no_nan() -> None:
    assert not holds_nan(np.array([np.inf, -np.inf, 3e38, 0], np.float32))
    assert not holds_nan(np.array([1e308, -1e308] * 9))
    assert not holds_nan(np.array([np.inf, -np.inf], ml_dtypes.bfloat16))


@given(st.sampled_from(["float16", "bfloat16", "float32", "float64", "complex64"]), st.integers(0, 40_000))
def test_one_nan_among_many_is_found_in_any_layout(dtype: str, place: int) -> None:
    array = np.ones(40_001, dtype_of(dtype))
    assert not holds_nan(array)
    array[place] = np.nan
    assert holds_nan(array)
    assert holds_nan(array[::-1])
    assert holds_nan(np.ascontiguousarray(array[:, None, None].transpose(2, 0, 1)))
    assert holds_nan(array.astype(array.dtype.newbyteorder(">")))
    assert holds_nan(array[place : place + 1].reshape(()))
    array[place] = 1
    assert not holds_nan(array)
