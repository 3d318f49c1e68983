"""What happened in the zoo? Events with filters, as far back as one likes."""

import re
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.records import ACTIONS, Event, Record, is_id

router = APIRouter()
SIZE = 100  # events on a page
FIELDS = ("action", "model", "user")


@router.get("/ui/log")
async def log(request: Request, service: TheService, who: Visitor) -> Response:
    """The page."""
    asked = {name: request.query_params.get(name, "").strip()[:200] for name in (*FIELDS, "before")}
    chosen = {name: asked[name] for name in FIELDS if asked[name]}
    before = int(asked["before"]) if re.fullmatch("[0-9]{1,18}", asked["before"]) else None
    coordinator = service.coordinator

    def find() -> tuple[list[Event], dict[str, Record]]:
        events = coordinator.log(
            limit=SIZE + 1,
            model=chosen.get("model"),
            action=chosen.get("action"),
            user=chosen.get("user"),
            before=before,
            viewer=who.viewer,
        )
        named = {event.model for event in events if is_id(event.model)}
        return events, coordinator.known(sorted(named), who.viewer)

    events, models = await service.read(who, find)
    shown = events[:SIZE]
    older = urlencode({**chosen, "before": shown[-1].number}) if len(events) > SIZE else ""
    return page(
        request,
        "log.html",
        events=shown,
        models=models,
        chosen=chosen,
        actions=ACTIONS,
        older=older,
        newest=urlencode(chosen) if before is not None else None,
    )
