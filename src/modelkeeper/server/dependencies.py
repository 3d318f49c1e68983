"""What does a route ask for? The service, who calls and what they may do, and ids in paths.

async def show(model: Id, service: TheService, who: Reader) -> Response: ...
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Path, Request

from modelkeeper.errors import NotAllowed
from modelkeeper.server.service import Service
from modelkeeper.zoo.accounts import ADMIN, METRICS, PARTNER, READ, WRITE, Holder


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _allowed(scope: str) -> Callable[[Request], Holder]:
    async def check(request: Request) -> Holder:
        holder: Holder = request.state.holder
        if not holder.may(scope):
            raise NotAllowed(f"this needs the scope {scope}, yours is {holder.scope}", "Ask for one.")
        return holder

    return check  # type: ignore[return-value]


async def _colleague(request: Request) -> Holder:
    """Who may read, and is of this organisation."""
    holder: Holder = request.state.holder
    if not holder.may(READ) or holder.scope == PARTNER:
        raise NotAllowed(f"this needs the scope {READ}, yours is {holder.scope}", "Ask for one.")
    return holder


TheService = Annotated[Service, Depends(_service)]
Reader = Annotated[Holder, Depends(_allowed(READ))]
Colleague = Annotated[Holder, Depends(_colleague)]
Writer = Annotated[Holder, Depends(_allowed(WRITE))]
Scraper = Annotated[Holder, Depends(_allowed(METRICS))]
Admin = Annotated[Holder, Depends(_allowed(ADMIN))]
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
