"""What is in a zoo? Its catalog, files and index, opened when they are needed, and the weights that it lends.

    reader = ZooReader(settings)
    reader.weights(record)                 the tensors of a model, checked once
    reader.take_out(record, problem)       one whose weights are damaged, or cannot be read here
    reader.expect_own_store()              or ZooUnusable: is it the store that the catalog belongs to?

Reading goes on where nothing can be written: what was to be recorded is then logged, and that is all.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from modelkeeper.errors import CorruptWeights, InvalidWeights, StoreSilent, UnreadableWeights, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.outcomes import Outcomes
from modelkeeper.zoo.catalog.starts import Start, Starts
from modelkeeper.zoo.database.forks import renew_after_fork
from modelkeeper.zoo.database.leases import Leases
from modelkeeper.zoo.database.watch import PATIENCE, Watch
from modelkeeper.zoo.files.reserve import Reserve
from modelkeeper.zoo.files.rights import make_home
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import DAMAGED, STORED, Event, Filter, Record
from modelkeeper.zoo.replicas.suspicions import Suspicions

if TYPE_CHECKING:
    from modelkeeper.matching import Searchable
    from modelkeeper.weights import Weights
    from modelkeeper.zoo.files.blobs import Blobs
    from modelkeeper.zoo.index.columns import Mask
    from modelkeeper.zoo.index.index_snapshots import Snapshots
    from modelkeeper.zoo.index.index_sync import Followed, Follower
    from modelkeeper.zoo.index.shards import SpreadIndex
    from modelkeeper.zoo.index.shared_snapshots import SharedSnapshots
    from modelkeeper.zoo.replicas.parts import Parts

ASIDE = 300.0  # seconds for which a model that could not be read is not tried again
_log = logger()


class ZooReader:
    """Catalog, blobs and index of one zoo. Safe to use from several threads and processes."""

    def __init__(self, settings: Settings) -> None:
        """Open a zoo; a new home is made."""
        self.settings = settings
        if not settings.in_memory and not settings.catalog:
            try:
                make_home(settings.folder)
            except OSError as problem:
                advice = "Choose another folder, or make this one yours."
                text = problem.strerror or str(problem)
                raise zoo_unusable(str(settings.folder), text, advice, problem) from problem
        self.catalog = Catalog(settings.catalog_place, settings.catalog_limits)
        self.outcomes, self.starts = Outcomes(self.catalog), Starts(self.catalog.database)
        self.suspicions = Suspicions(self.catalog)
        self._opening = threading.Lock()
        self._spreading = threading.Lock()  # finding shards takes longer than others wait
        self._blobs: Blobs | None = None
        self._follower: Follower | None = None
        self._following = threading.Lock()  # opening an index takes longer than others wait
        self._shared: SharedSnapshots | None = None
        self._spread: SpreadIndex | None = None
        self._verified: set[str] = set()
        self._verifying: dict[str, threading.Lock] = {}  # by model, so that a slow one holds up no other
        self._watch: Watch | None = None
        self._own_store = False  # has it been seen that the store is the catalog's?
        self._aside: dict[int, float] = {}  # keys of models that cannot be read here, and until when
        self._unrecorded = False  # did the last loan go unrecorded?
        local = not settings.in_memory and not settings.catalog
        self.reserve = Reserve(settings.folder if local else None)
        self.leases = Leases(self.catalog.database)
        renew_after_fork(self, ZooReader._renew)

    def _renew(self) -> None:
        """In a forked child: threads that are not here may have held the locks, or been at the index."""
        self._opening, self._following, self._spreading = (threading.Lock() for _ in range(3))
        self._verifying, self.suspicions = {}, Suspicions(self.catalog)
        self._blobs = self._follower = self._spread = self._watch = self._shared = None

    def close(self) -> None:
        """Let go of the database."""
        if self._follower is not None:
            self._follower.close()
        if self._spread is not None:
            self._spread.close()
        self.catalog.close()

    # Whoever only counts or lists models needs neither blobs nor index, and should not wait for them.

    @property
    def blobs(self) -> "Blobs":
        """The files of the models."""
        from modelkeeper.zoo.files.blobs import Blobs

        with self._opening:
            if self._blobs is None:
                self._blobs = Blobs(self.settings.blobs_url, self.settings.blobs_public)
            return self._blobs

    @property
    def parts(self) -> "Parts | None":
        """Files that are being sent, where the store is not a folder of this machine."""
        from modelkeeper.zoo.replicas.parts import Parts

        store = self.blobs.objects
        return None if store is None else Parts(self.catalog.database, self.blobs, store)

    @property
    def follower(self) -> "Follower":
        """What keeps the search index in step with the catalog."""
        from modelkeeper.zoo.index.index_sync import Follower

        with self._following:
            if self._follower is None:
                if self.shared_snapshots is not None:
                    self.shared_snapshots.bring(self.snapshots)
                with_index = not self.settings.shards
                self._follower = Follower(
                    self.catalog, self.snapshots, self.settings.threads, index=with_index
                )
            return self._follower

    @property
    def index_open(self) -> bool:
        """Has this process opened the search index?"""
        return self._follower is not None

    @property
    def shared_snapshots(self) -> "SharedSnapshots | None":
        """Saved indexes in the store, of columns alone where shards have the rest; None: at home."""
        from modelkeeper.zoo.index.shared_snapshots import SharedSnapshots

        if self._shared is None and not self._together:
            part = "columns" if self.settings.shards else ""
            self._shared = SharedSnapshots(self.catalog, self.blobs, part)
        return self._shared

    def share_index(self) -> bool:
        """Put the search index into the store, for replicas that begin, if enough has changed. Was it put?

        Raises:
            ZooUnusable: The store does not answer, or is not the one that the catalog belongs to.
        """
        if self.shared_snapshots is None:
            return False
        self.expect_own_store()
        self.follower.save()
        return self.shared_snapshots.put(self.snapshots)

    @property
    def snapshots(self) -> "Snapshots":
        """The saved search indexes."""
        from modelkeeper.zoo.index.index_snapshots import Snapshots

        if self.settings.in_memory:
            return Snapshots(None)
        folder = self.settings.folder / "index"
        return Snapshots(folder / "columns" if self.settings.shards else folder)

    def index(self) -> "Searchable":
        """The search index, with all that any process has registered up to now.

        Raises:
            ShardsUnreachable: It lies in shards, and what runs them does not answer at the start.
        """
        if not self.settings.shards:
            return self.follower.index()
        from modelkeeper.zoo.index.shards import SpreadIndex, open_shards

        with self._spreading:
            if self._spread is None:
                self._spread = SpreadIndex(open_shards(self.settings))
            return self._spread

    def expect_index(self) -> None:
        """Return if the search index is there, with all that was registered up to now.

        Raises:
            NotReady: It lies in shards that have not read the catalog yet.
            ShardsUnreachable: What runs them does not answer.
        """
        self.index()
        if self._spread is not None:
            self.follower.followed()
            self._spread.expect()

    def passing(self, wanted: Filter) -> "tuple[Searchable, Followed, Mask]":
        """The index, what is followed of the catalog up to now, and by key which models pass a filter."""
        bearers = self.catalog.names.bearers(wanted.restrictions)
        followed = self.follower.followed()
        index = self.index() if self.settings.shards else followed.index
        return index, followed, followed.columns.mask(wanted, bearers)

    def expect_store(self) -> None:
        """Return if the store answers soon, and is the one that the catalog belongs to.

        Raises:
            StoreSilent: It does not answer.
            ZooUnusable: It is another one, or cannot be used.
        """
        with self._opening:
            if self._watch is None:
                self._watch = Watch(self._ask_store, self._store_silent)
        self._watch.expect()

    def expect_catalog(self) -> None:
        """Return if the catalog's database answers soon.

        Raises:
            CatalogSilent: It does not answer.
            ZooUnusable: It cannot be used.
        """
        self.catalog.database.expect(PATIENCE)

    def _store_silent(self, seconds: float) -> ZooUnusable:
        problem = f"its store has not answered for {seconds:.0f} s"
        return StoreSilent(self.settings.blobs_url, problem, "Check that it runs and can be reached.")

    def _ask_store(self) -> None:
        self.expect_own_store(again=True)
        self.blobs.ask()

    def expect_own_store(self, *, again: bool = False) -> None:
        """Return if the store is the one that the catalog belongs to, by what was seen before or is now.

        Raises:
            ZooUnusable: It is another one, or does not answer.
        """
        from modelkeeper.zoo.replicas.store_identity import expect_own

        if not self._together and (again or not self._own_store):
            expect_own(self.catalog, self.blobs)
            self._own_store = True

    @property
    def _together(self) -> bool:
        """Do the catalog and the store lie in one folder, or in memory?"""
        return self.settings.in_memory or not (self.settings.catalog or self.settings.blobs)

    # -- lending ---------------------------------------------------------------------------------

    def weights(self, record: Record) -> "Weights":
        """The tensors of a model. Its checksum is compared the first time that this process reads it.

        A local file that another process has compared lately is not read again for that (see `verified`).

        Raises:
            CorruptWeights: The file is missing, or is not what was registered.
            UnreadableWeights: The file cannot be read here.
        """
        weights = self.blobs.weights(record.folder, record.bytes)
        if record.id not in self._verified:
            with self.blobs.waiting(), self._verifying.setdefault(record.id, threading.Lock()):
                if record.id not in self._verified and not self.blobs.intact(record.folder, record.checksum):
                    raise CorruptWeights(record.id, "its checksum is not that of what was registered")
            self._verified.add(record.id)
            self._verifying.pop(record.id, None)
        return weights

    def take_out(self, record: Record, problem: CorruptWeights | InvalidWeights | UnreadableWeights) -> None:
        """Lend a model no more: one that is damaged to nobody, one that cannot be read here not from here.

        One reader's failure is no proof: see `damaged` and `suspicions`. Whoever may not write to the zoo, or
        not now, leaves it to others to say that a model is damaged.

        Raises:
            ZooUnusable: The store is not the one that the catalog belongs to, or does not answer.
        """
        self._aside[record.key] = time.monotonic() + ASIDE
        if isinstance(problem, UnreadableWeights) or not self.damaged(record):
            _log.warning("passed over for %g s: %s", ASIDE, problem)
            return
        try:
            self.retire_damaged(record, str(problem), alone=False)
        except ZooUnusable as unsaid:
            _log.warning("%s is damaged (%s), which could not be recorded: %s", record.id, problem, unsaid)

    def retire_damaged(self, record: Record, problem: str, *, alone: bool) -> bool:
        """Take a model that this process finds damaged from all, or note the suspicion. Was it taken?

        `alone`: what this process finds is enough. So it is where the store is a folder beside the catalog.
        """
        if not (alone or self._together or self.suspicions.note(record.id, problem)):
            _log.warning("model %s is damaged by what is read here, and set aside: %s", record.id, problem)
            return False
        gone = self.catalog.retire({record.id: problem}, DAMAGED)
        if not self._together:
            self.suspicions.forget(record.id)
        return bool(gone)

    def look_into_suspicions(self) -> list[str]:
        """Look at what other processes find damaged. Which models are so by what is read here, too?"""
        damaged = []
        for model, suspicion in self.suspicions.of_others().items() if not self._together else ():
            record = self.catalog.with_ids([model]).get(model)
            if record is None or record.state not in STORED:
                self.suspicions.forget(model)
            elif self.damaged(record):
                damaged += [model] if self.retire_damaged(record, suspicion.problem, alone=True) else []
            else:
                _log.warning("model %s is whole, but another process says: %s", model, suspicion.problem)
                self.suspicions.forget(model)
        return damaged

    def damaged(self, record: Record) -> bool:
        """Are a model's weights missing or not what was registered, on a direct read of the right store?

        Raises:
            ZooUnusable: The store is not the one that the catalog belongs to, or does not answer.
        """
        self.expect_own_store(again=True)
        try:
            self.blobs.weights(record.folder, record.bytes)
            return self.blobs.checksum(record.folder) != record.checksum
        except UnreadableWeights:
            return False
        except (CorruptWeights, InvalidWeights):
            return True

    def set_aside(self) -> list[int]:
        """The keys of models that lately could not be read here."""
        now = time.monotonic()
        for key in [key for key, end in self._aside.items() if end <= now]:
            self._aside.pop(key, None)
        return list(self._aside)

    def lent(self, model: str, event: Event) -> None:
        """Count that a model lent its weights; where nothing can be written, it lends all the same."""
        self._recorded(lambda: self.catalog.lent(model, event.at, event))

    def started(self, start: Start) -> bool:
        """Note how a training starts, if that is set and can be written. Was it?"""
        return self.settings.history and self._recorded(lambda: self.starts.add(start))

    def _recorded(self, write: Callable[[], None]) -> bool:
        """Write what no query fails for. Was it written?"""
        try:
            write()
        except ZooUnusable as problem:
            if not self._unrecorded:
                _log.warning("starts and loans are not recorded: %s", problem)
            self._unrecorded = True
            return False
        self._unrecorded = False
        return True

    def signature(self, record: Record) -> bytes | None:
        """The envelope that a model was registered with, or None: see `signatures`."""
        from modelkeeper.zoo.files.blobs import SIGNATURE

        try:
            return self.blobs.read(f"{record.folder}/{SIGNATURE}")
        except FileNotFoundError:
            return None

    def evidence(self, record: Record) -> bytes | None:
        """The evidence that a model was registered with, or None.

        Raises:
            CorruptWeights: It is not what was registered.
        """
        from modelkeeper.zoo.files.blobs import EVIDENCE

        if not record.evidence:
            return None
        try:
            data = self.blobs.read(f"{record.folder}/{EVIDENCE}")
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest() != record.evidence:
            raise CorruptWeights(record.id, "its evidence is not what was registered")
        return data

    def program(self, record: Record) -> bytes | None:
        """The program that a model was registered with, or None. Its front end checks it before it runs."""
        from modelkeeper.zoo.files.blobs import PROGRAM

        try:
            program = self.blobs.read(f"{record.folder}/{PROGRAM}")
        except FileNotFoundError:
            return None
        except ZooUnusable as problem:  # it is lent without calibrating
            _log.warning("the program of %s: %s", record.id, problem)
            return None
        if record.program not in ("", hashlib.sha256(program).hexdigest()):
            _log.warning("the program of %s is not what was registered, and is not used", record.id)
            return None
        return program
