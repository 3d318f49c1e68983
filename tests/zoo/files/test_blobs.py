"""The contract of a blob store, held by every kind of store that it runs on."""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from modelkeeper.errors import CorruptWeights, InvalidWeights, ZooUnusable
from modelkeeper.weights import Header, stream
from modelkeeper.zoo.files.blobs import WEIGHTS, Blobs

KEY = "models/0123456789abcdef"
ARRAY = np.arange(3000, dtype=np.float32)
FILE = b"".join(stream(Header.of([("x", "float32", (3000,))]), [("x", ARRAY)]))


@pytest.fixture(params=["folder", "file-url", "memory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "s3":
        return Blobs(request.getfixturevalue("bucket"))
    urls = {"folder": str(tmp_path / "a b%c"), "file-url": f"file://{tmp_path}/zoo", "memory": "memory://"}
    return Blobs(urls[request.param])


def put(blobs: Blobs, key: str = KEY, data: bytes = FILE) -> None:
    with blobs.writing(key) as folder:
        written = folder.write(WEIGHTS, (data[at : at + 1000] for at in range(0, len(data), 1000)))
        assert (written.bytes, written.checksum) == (len(data), hashlib.sha256(data).hexdigest())
        folder.write("README.md", [b"# hello"])
        folder.publish()


def test_what_was_written_can_be_read(blobs: Blobs) -> None:
    put(blobs)
    assert blobs.read(f"{KEY}/README.md") == b"# hello"
    assert blobs.checksum(KEY) == hashlib.sha256(FILE).hexdigest()
    assert b"".join(blobs.chunks(f"{KEY}/{WEIGHTS}")) == FILE
    assert b"".join(blobs.chunks(f"{KEY}/{WEIGHTS}", 100)) == FILE[100:]
    weights = blobs.weights(KEY, len(FILE))
    assert np.array_equal(weights["x"], ARRAY)
    (key, written), *others = blobs.folders()
    assert key == KEY
    assert abs(written - time.time()) < 60
    assert others == []


def test_tensors_that_were_read_outlive_their_file(blobs: Blobs) -> None:
    put(blobs)
    weights = blobs.weights(KEY, len(FILE))
    kept = weights["x"]
    blobs.delete(KEY)
    assert np.array_equal(kept, ARRAY)


def test_what_was_deleted_is_gone(blobs: Blobs) -> None:
    put(blobs)
    put(blobs, "models/ffffffffffffffff")
    blobs.delete(KEY)
    blobs.delete(KEY)
    assert [key for key, _ in blobs.folders()] == ["models/ffffffffffffffff"]
    with pytest.raises(FileNotFoundError):
        blobs.read(f"{KEY}/README.md")
    for reading in (lambda: blobs.weights(KEY, len(FILE)), lambda: blobs.checksum(KEY)):
        with pytest.raises(CorruptWeights, match="missing"):
            reading()


def test_an_error_on_the_way_is_passed_on_and_leaves_nothing(blobs: Blobs) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 10_000_000
        raise InvalidWeights("x", "it holds NaN")

    with pytest.raises(InvalidWeights, match="NaN"), blobs.writing(KEY) as folder:
        folder.write(WEIGHTS, broken())
    assert list(blobs.folders()) == []
    assert blobs.sweep_staging(time.time() + 1) == 0


def test_files_that_were_changed_are_noticed(blobs: Blobs) -> None:
    put(blobs, data=FILE[:-1])
    with pytest.raises(CorruptWeights, match="bytes, registered were"):
        blobs.weights(KEY, len(FILE))
    blobs.delete(KEY)
    put(blobs, data=b"x" * len(FILE))
    with pytest.raises(InvalidWeights):
        blobs.weights(KEY, len(FILE))
    blobs.delete(KEY)
    put(blobs, data=b"")
    with pytest.raises(CorruptWeights):
        blobs.weights(KEY, len(FILE))


def test_nothing_is_seen_before_it_is_published(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with blobs.writing(KEY) as folder:
        folder.write(WEIGHTS, [FILE])
        assert list(blobs.folders()) == []
        assert list((tmp_path / "models").iterdir()) == []
        folder.publish()
        assert [key for key, _ in blobs.folders()] == [KEY]
    with blobs.writing("models/ffffffffffffffff") as folder:
        folder.write(WEIGHTS, [FILE])
    assert [key for key, _ in blobs.folders()] == [KEY]
    assert list((tmp_path / "staging").iterdir()) == []


def test_young_writes_are_not_swept_and_old_ones_are(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    for name in ("old", "half", "new"):
        (tmp_path / "staging" / name).mkdir()
        (tmp_path / "staging" / name / WEIGHTS).touch()
    (tmp_path / "staging" / "stray file").touch()
    hour_ago = time.time() - 3600
    os.utime(tmp_path / "staging" / "old" / WEIGHTS, (hour_ago, hour_ago))
    for name in ("old", "half"):
        os.utime(tmp_path / "staging" / name, (hour_ago, hour_ago))
    assert blobs.sweep_staging(time.time() - 60) == 1, "what is still being written to is young"
    assert {path.name for path in (tmp_path / "staging").iterdir()} == {"half", "new", "stray file"}
    assert blobs.sweep_staging(time.time() + 1) == 3
    assert list((tmp_path / "staging").iterdir()) == []


def test_what_others_keep_there_is_left_alone(blobs: Blobs) -> None:
    put(blobs)
    put(blobs, "models/lost+found")
    assert [key for key, _ in blobs.folders()] == [KEY]


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url in (tmp_path / "file", tmp_path / "file" / "below", "nonsense://x"):
        with pytest.raises(ZooUnusable):
            Blobs(url)


def test_what_is_published_while_it_is_swept_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is deleted by its handle, wherever it is moved meanwhile: whoever comes second must fail."""
    blobs, final = Blobs(tmp_path), tmp_path / "models" / "0123456789abcdef"
    with blobs.writing("models/0123456789abcdef") as folder:
        folder.write("model.safetensors", [b"weights"])

        def publish_in_between(path: Path) -> None:
            handle = os.open(path, os.O_RDONLY)
            try:
                with contextlib.suppress(FileNotFoundError):
                    folder.publish()
                for name in os.listdir(handle):
                    os.unlink(name, dir_fd=handle)
            finally:
                os.close(handle)

        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", publish_in_between)
            assert blobs.sweep_staging(time.time() + 60) == 1
    assert not final.exists() or (final / "model.safetensors").read_bytes() == b"weights"
