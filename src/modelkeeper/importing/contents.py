"""What does a file hold? Told by its first bytes and, of an archive, by what is in it; never by its name.

    content_of(path)        "torch", "safetensors", "onnx" ...
    promised(path)          what it should hold, if that cannot be told: readers say what is wrong with it
    REFUSED[content]        what cannot be read, why, and what to do instead

Nothing is unpickled and no framework is imported: a file may come from anyone.
"""

import re
import zipfile
from pathlib import Path

SAFETENSORS, TORCH, TORCH_LEGACY, EXPORTED = "safetensors", "torch", "torch_legacy", "exported"
TORCHSCRIPT, KERAS, ONNX, HDF5, JSON = "torchscript", "keras", "onnx", "hdf5", "json"
GZIP, ZIP, PICKLE, GGUF, TFLITE, LFS = "gzip", "zip", "pickle", "gguf", "tflite", "lfs"
EMPTY, UNKNOWN = "empty", "unknown"

# How the names of files end that may hold a model.
SUFFIXES = frozenset(".pt .pth .ckpt .bin .safetensors .onnx .keras .pt2 .h5 .gguf .tflite".split())

# What is no model that can be read: what it is, and what to do.
REFUSED = {
    TORCHSCRIPT: (
        "it is a TorchScript archive, which holds no parts that could be matched",
        "Save the state_dict of the model that it was made of, and give its factory with --model",
    ),
    HDF5: (
        "it is an HDF5 file",
        "Load it in Keras and save it as .keras: keras.saving.load_model(old).save('model.keras')",
    ),
    GZIP: ("it is compressed with gzip", "Unpack it first"),
    ZIP: ("it is an archive that holds no model of a known kind", "Unpack it first"),
    PICKLE: (
        "it is a pickle, which could run anything when it is read",
        "Save the model's state_dict with torch.save, or its weights as safetensors",
    ),
    GGUF: ("it is a GGUF file, whose weights are packed for one program", "Import what it was made of"),
    TFLITE: ("it is a TensorFlow Lite file", "Import the Keras model that it was made of"),
    LFS: ("it is a pointer of git LFS, not the file itself", "Fetch the file: git lfs pull"),
    EMPTY: ("the file is empty", "Write it again"),
    UNKNOWN: (
        "it is no file of a known kind",
        "Known are PyTorch, safetensors, ONNX, .keras, .pt2, folders of Hugging Face and MLflow, and bundles",
    ),
}

_TORCH_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")  # a number that torch.save once began with
_HEAD = 512
_MOST_ENTRIES = 200_000


def content_of(path: Path) -> str:
    """What a file holds.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
        size = file.seek(0, 2)
    if not head:
        return EMPTY
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    for magic, content in _MAGIC.items():
        if head.startswith(magic):
            return content
    if head[4:8] == b"TFL3":
        return TFLITE
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return SAFETENSORS
    if head.lstrip()[:1] in (b"{", b"["):
        return JSON
    return ONNX if _ONNX.match(head) else UNKNOWN


_MAGIC = {
    _TORCH_MAGIC: TORCH_LEGACY,
    b"\x80": PICKLE,
    b"\x89HDF\r\n\x1a\n": HDF5,
    b"\x1f\x8b": GZIP,
    b"GGUF": GGUF,
    b"version https://git-lfs": LFS,
}
# Protobuf: the version of the format, then another field of a ModelProto.
_ONNX = re.compile(rb"\x08[\x01-\x20][\x12\x1a\x22\x2a\x32\x3a\x42\x72]", re.DOTALL)


def promised(path: Path) -> str:
    """What the name of a file promises that it holds."""
    return {".safetensors": SAFETENSORS, ".onnx": ONNX}.get(path.suffix.lower(), UNKNOWN)


def _archive(path: Path) -> str:
    """What a zip archive holds, by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist()[:_MOST_ENTRIES] if not name.endswith("/")]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return ZIP
    inner = {name.partition("/")[2] for name in names}  # torch puts all into one folder
    if {"config.json", "model.weights.h5"} <= set(names):
        return KERAS
    if "archive_format" in inner or "serialized_exported_program.json" in names:
        return EXPORTED
    if "data.pkl" in inner:
        return TORCHSCRIPT if any(name.startswith("code/") for name in inner) else TORCH
    return ZIP
