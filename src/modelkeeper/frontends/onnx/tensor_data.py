"""How does an ONNX model hold the numbers of a tensor? In its own bytes, in lists, or in a file beside it.

    array_of(tensor, folder)     the numbers: a view of the file, where it lies apart
    set_array(tensor, array)     other numbers, in the model's own bytes

A tensor in another file is named by a path that whoever wrote the model chose: it must lie in the model's own
folder, and be as long as it says.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from modelkeeper.errors import InvalidModelFile
from modelkeeper.graph.rules import DTYPES, MAX_RANK, MAX_SIZE
from modelkeeper.weights import Array

_ADVICE = "Export the model again, or copy all of its files into one folder"


def dtype_name(kind: int) -> str:
    """A type of ONNX as graphs call it; "opaque" if they have no name for it."""
    try:
        name = helper.tensor_dtype_to_np_dtype(kind).name
    except (KeyError, TypeError, ValueError):
        return "opaque"
    return name if name in DTYPES else "opaque"


def shape_of(tensor: TensorProto) -> tuple[int, ...]:
    """The shape of a tensor, checked: sizes may come from anyone."""
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK or any(size < 0 for size in shape) or math.prod(shape) > MAX_SIZE:
        raise InvalidModelFile(_called(tensor), f"it cannot have the shape {list(shape)[:MAX_RANK]}", _ADVICE)
    return shape


def array_of(tensor: TensorProto, folder: Path | None) -> Array:
    """The numbers of a tensor, not to be written to.

    Args:
        tensor: As the model has it.
        folder: Where the model's file lies; None: it has none.

    Raises:
        InvalidModelFile: The numbers are not there, or are not as many as its shape says.
    """
    shape, dtype = shape_of(tensor), numpy_type(tensor)
    length = math.prod(shape) * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        return _mapped(tensor, folder, shape, dtype)
    if not tensor.HasField("raw_data"):
        try:
            array: Array = numpy_helper.to_array(tensor)
        except Exception as error:  # whatever NumPy makes of lists that do not fit the shape
            raise InvalidModelFile(_called(tensor), "its numbers do not fit its shape", _ADVICE) from error
        return array
    raw = tensor.raw_data
    if len(raw) != length:
        problem = f"it has {len(raw):,} bytes, its shape needs {length:,}"
        raise InvalidModelFile(_called(tensor), problem, _ADVICE)
    return np.frombuffer(raw, dtype).reshape(shape)


def set_array(tensor: TensorProto, array: Array) -> None:
    """Give a tensor other numbers of its type and shape, in the model's own bytes."""
    raw = array.tobytes()
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = raw


def size_of(tensor: TensorProto) -> int:
    """The bytes that the numbers of a tensor take."""
    return math.prod(shape_of(tensor)) * numpy_type(tensor).itemsize


def is_external(tensor: TensorProto) -> bool:
    """Do its numbers lie in a file beside the model?"""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def place(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Say that the numbers of a tensor lie in a file beside the model."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def numpy_type(tensor: TensorProto) -> np.dtype[Any]:
    """The type of a tensor's numbers."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError):
        problem = f"its numbers are of the unknown type {tensor.data_type}"
        raise InvalidModelFile(_called(tensor), problem, _ADVICE) from None


def _mapped(tensor: TensorProto, folder: Path | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A view of the part of a file where a tensor's numbers lie."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    path, length = _beside(tensor, folder, said.get("location", "")), math.prod(shape) * dtype.itemsize
    try:
        offset = int(said.get("offset") or 0)
        given = int(said.get("length") or length)
    except ValueError:
        raise InvalidModelFile(_called(tensor), "its place in the file is no number", _ADVICE) from None
    if given != length:
        problem = f"it has {given:,} bytes, its shape needs {length:,}"
        raise InvalidModelFile(_called(tensor), problem, _ADVICE)
    if offset < 0 or offset + length > path.stat().st_size:
        problem = f"{path.name} ends before byte {offset + length:,}, where it should"
        raise InvalidModelFile(_called(tensor), problem, _ADVICE)
    if length == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)


def _beside(tensor: TensorProto, folder: Path | None, location: str) -> Path:
    """The file that a location names, which must lie in the model's folder."""
    if folder is None:
        advice = "Open it by its path: OnnxModel(path)"
        raise InvalidModelFile(_called(tensor), "its numbers lie in a file of their own", advice)
    home = folder.resolve()
    path = (home / location).resolve() if location and "\0" not in location else home
    if home not in path.parents:
        problem = f"its file {location[:200]!r} is not in the model's folder {home}"
        raise InvalidModelFile(_called(tensor), problem, _ADVICE)
    if not path.is_file():
        raise InvalidModelFile(_called(tensor), f"its file {location[:200]!r} is not in {home}", _ADVICE)
    return path


def _called(tensor: TensorProto) -> str:
    return f"the tensor {tensor.name[:200]!r}"
