"""Files are told by what they hold."""

from pathlib import Path

import pytest

from modelkeeper.importing.contents import REFUSED, content_of


@pytest.mark.parametrize(
    ("head", "content"),
    [
        (b"", "empty"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 8, "hdf5"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"GGUF\x03", "gguf"),
        (b"PK\x03\x04 no archive", "zip"),
        (b"version https://git-lfs.github.com/spec/v1\n", "lfs"),
        (b"\x1c\0\0\0TFL3", "tflite"),
        (b"just text", "unknown"),
    ],
)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, head: bytes, content: str) -> None:
    (tmp_path / "file").write_bytes(head)
    assert content_of(tmp_path / "file") == content
    assert all(REFUSED[content])


def test_what_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert content_of(tmp_path / "file") == "safetensors"
    (tmp_path / "file").write_bytes(b"\x08\x08\x12\x07pytorch")
    assert content_of(tmp_path / "file") == "onnx"
