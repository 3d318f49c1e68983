"""What is an ONNX model to a user? A file, or a ModelProto, whose tensors are looked at one by one.

    model = OnnxModel("resnet.onnx")       the graph alone is read; tensors stay where they lie
    client.query_for_model(model, meta)    as with any other model
    model.save("warmed.onnx")              a new file; the old one is not touched

Tensors in a file beside the model may be larger than memory: they are mapped, and what is written in their
place goes to a scratch file that is mapped, too.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from modelkeeper.errors import InvalidModelFile
from modelkeeper.frontends.onnx.layouts import Layout
from modelkeeper.frontends.onnx.saving import stored_tensors, write
from modelkeeper.frontends.onnx.tensor_data import array_of, is_external, set_array
from modelkeeper.weights import Array

IN_MEMORY = 1 << 20  # bytes of a tensor in a file that are kept in memory when it is replaced
_ADVICE = "Give the path of a file that was exported as ONNX"


class OnnxModel:
    """A model in the ONNX format, with its weights."""

    def __init__(self, source: str | os.PathLike[str] | ModelProto) -> None:
        """Open a model.

        Args:
            source: The path of its file, or the model itself, which is then written to by what loads weights.

        Raises:
            InvalidModelFile: The file is not there, or holds no ONNX model.
        """
        self.path: Path | None = None
        self.proto: ModelProto
        if isinstance(source, ModelProto):
            self.proto = source
        else:
            self.path = Path(source)
            self.proto = _read(self.path)
        self.layouts: dict[str, Layout] | None = None  # found when it was described last
        self.tensors: dict[str, TensorProto] = {tensor.name: tensor for tensor in stored_tensors(self.proto)}
        self._folder = None if self.path is None else self.path.absolute().parent
        self._replaced: dict[str, Array] = {}  # of tensors that lie in a file

    @property
    def name(self) -> str:
        """What errors call it: its file, or its graph."""
        return self.proto.graph.name[:200] or "the ONNX model" if self.path is None else str(self.path)

    def array(self, name: str) -> Array:
        """The numbers of an initializer or a constant."""
        replaced = self._replaced.get(name)
        return array_of(self.tensors[name], self._folder) if replaced is None else replaced

    def replace(self, name: str, array: Array) -> None:
        """Give an initializer other numbers, of its shape and type. Its file is not touched."""
        if not is_external(self.tensors[name]):
            set_array(self.tensors[name], array)
        elif array is not self._replaced.get(name):
            self._replaced[name] = _kept(array)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a new file, tensor by tensor: it is whole or not there.

        A model whose tensors lie in a second file, or are more than a gigabyte, gets a second file beside the
        new one, with `.data` behind its name.

        Raises:
            InvalidModelFile: The path is that of the model itself, or cannot be written to.
        """
        write(self.proto, self.array, self.other_path(path))

    def other_path(self, path: str | os.PathLike[str]) -> Path:
        """A path to write to, if it is not the model's own.

        Raises:
            InvalidModelFile: It is.
        """
        target = Path(path)
        if self.path is not None and target.resolve() == self.path.resolve():
            raise InvalidModelFile(str(target), "it is the model's own file", "Choose another name")
        return target


def open_onnx(path: str | os.PathLike[str]) -> OnnxModel:
    """The model in an ONNX file."""
    return OnnxModel(path)


def _read(path: Path) -> ModelProto:
    try:
        proto = ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise InvalidModelFile(str(path), error.strerror or str(error), _ADVICE) from error
    except (DecodeError, ValueError) as error:
        raise InvalidModelFile(str(path), "it is no ONNX file", _ADVICE) from error
    if not isinstance(proto, ModelProto) or not proto.opset_import or not proto.HasField("graph"):
        raise InvalidModelFile(str(path), "it is no ONNX file, or an empty one", _ADVICE)
    return proto


def _kept(array: Array) -> Array:
    """A copy of an array; of a large one in a scratch file, so that it needs no memory for long."""
    if array.nbytes < IN_MEMORY:
        return array.copy()
    with tempfile.TemporaryFile() as scratch:
        scratch.truncate(array.nbytes)
        kept: Array = np.memmap(scratch, array.dtype, mode="r+", shape=array.shape)
    np.copyto(kept, array)
    return kept
