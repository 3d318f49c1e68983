"""How does the zoo look from above? A route for the map, as the page shows it."""

from fastapi import APIRouter, Response

from modelkeeper.server.bodies import gives, reply
from modelkeeper.server.dependencies import Reader, TheService
from modelkeeper.zoo.chart import Chart

router = APIRouter(tags=["models"])


@router.get("/map", responses=gives(Chart))
async def map_of_zoo(service: TheService, who: Reader) -> Response:
    """Every architecture of models that may be seen, as a point; `state` says if it is drawn yet."""
    return reply(await service.read(who, lambda: service.maps.look(who.viewer)))
