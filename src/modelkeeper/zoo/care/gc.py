"""What does a zoo hold that it should not, and what should it hold that is lost? `gc` looks, and tidies up.

    sweep(zoo, verify=True)     what was swept, damaged, evicted and repaired

A process that dies while it registers leaves a folder that no record names: it goes. A file that was lost or
damaged leaves a record without its weights: it lends to nobody, until the file is what was registered again.
A file that cannot be read here is reported, and so is what could not be deleted; nothing stops the rest.
What another process is writing stays, whatever the grace: its lease says so. Nothing of the catalog is held
while the store is asked for anything.
Files come first: on a full disk they make the room that the catalog needs to say what went.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import CorruptWeights, InvalidWeights, UnreadableWeights, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.policy.quality import Metric
from modelkeeper.settings import DAY
from modelkeeper.zoo.database.postgres import unhurried
from modelkeeper.zoo.records import ACTIVE, BARRED, DAMAGED, REPAIRED, SWEPT, Event, Filter, Record
from modelkeeper.zoo.zoo import Zoo

_log = logger()


class Swept(Struct, frozen=True):
    """What `gc` did."""

    staging: int  # unfinished writes that were deleted
    folders: tuple[str, ...]  # models' folders that no record named
    graphs: int
    damaged: tuple[str, ...]  # models whose weights are not what was registered
    evicted: tuple[str, ...]  # models beyond the capacity
    repaired: tuple[str, ...] = ()  # models that were damaged, and are what was registered again
    unreadable: tuple[str, ...] = ()  # models whose weights cannot be read here; nothing was done to them
    failed: tuple[str, ...] = ()  # what could not be done, and why

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def sweep(
    zoo: Zoo,
    *,
    grace: float | None = None,
    verify: bool = False,
    progress: Callable[[float, float], None] | None = None,
    user: str = "",
) -> Swept:
    """Delete what no record names, mark models whose weights are lost, and take repaired ones back.

    Args:
        zoo: The one to look through.
        grace: What is younger than so many seconds may belong to a registration under way, and stays.
        verify: Compare every model's checksum, not just the size of its file; also of damaged ones,
            whose file may have been restored from a backup.
        progress: Is told how many bytes of how many were looked at.
        user: Who sweeps, as the log calls them; "": the service by itself.
    """
    with unhurried():
        before = time.time() - (zoo.settings.grace if grace is None else grace)
        return _sweep(zoo, before, verify, progress, user)


def _sweep(
    zoo: Zoo, before: float, verify: bool, progress: Callable[[float, float], None] | None, user: str
) -> Swept:
    failed: list[str] = []
    zoo.catalog.database.expect_writable()
    zoo.expect_own_store(again=True)
    staging = zoo.blobs.sweep_staging(before, zoo.catalog.abandoned) + zoo.snapshots.sweep(before)
    if zoo.parts is not None:
        staging += zoo.parts.sweep(time.time() - before)
    whole = not zoo.catalog.damaged_records()
    if not whole:  # who knows which folders and graphs they name?
        failed.append("records of the catalog are damaged, so folders and graphs without a record stay")
    compared = _compare(zoo)
    folders = zoo.freeing(partial(_delete_unnamed, zoo, compared.unnamed, before, failed)) if whole else ()
    confirmed = zoo.look_into_suspicions()
    damaged, unreadable = _mark_damaged(zoo, compared, verify, progress, alone=bool(user))
    damaged = (*confirmed, *damaged)
    repaired = _take_back_repaired(zoo) if verify else ()
    if zoo.catalog.wrong_totals():  # an older modelkeeper may have written beside a newer one
        for wrong in zoo.freeing(zoo.catalog.count_anew):
            _log.warning("counted anew: %s", wrong)
    evicted = zoo.make_room()
    graphs = zoo.freeing(zoo.catalog.sweep_graphs) if whole else 0
    if zoo.settings.keep_starts:
        zoo.freeing(partial(zoo.starts.forget, time.time() - zoo.settings.keep_starts * DAY))
    if staging or folders:
        detail = f"{staging} unfinished writes, {len(folders)} folders without a record"
        data = {"unfinished": staging, "folders": len(folders)}
        event = Event(at=time.time(), action=SWEPT, user=user, detail=detail, data=data)
        zoo.freeing(partial(zoo.catalog.note, event))
    zoo.reserve.keep()
    return Swept(staging, folders, graphs, damaged, evicted, repaired, unreadable, tuple(failed))


class _Compared(Struct, frozen=True):
    """What the listing of a store says beside the records of its catalog."""

    unnamed: dict[str, float]  # folders that no record names, and when they were last written to
    otherwise: list[Record]  # models of which it does not show the file that was registered
    bytes: int  # of weights that there should be
    of_all: bool  # does it say of each file how large it is?


def _compare(zoo: Zoo) -> _Compared:
    """Compare listing and records: of a store elsewhere one call says of a thousand files how large they are.

    What is registered meanwhile is not listed, and is looked at by itself.
    """
    listed = {folder: (written, size) for folder, written, size in zoo.blobs.listed()}
    otherwise, total, of_all = [], 0, zoo.blobs.objects is not None
    for record in zoo.catalog.each_stored():
        total += record.bytes
        _, size = listed.pop(record.folder, (0.0, -1))
        if size is None:
            of_all = False
        elif size != record.bytes:
            otherwise.append(record)
    return _Compared({folder: written for folder, (written, _) in listed.items()}, otherwise, total, of_all)


def _delete_unnamed(
    zoo: Zoo, unnamed: Mapping[str, float], before: float, failed: list[str]
) -> tuple[str, ...]:
    """Delete folders of models that no record names and nobody wrote to since a time. Which?"""
    deleted = []
    for folder, written in unnamed.items():
        if written > before or not zoo.catalog.abandoned(folder):
            continue
        try:
            zoo.blobs.delete(folder)
            deleted.append(folder)
        except ZooUnusable as problem:
            failed.append(problem.problem)
    return tuple(deleted)


def _mark_damaged(
    zoo: Zoo,
    compared: _Compared,
    verify: bool,
    progress: Callable[[float, float], None] | None,
    *,
    alone: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Retire models whose weights are not what was registered. Which, and which could not be read?

    `alone`: somebody asked for it, and what is found here is enough: see `suspicions`.
    """
    damaged, unreadable = [], []
    done, total = 0, compared.bytes
    each = compared.otherwise if compared.of_all and not verify else zoo.catalog.each_stored()
    for record in each:
        try:
            zoo.blobs.weights(record.folder, record.bytes)
            if verify and zoo.blobs.checksum(record.folder) != record.checksum:
                raise CorruptWeights(record.id, "its checksum is not that of what was registered")
        except (CorruptWeights, InvalidWeights) as problem:
            retire = partial(zoo.retire_damaged, record, str(problem), alone=alone)
            if zoo.damaged(record) and zoo.freeing(retire):  # False: it was removed meanwhile
                damaged.append(record.id)
        except UnreadableWeights:
            unreadable.append(record.id)
        done += record.bytes
        if progress is not None:
            progress(done, total)
    return tuple(damaged), tuple(unreadable)


def _take_back_repaired(zoo: Zoo) -> tuple[str, ...]:
    """Take damaged models back whose weights are what was registered again. Which?"""
    repaired = []
    for record in zoo.catalog.find(Filter(states=(DAMAGED,))):
        try:
            zoo.blobs.weights(record.folder, record.bytes)
            whole = zoo.blobs.checksum(record.folder) == record.checksum
        except (CorruptWeights, InvalidWeights, UnreadableWeights):
            whole = False
        if whole:
            state, reason = _state_again(zoo, record)
            event = Event(at=time.time(), action=REPAIRED, model=record.id, detail=record.name)
            if zoo.catalog.restore(record.id, state, reason, event):
                repaired.append(record.id)
    return tuple(repaired)


def _state_again(zoo: Zoo, record: Record) -> tuple[str, str]:
    """The state of a repaired model and why: whether it may lend is decided anew."""
    if record.value is not None:
        metric = Metric(record.metric, record.value, record.lower_is_better)
        admission = zoo.judge(metric, record.task, record.data, record.voice)
        if admission.verdict != "admitted":
            return BARRED, admission.reason
    return ACTIVE, ""
