"""How is the zoo? Room, states, what comes and goes, and what it refused."""

from typing import Any

from fastapi import APIRouter, Request, Response

from modelkeeper.errors import ZooUnusable
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.guard import public
from modelkeeper.server.ui.filters import size_of
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.records import EVICTED, REFUSED, STATES, Event, Record, is_id

router = APIRouter()
LATEST = 15  # events of a kind
GROUPS = 20


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
            for action in (REFUSED, EVICTED)
        }
        named = {event.model for events in latest.values() for event in events if is_id(event.model)}
        models = coordinator.known(sorted(named), who.viewer)
        return coordinator.stats(viewer=who.viewer), latest, models, trouble

    stats, latest, models, trouble = await service.read(who, look)
    asked, problem, foreseen = request.query_params.get("capacity", "").strip()[:40], "", None
    if asked and who.viewer.all:  # it is a choice among everybody's models, and takes a while in a large zoo
        try:
            capacity = size_of(asked)
            foreseen = await service.matching.run(
                who.user.name, lambda: coordinator.foresee(capacity, LATEST)
            )
        except ValueError as error:
            problem = str(error)
    room = stats["capacity"]
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
        models=models,
        trouble=trouble,
        whole=who.viewer.all,
        asked=asked,
        problem=problem,
        foreseen=foreseen,
    )
