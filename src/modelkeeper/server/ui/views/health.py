"""How is the zoo? Room and who goes next, states, how busy it was, its integrity, and what it refused."""

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from msgspec import Struct

from modelkeeper.errors import NotAllowed, TooManyRequests, ZooUnusable
from modelkeeper.server.bodies import reply
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.guard import public
from modelkeeper.server.service import Service
from modelkeeper.server.ui.activity import SPANS, USUAL, activity, spans
from modelkeeper.server.ui.filters import size_of
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.accounts.holders import ADMIN, Holder
from modelkeeper.zoo.foresight import Foreseen
from modelkeeper.zoo.records import DAMAGED, EVICTED, REFUSED, REPAIRED, STATES, SWEPT, Event, Record, is_id

router = APIRouter()
LATEST = 15  # events of a kind
GROUPS = 20
NEXT = 8  # models that would go next
CROWD = 5_000  # models: of more it takes too long to say who goes next before anybody asks
SHARE = 0.1  # of a zoo that is not full: whoever goes for that much goes next
INTEGRITY = (DAMAGED, REPAIRED, SWEPT)


class Outlook(Struct, frozen=True):
    """Which models go next as the zoo is set."""

    capacity: int  # that is foreseen for
    full: bool  # is that the capacity of today? else it is a little less than what there is
    found: Foreseen | None  # None: it takes too long


@router.get("/ui/health")
async def health(request: Request, service: TheService, who: Visitor) -> Response:
    """The page."""
    coordinator = service.coordinator

    def look() -> tuple[dict[str, Any], dict[str, list[Event]], dict[str, Record], str]:
        trouble = ""
        try:
            coordinator.ready()
        except ZooUnusable as problem:
            trouble = str(public(problem))
        latest = {
            action: coordinator.log(limit=LATEST, action=action, viewer=who.viewer)
            for action in (REFUSED, EVICTED, *INTEGRITY)
        }
        named = {event.model for events in latest.values() for event in events if is_id(event.model)}
        models = coordinator.known(sorted(named), who.viewer)
        return coordinator.stats(viewer=who.viewer), latest, models, trouble

    stats, latest, models, trouble = await service.read(who, look)
    asked, problem, foreseen = request.query_params.get("capacity", "").strip()[:40], "", None
    if asked and who.viewer.all:  # it is a choice among everybody's models, and takes a while in a large zoo
        try:
            foreseen = await _foresee(service, who, size_of(asked), LATEST)
        except ValueError as error:
            problem = str(error)
    room, chosen = stats["capacity"], _range(request)
    integrity = sorted((e for action in INTEGRITY for e in latest[action]), key=lambda e: -e.number)
    return page(
        request,
        "health.html",
        stats=stats,
        states=[(state, stats["states"][state]) for state in STATES if stats["states"].get(state)],
        groups=stats["groups"][:GROUPS],
        more_groups=max(0, len(stats["groups"]) - GROUPS),
        full=min(1.0, stats["bytes"] / room) if room else None,
        refused=latest[REFUSED],
        evicted=latest[EVICTED],
        integrity=integrity[:LATEST],
        models=models,
        trouble=trouble,
        whole=who.viewer.all,
        outlook=None if asked else await _outlook(service, who, stats),
        range=chosen,
        spans=spans(chosen),
        asked=asked,
        problem=problem,
        foreseen=foreseen,
    )


@router.get("/ui/health.json")
async def busy(request: Request, service: TheService, who: Visitor) -> Response:
    """How busy the services of the zoo were, for the page: for administrators, as by /v1."""
    if not who.may(ADMIN):
        raise NotAllowed(f"this needs the scope {ADMIN}, yours is {who.scope}", "Log in with another token.")
    chosen = _range(request)
    return reply(await service.read(who, lambda: activity(service.coordinator, chosen, time.time())))


def _range(request: Request) -> str:
    """How far back the address looks."""
    asked = request.query_params.get("range", USUAL)
    return asked if asked in SPANS else USUAL


async def _foresee(service: Service, who: Holder, capacity: int, most: int) -> Foreseen:
    return await service.matching.run(who.user.name, lambda: service.coordinator.foresee(capacity, most))


async def _outlook(service: Service, who: Holder, stats: dict[str, Any]) -> Outlook | None:
    """Which models go next; None: nobody has to, or it is not for them to know."""
    room, used = stats["capacity"], stats["bytes"]
    if not room or not used or not who.viewer.all:
        return None
    full = used > room
    capacity = room if full else max(1, int(used * (1 - SHARE)))
    found = None
    if stats["models"] <= CROWD:
        try:
            found = await _foresee(service, who, capacity, NEXT)
        except TooManyRequests:  # whoever asks by hand waits for their turn; a page does not
            found = None
    return Outlook(capacity, full, found)
