"""How is the service, and what happened in its zoo? Routes for operators, load balancers and Prometheus."""

from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from msgspec import Struct

import modelkeeper
from modelkeeper.coordinator.wire import MAX_LISTED, PREFIX, Account, Counts
from modelkeeper.server.bodies import gives, reply
from modelkeeper.server.dependencies import Admin, Reader, Scraper, TheService
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.foresight import Foreseen
from modelkeeper.zoo.records import Event

run = anyio.to_thread.run_sync
router = APIRouter(tags=["operations"])
probes = APIRouter(tags=["operations"])  # without the prefix of the API


class Status(Struct, frozen=True):
    """It is there."""

    status: str = "ok"


class Version(Struct, frozen=True):
    """Which modelkeeper answers."""

    version: str
    api: str  # what the paths of its routes begin with


@router.get("/me", responses=gives(Account))
async def me(service: TheService, who: Reader) -> Response:
    """Who asks, what they may do, and how much they keep."""
    return reply(await service.read(who, lambda: service.account(who)))


@router.get("/stats", responses=gives(Counts))
async def stats(service: TheService, who: Reader) -> Response:
    """Counts over all models that may be seen."""
    return reply(await service.read(who, lambda: service.coordinator.stats(viewer=who.viewer)))


@router.get("/log", responses=gives(list[Event]))
async def log(
    service: TheService,
    who: Reader,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
    model: Annotated[str | None, Query(pattern="^[0-9a-f]{16}$")] = None,
    action: Annotated[str | None, Query(pattern="^[a-z_]{1,40}$")] = None,
    user: Annotated[str | None, Query(max_length=200)] = None,
    before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """What happened, the newest first; `before` the event of this number, to go on where a reply ended."""
    chosen: dict[str, Any] = {
        "limit": limit,
        "model": model,
        "action": action,
        "user": user,
        "before": before,
    }
    log = partial(service.coordinator.log, viewer=who.viewer, **chosen)
    return reply(await service.read(who, log))


@router.post("/gc", responses=gives(Swept))
async def gc(
    service: TheService,
    who: Admin,
    grace: Annotated[float | None, Query(ge=0, le=10**9)] = None,
    verify: bool = False,
) -> Response:
    """Sweep what was left behind."""
    return reply(await run(lambda: service.gc(grace, verify, who.user.name)))


@router.get("/foresee", responses=gives(Foreseen))
async def foresee(
    service: TheService,
    who: Admin,
    capacity: Annotated[int, Query(ge=1, le=2**60)],
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
) -> Response:
    """Which models would go if the zoo had this capacity, in bytes; the first of them, each with why."""
    coordinator = service.coordinator
    found = await service.matching.run(who.user.name, lambda: coordinator.foresee(capacity, limit))
    return reply(found)


@probes.get("/healthz", responses=gives(Status))
async def healthz() -> Response:
    """Is the process there?"""
    return reply(Status())


@probes.get("/readyz", responses=gives(Status))
async def readyz(service: TheService) -> Response:
    """Can it take requests: do the catalog and the store answer, is the search index there?"""
    await run(service.readiness.expect, limiter=service.probing)
    return reply(Status())


@probes.get("/version", responses=gives(Version))
async def version() -> Response:
    """Which modelkeeper is it?"""
    return reply(Version(version=modelkeeper.__version__, api=PREFIX))


@probes.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: TheService, who: Scraper) -> Response:
    """Numbers for Prometheus: over all models, whoever may see them, so they need a right of their own."""
    text = await service.read(who, service.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
