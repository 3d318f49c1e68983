"""Where does a replica with an empty home get a search index from? Snapshots in the store.

    shared = SharedSnapshots(catalog, blobs)                 of the whole index
    shared = SharedSnapshots(catalog, blobs, "1-of-4")       of a part of it: a shard, the columns
    shared.put(snapshots)       by the leader: the newest of this machine's; old ones are swept
    shared.bring(snapshots)     the newest of the store, to this machine's, if it spares enough

A snapshot is the files of a saved index (see `index_snapshots`), each in a folder that is called by its
SHA-256, and a manifest, put last, that names them. So files that did not change are put once, and whoever
finds a manifest finds its files; if not, the index is made from the catalog. A manifest names the store's
identity and the head of the catalog's log besides: one of a catalog that was since set back is not believed.
"""

import contextlib
import hashlib
import secrets
import time
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import CorruptWeights, InvalidIndex, ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.matching.similarity import VERSION
from modelkeeper.signing.chain import BEFORE, Head
from modelkeeper.weights import CHUNK
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.ledger import head
from modelkeeper.zoo.database.schema import ledger
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.files.rights import as_its_folder
from modelkeeper.zoo.index.index_snapshots import Snapshots
from modelkeeper.zoo.replicas.store_identity import own

FOLDER, MANIFEST, DATA = "snapshots", "manifest.json", "data"
KEPT = 2  # manifests: a replica may be reading the older one
GRACE = 3600.0  # seconds for which files stay that no manifest names: one may be on its way
WORTH = 256  # changes that are read from the catalog sooner than a snapshot is brought
_log = logger()


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot consists of, and of which catalog it is."""

    clock: int  # how many changes it holds
    version: int  # of the matcher
    store: str
    entry: int  # of the log, the last one when it was put
    digest: str
    files: dict[str, str]  # name -> SHA-256


class SharedSnapshots:
    """The snapshots of one zoo in its store. One process at a time puts; many may bring."""

    def __init__(self, catalog: Catalog, blobs: Blobs, part: str = "") -> None:
        """`part` is of which part of the index: each has folders of its own, which no other sweeps."""
        self._catalog, self._blobs = catalog, blobs
        self._folder = f"{FOLDER}-{part}" if part else FOLDER
        self._put = -1  # how many changes the one held that was put last

    def put(self, snapshots: Snapshots) -> bool:
        """Put the newest snapshot of this machine into the store, if it has none as new. Was it put?

        Raises:
            ZooUnusable: The store does not answer.
        """
        latest = snapshots.latest
        if latest is None or latest[0] <= self._put:
            return False
        clock, folder = latest
        names = self._manifests()
        if names and _clock(names[0]) >= clock:
            self._put = _clock(names[0])
            return False
        with self._catalog.database.reading() as connection:
            last = head(connection)
        try:
            files = {path.name: self._put_file(path) for path in sorted(folder.iterdir())}
        except FileNotFoundError:  # another process has saved a newer one, and removed this
            return False
        manifest = Manifest(
            clock=clock,
            version=VERSION,
            store=own(self._catalog),
            entry=last.number,
            digest=last.digest,
            files=files,
        )
        with self._blobs.writing(f"{self._folder}/at-{clock}-{secrets.token_hex(4)}") as new:
            new.write(MANIFEST, [msgspec.json.encode(manifest)])
            new.publish()
        self._put = clock
        self._sweep()
        return True

    def bring(self, snapshots: Snapshots) -> bool:
        """Take the newest snapshot that can be believed to this machine, if that has none like it. Was it?

        Nothing that goes wrong is an error: the catalog has it all.
        """
        try:
            now, latest = self._catalog.clock(), snapshots.latest
            has = latest[0] if latest is not None and latest[0] <= now else 0
            for name in self._manifests():
                if has + WORTH < _clock(name) <= now:
                    try:
                        manifest = self._read(name)
                        snapshots.save(manifest.clock, partial(self._fetch, manifest))
                        return True
                    except (InvalidIndex, CorruptWeights, FileNotFoundError) as problem:
                        _log.warning("a snapshot of the search index in the store is not used: %s", problem)
        except ModelKeeperError as problem:
            _log.warning("no snapshot of the search index can be had from the store: %s", problem)
        return False

    def _manifests(self) -> list[str]:
        """The folders of manifests, the newest first."""
        folders = [folder for folder, _ in self._blobs.folders(self._folder) if _clock(folder) >= 0]
        return sorted(folders, key=lambda folder: (_clock(folder), folder), reverse=True)

    def _read(self, folder: str) -> Manifest:
        """A manifest that is of this catalog.

        Raises:
            InvalidIndex: It is not, or is none.
        """
        try:
            manifest = msgspec.json.decode(self._blobs.read(f"{folder}/{MANIFEST}"), type=Manifest)
        except (msgspec.DecodeError, ValueError) as problem:
            raise InvalidIndex(folder, str(problem)) from problem
        with self._catalog.database.reading() as connection:
            digest = connection.scalar(sa.select(ledger.c.digest).where(ledger.c.number == manifest.entry))
        known, then = own(self._catalog), Head(manifest.entry, manifest.digest)
        if not known or manifest.store != known or (then != BEFORE and manifest.digest != digest):
            raise InvalidIndex(folder, "it is of another catalog, or of one that was set back since")
        if manifest.version != VERSION:
            raise InvalidIndex(folder, f"version {manifest.version} of the matcher wrote it")
        if manifest.clock != _clock(folder) or any(Path(name).name != name for name in manifest.files):
            raise InvalidIndex(folder, "it names what it cannot")
        return manifest

    def _fetch(self, manifest: Manifest, folder: Path) -> None:
        """Write the files of a snapshot into a folder.

        Raises:
            InvalidIndex: One of them is not what was put.
            CorruptWeights: One of them is not there.
        """
        for name, digest in manifest.files.items():
            found = hashlib.sha256()
            with open(folder / name, "xb", opener=as_its_folder) as file:
                for piece in self._blobs.chunks(f"{self._folder}/{digest}/{DATA}"):
                    found.update(piece)
                    file.write(piece)
            if found.hexdigest() != digest:
                raise InvalidIndex(f"{self._folder}/{digest}", "its content is not what was put")

    def _put_file(self, path: Path) -> str:
        """Put a file where its content says, unless it is there; its SHA-256."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        folder = f"{self._folder}/{digest}"
        if DATA not in self._blobs.names(folder):
            with self._blobs.writing(folder) as new, path.open("rb") as file:
                new.write(DATA, iter(lambda: file.read(CHUNK), b""))
                new.publish()
        return digest

    def _sweep(self) -> None:
        """Delete old manifests, and files that none names and nobody can be about to name."""
        before, names = time.time() - GRACE, self._manifests()
        for folder in names[KEPT:]:
            self._blobs.delete(folder)
        named: set[str] = set()
        for folder in names[:KEPT]:
            with contextlib.suppress(InvalidIndex, FileNotFoundError):
                named.update(self._read(folder).files.values())
        for folder, written in self._blobs.folders(self._folder):
            if _clock(folder) < 0 and folder.rpartition("/")[2] not in named and written < before:
                self._blobs.delete(folder)


def _clock(folder: str) -> int:
    """How many changes the snapshot of a manifest holds, by the name of its folder; -1: it is none."""
    kind, _, rest = folder.rpartition("/")[2].partition("-")
    clock = rest.partition("-")[0]
    return int(clock) if kind == "at" and clock.isdecimal() else -1
