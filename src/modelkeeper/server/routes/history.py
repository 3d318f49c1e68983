"""What happened? The routes to how trainings started and went, what that saved, and how busy it was."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from modelkeeper.coordinator.history import HOUR
from modelkeeper.coordinator.wire import MAX_LISTED
from modelkeeper.policy.curves import Curve
from modelkeeper.server.bodies import gives, read_json, reply, takes
from modelkeeper.server.dependencies import Admin, Colleague, Id, TheService
from modelkeeper.warmstart.race.rules import Race
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.history.children import Child
from modelkeeper.zoo.history.past_loans import PastLoan
from modelkeeper.zoo.history.samples import Sample
from modelkeeper.zoo.history.savings import Savings
from modelkeeper.zoo.history.twins import Curves

router = APIRouter(tags=["history"])
Identity = Annotated[str | None, Query(pattern="^[0-9a-f]{16}$")]
Name = Annotated[str | None, Query(max_length=200)]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
Moment = Annotated[float | None, Query(ge=0, le=10**11)]  # seconds since 1970


@router.get("/models/{model}/curve", responses=gives(Curve | None))
async def curve(model: Id, service: TheService, who: Colleague) -> Response:
    """How the training of a model went, in at most 200 points of step, seconds and score; or null."""
    coordinator = service.coordinator
    return reply(await service.read(who, lambda: coordinator.curve(coordinator.show(model, who.viewer))))


@router.get("/models/{model}/curves", responses=gives(Curves))
async def curves(model: Id, service: TheService, who: Colleague) -> Response:
    """The same beside the best cold run of the same architecture, data, fold and task, or else a parent's."""
    coordinator, viewer = service.coordinator, who.viewer
    return reply(
        await service.read(who, lambda: coordinator.curves(coordinator.show(model, viewer), viewer=viewer))
    )


@router.get("/models/{model}/children", responses=gives(list[Child]))
async def children(
    model: Id, service: TheService, who: Colleague, before: Identity = None, limit: Limit = 50
) -> Response:
    """What started from a model, the newest first, and what each gained; `before` an id: to go on."""
    coordinator, viewer = service.coordinator, who.viewer

    def find() -> list[Child]:
        return coordinator.children(
            coordinator.show(model, viewer), limit=limit, before=before, viewer=viewer
        )

    return reply(await service.read(who, find))


@router.get("/models/{model}/loans", responses=gives(list[PastLoan]))
async def loans(
    model: Id, service: TheService, who: Colleague, before: Number = None, limit: Limit = 50
) -> Response:
    """Who started from a model, the newest first, and what came of it; `before` a number: to go on."""
    coordinator, viewer = service.coordinator, who.viewer

    def find() -> list[PastLoan]:
        return coordinator.loans(coordinator.show(model, viewer), limit=limit, before=before, viewer=viewer)

    return reply(await service.read(who, find))


@router.get("/samples", responses=gives(list[Sample]))
async def samples(
    service: TheService,
    who: Admin,
    since: Moment = None,
    until: Moment = None,
    step: Annotated[float, Query(ge=60, le=10**8)] = HOUR,
) -> Response:
    """What all replicas counted, summed by `step` seconds, the oldest first; what is 0 is left out."""
    return reply(await service.read(who, lambda: service.coordinator.samples(since, until, step)))


async def _filter(
    model: Identity = None,
    parent: Identity = None,
    child: Annotated[str | None, Query(pattern="^[0-9a-f]{1,64}$")] = None,
    task: Name = None,
    data: Name = None,
    user: Name = None,
    cold: bool | None = None,
    project: Name = None,
    since: Moment = None,
    until: Moment = None,
) -> StartFilter:
    """Which starts are meant."""
    return StartFilter(
        model=model,
        parent=parent,
        child=child,
        task=task,
        data=data,
        user=user,
        cold=cold,
        project=project,
        since=since,
        until=until,
    )


Wanted = Annotated[StartFilter, Depends(_filter)]


@router.get("/starts", responses=gives(list[Start]))
async def starts(
    service: TheService, who: Colleague, wanted: Wanted, before: Number = None, limit: Limit = 50
) -> Response:
    """How trainings started, the newest first; `before` a number: to go on where a reply ended."""
    listed = partial(service.coordinator.starts, wanted, limit=limit, before=before, viewer=who.viewer)
    return reply(await service.read(who, listed))


@router.post("/starts/{start}/race", openapi_extra=takes(Race), responses=gives(None))
async def raced(start: Id, request: Request, service: TheService, who: Colleague) -> Response:
    """Say how a race of a start of mine went."""
    race = await read_json(request, Race)
    said = partial(service.coordinator.raced, start, race, viewer=who.viewer)
    return reply(await service.read(who, said))


@router.get("/savings", responses=gives(Savings))
async def savings(
    service: TheService,
    who: Colleague,
    wanted: Wanted,
    by: Annotated[str, Query(pattern="^[a-z]{1,20}$")] = "week",
) -> Response:
    """What warm starts saved: measured, matched and estimated, which are never added up; and what it cost."""
    asked = partial(service.coordinator.savings, by, wanted, viewer=who.viewer)
    return reply(await service.read(who, asked))
