"""Does a zoo work: can it be written, is there room, does its service answer, does a model go in and out?

`looked_at(uri)` changes nothing in the zoo that it is given; `round_trip` registers a tiny model, queries for
a wider one, compares what both compute, and removes it.
"""

import contextlib
import email.utils
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import modelkeeper
from modelkeeper.cli.doctor_installed import FAIL, OK, WARN, Finding
from modelkeeper.errors import ModelKeeperError
from modelkeeper.text import counted, one_line, size

if TYPE_CHECKING:
    import httpx

    from modelkeeper.coordinator import Coordinator
    from modelkeeper.coordinator.opening import Target
    from modelkeeper.graph import Graph
    from modelkeeper.settings import Settings
    from modelkeeper.weights import Array

LITTLE, TOO_LITTLE = 2 * 10**9, 10**8  # bytes that are free on a disk
ROUNDED = 2.0  # seconds: a reply says its time without fractions, and was on its way
SKEW = 60.0  # seconds that a service's clock may be off: tokens end and models age by it
NAME = "modelkeeper-doctor"  # of the model of a round trip, its data and its task
TAKES, GIVES = 6, 3


def looked_at(uri: str | None) -> Iterator[Finding]:
    """All that can be said of a zoo without changing it."""
    from modelkeeper.coordinator.opening import target

    try:
        meant = target(uri)
    except ModelKeeperError as problem:
        yield _failed("zoo", problem)
        return
    yield from _service(meant) if meant.url else _here(meant)
    yield from _spool(meant.settings)


def _failed(check: str, problem: ModelKeeperError) -> Finding:
    return Finding(
        check=check, state=FAIL, found=one_line(str(problem)), advice=problem.remedy.removesuffix(".")
    )


# -- a zoo of this machine ------------------------------------------------------------------------


def _here(meant: "Target") -> Iterator[Finding]:
    settings = meant.settings
    if settings.in_memory:
        yield Finding(check="zoo", state=OK, found="in memory")
        return
    folder = settings.folder
    yield _schema(folder, settings) or _opened(meant)
    yield _writable(folder)
    yield _room("room for the zoo", folder)


def _schema(folder: Path, settings: "Settings") -> Finding | None:
    """What opening a zoo in a folder would do to it, if that is more than to read it."""
    from modelkeeper.coordinator.opening import is_zoo
    from modelkeeper.zoo.database import schema
    from modelkeeper.zoo.database.read_only import ReadOnly

    path = folder / "catalog.db"
    if settings.catalog:
        return None
    try:
        if not is_zoo(folder):
            advice = (
                "The first registration makes it. If it should be there, say where: --zoo, MODELKEEPER_URI"
            )
            return Finding(check="zoo", state=WARN, found=f"there is none in {folder} yet", advice=advice)
    except ModelKeeperError as problem:
        return _failed("zoo", problem)
    try:
        with contextlib.closing(ReadOnly(path).connect()) as connection:
            [version] = connection.execute("select version_num from alembic_version").fetchone() or ("",)
    except sqlite3.Error as problem:
        advice = f"See what is damaged: modelkeeper verify --zoo {folder}"
        return Finding(check="zoo", state=FAIL, found=f"{path}: {problem}", advice=advice)
    if str(version) >= schema.VERSION:
        return None
    found = (
        f"{folder} has the schema {version}; this modelkeeper brings it to {schema.VERSION} as it opens it"
    )
    return Finding(
        check="zoo", state=WARN, found=found, advice="Back it up first: older versions cannot open it then"
    )


def _opened(meant: "Target") -> Finding:
    """Can it be opened, and what is in it?"""
    try:
        with contextlib.closing(meant.open(make=False)) as coordinator:
            models = coordinator.count()
    except ModelKeeperError as problem:
        return _failed("zoo", problem)
    return Finding(check="zoo", state=OK, found=f"{counted(models, 'model')} in {meant.settings.folder}")


def _writable(folder: Path) -> Finding:
    """Can a file be written where the zoo is, or would be?"""
    there = _nearest(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".modelkeeper-doctor-"):
            pass
    except OSError as problem:
        advice = "Nothing can be registered. Give yourself the right to write there, or use another zoo"
        return Finding(
            check="writing", state=FAIL, found=f"{there}: {problem.strerror or problem}", advice=advice
        )
    return Finding(check="writing", state=OK, found=f"{there} can be written to")


def _nearest(folder: Path) -> Path:
    """The folder, or what of the way to it is there and may be seen."""
    return next(each for each in (folder, *folder.absolute().parents) if os.path.exists(each))


def _room(check: str, folder: Path) -> Finding:
    """How much is free on the disk of a folder?"""
    there = _nearest(folder)
    free = shutil.disk_usage(there).free
    found = f"{size(free)} are free on the disk of {there}"
    advice = (
        "Make room: modelkeeper gc, or a capacity (MODELKEEPER_CAPACITY=20GB) beyond which the least worth go"
    )
    state = FAIL if free < TOO_LITTLE else WARN if free < LITTLE else OK
    return Finding(check=check, state=state, found=found, advice="" if state == OK else advice)


def _spool(settings: "Settings") -> Iterator[Finding]:
    """Does anything wait to be sent?"""
    from modelkeeper.coordinator.remote import Spool

    try:
        waiting = len(Spool.of(settings.spool or None).entries())
    except OSError as problem:
        yield Finding(
            check="waiting models", state=WARN, found=str(problem), advice="Look at MODELKEEPER_SPOOL"
        )
        return
    if waiting:
        found = f"{counted(waiting, 'model')} could not be sent to their service yet"
        yield Finding(check="waiting models", state=WARN, found=found, advice="Send them: modelkeeper sync")


# -- a service ------------------------------------------------------------------------------------


def _service(meant: "Target") -> Iterator[Finding]:
    import httpx

    with httpx.Client(base_url=meant.url, timeout=meant.settings.timeout, follow_redirects=False) as client:
        began = time.monotonic()
        try:
            reply = client.get("/version")
            taken = time.monotonic() - began
            said = reply.raise_for_status().json()
            version, api = str(said["version"]), str(said["api"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as problem:
            advice = "See whether the address is right, it runs there, and no firewall or proxy is between"
            found = one_line(f"{meant.url}: {problem or type(problem).__name__}")
            yield Finding(check="service", state=FAIL, found=found, advice=advice)
            return
        yield _version(meant.url, version, api, taken)
        yield from _clock(reply, time.time())
        yield _ready(client)
    yield _account(meant)


def _version(url: str, version: str, api: str, taken: float) -> Finding:
    from modelkeeper.coordinator.wire import PREFIX

    here = modelkeeper.__version__
    found = one_line(f"{url} is modelkeeper {version}, answered within {1000 * taken:.0f} ms")
    if api != PREFIX:
        advice = f"Install the version that the service has, {version}, from its clone or its wheel"
        found = one_line(f"{found}, and speaks {api}, not {PREFIX}")
        return Finding(check="service", state=FAIL, found=found, advice=advice)
    if version.split(".")[:2] != here.split(".")[:2]:
        advice = "Update the service before its clients: what one of them does not know is an error"
        return Finding(check="service", state=WARN, found=f"{found}; here it is {here}", advice=advice)
    return Finding(check="service", state=OK, found=found)


def _clock(reply: "httpx.Response", now: float) -> Iterator[Finding]:
    """How far is the clock of the service from ours, as its reply says it, to the second?"""
    try:
        there = email.utils.parsedate_to_datetime(reply.headers["date"]).timestamp()
    except (LookupError, ValueError, TypeError):
        return  # behind a proxy that says no time
    skew = there - now
    off = f"is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    found = f"that of the service {off if abs(skew) > ROUNDED else 'is right within 2 s'}"
    advice = "Let both machines follow a time server (NTP)"
    wrong = abs(skew) > SKEW
    yield Finding(check="clock", state=WARN if wrong else OK, found=found, advice=advice if wrong else "")


def _ready(client: "httpx.Client") -> Finding:
    import httpx

    advice = "Its log says what is missing; while it starts or stops this passes by itself"
    try:
        reply = client.get("/readyz")
    except httpx.HTTPError as problem:
        return Finding(check="ready", state=FAIL, found=one_line(str(problem)), advice=advice)
    if reply.is_success:
        return Finding(check="ready", state=OK, found="catalog, store and search index answer")
    return Finding(check="ready", state=FAIL, found=one_line(reply.text[:300]), advice=advice)


def _account(meant: "Target") -> Finding:
    """Who are we there, and what may we do?"""
    from modelkeeper.coordinator.remote.calls import Calls
    from modelkeeper.coordinator.wire import Account

    calls = Calls(meant.url, meant.token, meant.settings.timeout)
    try:
        account = calls.ask("GET", "/me", Account)
    except ModelKeeperError as problem:
        return _failed("token", problem)
    finally:
        calls.close()
    kept = f"keeps {counted(account.models, 'model')}, {size(account.bytes)}"
    found = one_line(f"{account.user or 'no users there: everyone'}, scope {account.scope}, {kept}")
    if account.scope not in ("write", "admin"):
        advice = "Enough to query, not to register: ask an administrator for a token of the scope write"
        return Finding(check="token", state=WARN, found=found, advice=advice)
    full = account.most_bytes is not None and account.bytes >= account.most_bytes
    full |= account.most_models is not None and account.models >= account.most_models
    if full:
        advice = "The quota is used up: remove models of yours, or ask an administrator for more"
        return Finding(check="token", state=WARN, found=found, advice=advice)
    return Finding(check="token", state=OK, found=found)


# -- one model in and out -------------------------------------------------------------------------


def trip_apart() -> Iterator[Finding]:
    """A round trip through a zoo in a temporary folder."""
    from modelkeeper.coordinator import open_local

    check = "round trip"
    yield _room("room for temporary files", Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="modelkeeper-doctor-") as folder:
        try:
            # Whatever is set for another zoo, this one is here.
            with contextlib.closing(
                open_local(os.path.join(folder, "zoo"), catalog="", blobs="", shards="")
            ) as zoo:
                yield round_trip(zoo, check)
        except ModelKeeperError as problem:
            yield _failed(check, problem)


def trip_into(uri: str | None) -> Finding:
    """A round trip through a zoo that others use."""
    from modelkeeper import coordinator

    check = "round trip in the zoo"
    try:
        with contextlib.closing(coordinator.open(uri)) as opened:
            return round_trip(opened, check)
    except ModelKeeperError as problem:
        return _failed(check, problem)


def round_trip(zoo: "Coordinator", check: str) -> Finding:
    """Register a network, let a wider one start from it, compare what they compute, and remove it."""
    from modelkeeper.connection import login
    from modelkeeper.meta import Query, read_registration

    began = time.monotonic()
    small, wide = _network(8), _network(12)
    rng = np.random.default_rng(0)
    trained = {name: rng.standard_normal(one.shape).astype(np.float32) for name, one in small.tensors.items()}
    said = {"data": NAME, "task": NAME, "accuracy": 0.5, "visibility": "private"}
    record = zoo.register(small, read_registration(said, NAME), trained.items(), owner=login()).record
    try:
        loan = zoo.query(wide, Query(data=NAME, task=NAME, parents=(record.id,)))
        if loan.answer.cold:
            reason = one_line(f"the model was registered, but did not lend: {loan.answer.reason}")
            return Finding(
                check=check, state=WARN, found=reason, advice="See `modelkeeper explain`, and the settings"
            )
        batch = rng.standard_normal((16, TAKES)).astype(np.float32)
        difference = float(np.abs(_computed(trained, batch) - _computed(dict(loan.weights()), batch)).max())
    finally:
        zoo.remove(record.id, user=login())
    found = f"registered, queried, compared and removed within {time.monotonic() - began:.1f} s"
    if not difference < 1e-4:
        found = f"a wider model computes something else than its parent: off by {difference:.2g}"
        return Finding(
            check=check, state=FAIL, found=found, advice="Please report this, with all of this table"
        )
    return Finding(check=check, state=OK, found=found)


def _network(width: int) -> "Graph":
    """Two linear layers with a relu between, without a framework."""
    from modelkeeper.tracing.builder import TraceBuilder
    from modelkeeper.tracing.describe import describe
    from modelkeeper.tracing.trace import OwnedTensor

    build = TraceBuilder("plain")
    value = build.input((1, TAKES))
    for name, wide in (("hidden", width), ("head", GIVES)):
        shapes = {"weight": (wide, value.shape[-1]), "bias": (wide,)}
        weight, bias = (
            build.tensor(OwnedTensor((f"{name}.{part}",), shape, "float32")) for part, shape in shapes.items()
        )
        value = build.step("linear", (1, wide), input=value, weight=weight, bias=bias)
        if name == "hidden":
            value = build.step("relu", value.shape, self=value)
    return describe(build.trace([value]))


def _computed(weights: "dict[str, Array]", batch: "Array") -> "Array":
    hidden = np.maximum(batch @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    result: Array = hidden @ weights["head.weight"].T + weights["head.bias"]
    return result
