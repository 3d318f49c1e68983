"""Files that were compared with their checksums: read once, and again after every write to them."""

import os
import time
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import CorruptWeights
from modelkeeper.settings import Settings
from modelkeeper.zoo.files import verified
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.records import Record
from tests.helpers import zoos

GRAPH = zoos.net(4, 6)


def read_anew(home: Path, record: Record) -> None:
    """Read a model's weights as a process does that has just begun."""
    coordinator = LocalCoordinator(Settings(home=str(home), threads=1))
    try:
        coordinator.zoo.weights(record)
    finally:
        coordinator.close()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A model that was registered some time ago."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1))
    stored = zoos.register(coordinator, GRAPH)
    coordinator.close()
    time.sleep(2 * verified.SETTLED)
    return stored


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose weights were read as a whole."""
    folders: list[str] = []
    checksum = Blobs.checksum

    def noted(blobs: Blobs, folder: str) -> str:
        folders.append(folder)
        return checksum(blobs, folder)

    monkeypatch.setattr(Blobs, "checksum", noted)
    return folders


def flip(path: Path) -> None:
    """Change one bit, and set the time back as if nobody had."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_is_compared_once_for_all_processes(
    tmp_path: Path, record: Record, compared: list[str]
) -> None:
    for _ in range(3):
        read_anew(tmp_path, record)
    assert compared == [record.folder]


def test_a_file_that_was_written_to_is_compared_again(tmp_path: Path, record: Record) -> None:
    read_anew(tmp_path, record)
    flip(tmp_path / record.folder / "model.safetensors")
    for _ in range(2):
        with pytest.raises(CorruptWeights, match="checksum"):
            read_anew(tmp_path, record)
    time.sleep(2 * verified.SETTLED)
    with pytest.raises(CorruptWeights, match="checksum"):
        read_anew(tmp_path, record)


def test_gc_asks_no_notes(tmp_path: Path, record: Record, compared: list[str]) -> None:
    read_anew(tmp_path, record)
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1))
    assert coordinator.gc(verify=True).damaged == ()
    coordinator.close()
    assert compared == [record.folder] * 2


@pytest.mark.parametrize("trouble", ["old", "of another checksum", "nonsense", "no room for it"])
def test_notes_that_do_not_count(tmp_path: Path, record: Record, compared: list[str], trouble: str) -> None:
    read_anew(tmp_path, record)
    note = tmp_path / "verified" / record.id
    if trouble == "old":
        then = time.time() - verified.TRUSTED - 1
        os.utime(note, (then, then))
    elif trouble == "of another checksum":
        note.write_text(note.read_text().replace(record.checksum, "0" * 64))
    elif trouble == "nonsense":
        note.write_bytes(b"\xff" * 100)
    else:
        note.unlink()
        note.parent.rmdir()
        note.parent.write_text("a file where the folder should be")
    read_anew(tmp_path, record)
    assert compared == [record.folder] * 2


def test_a_file_that_was_written_just_now_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "SETTLED", 3600.0)
    path, note = tmp_path / "file", tmp_path / "notes" / "file"
    path.write_bytes(b"x")
    assert verified.state(path) == verified.state(tmp_path / "none") == ""
    verified.remember(note, "sum", path, verified.state(path))
    assert not note.exists()
    assert not verified.holds(note, "sum", path)


def test_a_note_goes_with_its_model(tmp_path: Path, record: Record) -> None:
    read_anew(tmp_path, record)
    assert (tmp_path / "verified" / record.id).exists()
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1))
    coordinator.remove(record.id)
    coordinator.close()
    assert list((tmp_path / "verified").iterdir()) == []
