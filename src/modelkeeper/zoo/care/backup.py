"""How is a zoo copied while it is in use, so that all that was acknowledged can be had again?

    backup(zoo, Path("/backups/zoo"))                     files first, then the catalog of one moment
    restore(Path("/backups/zoo"), Settings(home="new/"))  into an empty zoo, of whatever catalog and store

Models never change, so what is there already is not copied again. First come the files, then the catalog:
what it names is there, and what went meanwhile it calls gone. Models that came meanwhile are copied, and the
catalog is read once more. Weights and programs are compared with the checksums of their records on the way.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import CorruptWeights, InvalidBackup, UnreadableWeights, ZooUnusable
from modelkeeper.settings import Settings
from modelkeeper.zoo.care.archive import FORMAT, Archive
from modelkeeper.zoo.care.dump import dump, load
from modelkeeper.zoo.database import schema
from modelkeeper.zoo.database.postgres import unhurried
from modelkeeper.zoo.files.blobs import EVIDENCE, PROGRAM, WEIGHTS
from modelkeeper.zoo.records import KEPT, Filter, Record, folder_of, model_of
from modelkeeper.zoo.replicas.store_identity import FACT, own
from modelkeeper.zoo.zoo_reader import ZooReader

ROUNDS = 5  # after which models that come all the time are left to the next backup
Files = dict[str, tuple[str, int]]  # name -> checksum and length
Progress = Callable[[float, float], None]


class BackedUp(Struct, frozen=True):
    """What a backup did."""

    snapshot: str  # its name
    models: int  # whose files are in it
    bytes: int  # of their weights
    copied: int  # files that were not there before
    copied_bytes: int
    left_out: dict[str, str]  # models whose files are not in it, and why
    pruned: int = 0  # files of older snapshots that were deleted

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Restored(Struct, frozen=True):
    """What restoring did."""

    snapshot: str
    models: int
    bytes: int
    missing: tuple[str, ...]  # models whose files the backup does not have

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def backup(
    zoo: ZooReader,
    folder: Path,
    *,
    keep: int | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> BackedUp:
    """Copy a zoo into a folder that may hold earlier backups of it.

    Args:
        zoo: The one to copy; others may go on using it.
        folder: Where backups are kept.
        keep: Delete all but so many of the newest snapshots. Default: all stay.
        verify: Compare files that were copied earlier with their checksums, too, and copy damaged ones again.
        progress: Is told how many bytes of how many are there.

    Raises:
        InvalidBackup: Another process is writing to it.
        ZooUnusable: The zoo cannot be read, or the folder not be written to.
    """
    archive = Archive(folder)
    with archive.writing(), unhurried():
        copying = _Copying(zoo, archive, verify)
        for turn in range(ROUNDS):
            copying.copy(progress)
            name, untried = copying.write_snapshot(last=turn == ROUNDS - 1)
            if not untried:
                break
        pruned = archive.prune(keep) if keep else 0
    return BackedUp(
        name,
        len(copying.files),
        sum(files[WEIGHTS][1] for files in copying.files.values()),
        copying.copied,
        copying.copied_bytes,
        copying.left_out,
        pruned,
    )


class _Copying:
    """One backup on its way."""

    def __init__(self, zoo: ZooReader, archive: Archive, verify: bool) -> None:
        self._zoo, self._archive, self._verify = zoo, archive, verify
        self.files: dict[str, Files] = {}  # of models that are in it
        self.left_out: dict[str, str] = {}
        self.copied = self.copied_bytes = 0
        self._before = _files_before(archive)

    def copy(self, progress: Progress | None) -> None:
        """Copy the files of all models that are there now."""
        records = self._zoo.catalog.find(Filter(states=KEPT))
        done, total = 0, sum(record.bytes for record in records)
        for record in records:
            if record.id not in self.files and record.id not in self.left_out:
                try:
                    self.files[record.id] = self._files_of(record)
                except (CorruptWeights, UnreadableWeights, FileNotFoundError) as problem:
                    self.left_out[record.id] = str(problem)
            done += record.bytes
            if progress is not None:
                progress(done, total)

    def _files_of(self, record: Record) -> Files:
        """Have all files of a model in the archive. What are they?"""
        before = self._before.get(record.id, {})
        weights = record.checksum, record.bytes
        if before.get(WEIGHTS) == weights and all(map(self._is_there, before.values())):
            return before
        files: Files = {}
        for name in self._zoo.blobs.names(record.folder):
            known = {WEIGHTS: record.checksum, PROGRAM: record.program, EVIDENCE: record.evidence}
            expected = known.get(name, "")
            if name == WEIGHTS and self._is_there(weights):
                files[name] = weights
                continue
            checksum, size = self._archive.add(self._zoo.blobs.chunks(f"{record.folder}/{name}"))
            if expected and checksum != expected:
                raise CorruptWeights(record.id, f"the checksum of {name} is not that of what was registered")
            files[name] = checksum, size
            self.copied, self.copied_bytes = self.copied + 1, self.copied_bytes + size
        if WEIGHTS not in files:
            raise CorruptWeights(record.id, "the file is missing")
        return files

    def _is_there(self, file: tuple[str, int]) -> bool:
        """Is a file in the archive, and is it whole, if that is to be known?"""
        checksum, size = file
        if not self._archive.has(checksum, size):
            return False
        if self._verify:
            try:
                for _ in self._archive.pieces(checksum):
                    pass  # reading is all that is wanted
            except InvalidBackup:
                self._archive.path(checksum).unlink()
                return False
        return True

    def write_snapshot(self, last: bool) -> tuple[str, bool]:
        """Write the catalog as it is now. Its name, and whether models came that are not copied yet."""
        kept: list[str] = []

        def lines() -> Iterator[dict[str, Any]]:
            yield {"format": FORMAT, "schema": schema.VERSION, "created": time.time()}
            with self._zoo.catalog.database.reading() as connection:
                for line in dump(connection):
                    if line["table"] == "models" and line["row"]["state"] in KEPT:
                        kept.append(line["row"]["id"])
                    yield line
            if set(kept) - self.files.keys() - self.left_out.keys():
                if not last:
                    raise _Untried
                self.copy(None)
            for model in kept:
                if model in self.files:
                    yield {"model": model, "files": self.files[model]}

        try:
            name = self._archive.add_snapshot(lines())
        except _Untried:
            return "", True
        self.files = {model: self.files[model] for model in kept if model in self.files}
        self.left_out = {
            model: self.left_out.get(model, "it came too late") for model in kept if model not in self.files
        }
        return name, False


class _Untried(Exception):
    """Models came while the files were copied."""


def _files_before(archive: Archive) -> dict[str, Files]:
    """What the newest snapshot that can be read says of models' files."""
    for name in reversed(archive.snapshots()):
        try:
            return {line["model"]: _files(line) for line in archive.read(name) if "model" in line}
        except InvalidBackup:
            continue
    return {}


def _files(line: dict[str, Any]) -> Files:
    return {name: (str(checksum), int(size)) for name, (checksum, size) in line["files"].items()}


def restore(folder: Path, settings: Settings, *, at: str = "", progress: Progress | None = None) -> Restored:
    """Make a zoo of a backup. One that was interrupted goes on with the files that it has.

    Args:
        folder: Where backups are kept.
        settings: The zoo to be made: its home, or catalog and blobs elsewhere. It must hold no model.
        at: The name of a snapshot. Default: the newest.
        progress: Is told how many bytes of how many are there.

    Raises:
        InvalidBackup: There is none, it is damaged, or the zoo holds models already.
        ZooUnusable: The zoo cannot be written to.
    """
    archive = Archive(folder)
    name = at or (archive.snapshots() or [""])[-1]
    if not name:
        raise InvalidBackup(str(folder), "there is none", "Check the path.")
    header = next(archive.read(name))
    if header.get("format") != FORMAT or str(header.get("schema")) > schema.VERSION:
        raise InvalidBackup(str(folder), f"{name} is of a newer modelkeeper", "Upgrade modelkeeper.")
    zoo = ZooReader(settings)
    with unhurried(), contextlib.closing(zoo):
        zoo.catalog.database.expect_writable()
        if zoo.catalog.count(Filter(states=KEPT)):
            home = str(settings.folder)
            raise InvalidBackup(str(folder), f"{home} holds models already", "Restore into a new folder.")
        models = {line["model"]: _files(line) for line in archive.read(name) if "model" in line}
        done, total = 0, sum(size for files in models.values() for _, size in files.values())
        rows = [line for line in archive.read(name) if "table" in line]
        attempts = {
            line["row"]["id"]: line["row"].get("attempt", "") for line in rows if line["table"] == "models"
        }
        zoo.expect_own_store(again=True)
        store = own(zoo.catalog)
        for model, files in models.items():
            write_files(zoo, archive, folder_of(model, attempts.get(model, "")), files)
            done += sum(size for _, size in files.values())
            if progress is not None:
                progress(done, total)
        kept = [line["row"] for line in rows if line["table"] == "models" and line["row"]["state"] in KEPT]
        with zoo.catalog.database.writing() as connection:
            load(connection, str(header["schema"]), rows)
            if store:
                connection.execute(schema.facts.insert().values(name=FACT, value=store))
    missing = tuple(row["id"] for row in kept if row["id"] not in models)
    return Restored(name, len(models), sum(row["bytes"] for row in kept), missing)


def write_files(zoo: ZooReader, archive: Archive, folder: str, files: Files) -> None:
    """Put the files of a model into its folder in a zoo, if they are not there as they should be."""
    if not model_of(folder) or any("/" in name or name.startswith(".") for name in files):
        raise InvalidBackup(str(archive.folder), f"a folder is called {folder!r}", "Who has written to it?")
    if all(_is_same(zoo, f"{folder}/{name}", file) for name, file in files.items()):
        return
    with zoo.blobs.writing(folder) as target:
        for name, (checksum, _) in files.items():
            target.write(name, archive.pieces(checksum))
        target.publish(replace=True)


def _is_same(zoo: ZooReader, path: str, file: tuple[str, int]) -> bool:
    digest, size = hashlib.sha256(), 0
    try:
        for piece in zoo.blobs.chunks(path):
            digest.update(piece)
            size += len(piece)
    except (CorruptWeights, UnreadableWeights, ZooUnusable):
        return False
    return (digest.hexdigest(), size) == file
