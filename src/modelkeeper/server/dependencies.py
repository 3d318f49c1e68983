"""What does a route ask for? The service, who calls and what they may do, and ids in paths.

async def show(model: Id, service: TheService, who: Reader) -> Response: ...
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from modelkeeper.coordinator.wire import PREFIX
from modelkeeper.errors import InvalidMeta, NotAllowed
from modelkeeper.server.service import Service
from modelkeeper.zoo.accounts.holders import ADMIN, METRICS, PARTNER, READ, WRITE, Holder


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _allowed(scope: str) -> Callable[[Request], Holder]:
    async def check(request: Request) -> Holder:
        holder: Holder = request.state.holder
        if not holder.may(scope):
            raise NotAllowed(f"this needs the scope {scope}, yours is {holder.scope}", "Ask for one.")
        _expect_known(request)
        return holder

    return check  # type: ignore[return-value]


async def _colleague(request: Request) -> Holder:
    """Who may read, and is of this organisation."""
    holder: Holder = request.state.holder
    if not holder.may(READ) or holder.scope == PARTNER:
        raise NotAllowed(f"this needs the scope {READ}, yours is {holder.scope}", "Ask for one.")
    _expect_known(request)
    return holder


def _expect_known(request: Request) -> None:
    """Refuse parameters that a route does not have: one that is misspelt would else filter nothing.

    Asked of those who may use the route, so that others learn nothing of it.

    Raises:
        InvalidMeta: There is one.
    """
    if not request.url.path.startswith(f"{PREFIX}/"):  # scrapers may say more than they are asked
        return
    known = set(_parameters(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in known:
            advice = f"known are {', '.join(sorted(known))}" if known else "this route has none"
            raise InvalidMeta("parameter", repr(name[:80]), advice)


def _parameters(dependant: Any) -> Iterator[str]:
    """The names of the parameters that a route and all it depends on have."""
    yield from (field.alias for field in dependant.query_params)
    for other in dependant.dependencies:
        yield from _parameters(other)


TheService = Annotated[Service, Depends(_service)]
Reader = Annotated[Holder, Depends(_allowed(READ))]
Colleague = Annotated[Holder, Depends(_colleague)]
Writer = Annotated[Holder, Depends(_allowed(WRITE))]
Scraper = Annotated[Holder, Depends(_allowed(METRICS))]
Admin = Annotated[Holder, Depends(_allowed(ADMIN))]
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
