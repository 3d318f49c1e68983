"""The zoo from above: every architecture as a point, near those that are like it."""

from fastapi import APIRouter, Request, Response

from modelkeeper.server.bodies import reply
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui.filters import MOST_LIKE
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor

router = APIRouter()
COLOURS = ("score", "task", "data", "framework", "family")  # what points can be coloured by


@router.get("/ui/map")
async def map_of_zoo(request: Request, service: TheService, who: Visitor) -> Response:
    """The page; a script asks for what is on it."""
    asked = request.query_params
    colour = asked.get("colour", "")
    return page(
        request,
        "map.html",
        colours=COLOURS,
        colour=colour if colour in COLOURS else "score",
        lineage=bool(asked.get("lineage")),
        most=MOST_LIKE,
    )


@router.get("/ui/map.json")
async def points(service: TheService, who: Visitor) -> Response:
    """What may be seen of the map, or that there is none yet."""
    return reply(await service.read(who, lambda: service.maps.look(who.viewer)))
