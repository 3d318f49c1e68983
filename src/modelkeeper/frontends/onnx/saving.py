"""How does an ONNX model get into a new file? Tensor by tensor, and whole or not at all.

Everything is written beside the target first, then renamed. Tensors go into the model's own file, or, where
they lie in a second file already or are too many, into one beside it that is named after the model. There is
never more than a part of one tensor in memory beyond what the model itself holds.
"""

import math
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from modelkeeper.errors import InvalidModelFile
from modelkeeper.frontends.onnx.tensor_data import (
    array_of,
    is_external,
    numpy_type,
    place,
    set_array,
    shape_of,
    size_of,
)
from modelkeeper.weights import Array

LARGEST_FILE = 1 << 30  # bytes of tensors that are written into the model's own file
CHUNK = 1 << 24  # bytes that are copied at once
ALIGNED = 4096  # tensors in a second file begin at multiples of it, smaller ones stay in the first


class Draft:
    """A model on its way into a file: its tensors can be read, and replaced."""

    def __init__(self, proto: ModelProto, data: Path) -> None:
        self.proto = proto
        self._data = data  # where tensors lie that are not in the model's own file
        self._tensors = {tensor.name: tensor for tensor in stored_tensors(proto)}

    def array(self, name: str) -> Array:
        """The numbers of a tensor; those in the second file can be written to."""
        tensor = self._tensors[name]
        shape = shape_of(tensor)
        if not is_external(tensor) or 0 in shape:
            return array_of(tensor, None)
        offset = next(int(entry.value) for entry in tensor.external_data if entry.key == "offset")
        return np.memmap(self._data, numpy_type(tensor), mode="r+", offset=offset, shape=shape)

    def replace(self, name: str, array: Array) -> None:
        """Give a tensor in the model's own file other numbers; the others are written to where they are."""
        if not is_external(self._tensors[name]):
            set_array(self._tensors[name], array)


def write(
    proto: ModelProto,
    array: Callable[[str], Array],
    target: Path,
    change: Callable[[Draft], None] | None = None,
    *,
    most: int = LARGEST_FILE,
) -> None:
    """Write a model to a file.

    Args:
        proto: The model; it is not changed.
        array: The numbers of its tensors, by name.
        target: The file.
        change: What is to be changed before it is there.
        most: Bytes of tensors that are written into one file.

    Raises:
        InvalidModelFile: It cannot be written there.
    """
    mark, tensors = secrets.token_hex(4), list(stored_tensors(proto))
    scratch, data = (target.with_name(f".{target.name}.{mark}{end}") for end in ("", ".data"))
    beside = target.with_name(f"{target.name}.data")
    apart = any(map(is_external, tensors)) or sum(map(size_of, tensors)) > most
    draft = ModelProto()
    draft.CopyFrom(proto)
    try:
        if apart:
            with data.open("xb") as file:
                for tensor in stored_tensors(draft):
                    if is_external(tensor) or size_of(tensor) >= ALIGNED:
                        file.seek(math.ceil(file.tell() / ALIGNED) * ALIGNED)
                        start = file.tell()
                        file.writelines(_chunks(array(tensor.name)))
                        place(tensor, beside.name, start, file.tell() - start)
        if change is not None:
            change(Draft(draft, data))
        scratch.write_bytes(draft.SerializeToString())
        if apart:
            data.replace(beside)
        scratch.replace(target)
    except OSError as error:
        raise InvalidModelFile(str(target), error.strerror or str(error), "Choose another place") from error
    finally:
        scratch.unlink(missing_ok=True)
        data.unlink(missing_ok=True)


def stored_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that stands in a model's graph: initializers, and the values of constants."""
    yield from proto.graph.initializer
    for node in proto.graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t"):
                    attribute.t.name = node.output[0]  # so that all of them go by what nodes call them
                    yield attribute.t


def _chunks(array: Array) -> Iterator[bytes]:
    """The bytes of an array, a part at a time."""
    flat = array.reshape(-1)
    count = max(1, CHUNK // max(1, flat.itemsize))
    for first in range(0, flat.size, count):
        yield flat[first : first + count].tobytes()
