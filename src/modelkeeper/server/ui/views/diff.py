"""Two models, layer against layer: what would the one lend to the other?"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from modelkeeper.errors import ModelKeeperError
from modelkeeper.server.bodies import reply
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui.comparing import compare
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.records import Record, is_id

router = APIRouter()
Named = Annotated[str, Query(max_length=200)]
Ids = Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
Several = Annotated[list[str] | None, Query(max_length=64)]


@router.get("/ui/diff")
async def diff(
    request: Request,
    service: TheService,
    who: Visitor,
    parent: Named = "",
    child: Named = "",
    model: Several = None,
) -> Response:
    """The page; two models that were ticked in the zoo are the older and the newer one."""
    coordinator = service.coordinator
    problems: list[str] = []

    def find(name: str) -> Record | None:
        try:
            return coordinator.show(name.strip(), who.viewer) if name.strip() else None
        except ModelKeeperError as problem:
            problems.append(str(problem))
            return None

    def both() -> tuple[Record | None, Record | None]:
        if model:
            ticked = coordinator.known([name for name in model if is_id(name)], who.viewer).values()
            if len(ticked) != 2:
                problems.append(f"Tick two models to compare: {len(ticked)} are ticked.")
            older, newer, *_ = (*sorted(ticked, key=lambda record: record.key)[:2], None, None)
            return older, newer
        return find(parent), find(child)

    lender, borrower = await service.read(who, both)
    return page(
        request,
        "diff.html",
        lender=lender,
        borrower=borrower,
        asked=(lender.id if lender else parent, borrower.id if borrower else child),
        problems=problems,
    )


@router.get("/ui/diff.json")
async def rows(request: Request, service: TheService, who: Visitor, parent: Ids, child: Ids) -> Response:
    """The rows of the page."""
    coordinator = service.coordinator

    def work() -> dict[str, Any]:
        lender, borrower = (coordinator.show(name, who.viewer) for name in (parent, child))
        same = (lender.data, lender.task) == (borrower.data, borrower.task)
        graphs = coordinator.graph(lender), coordinator.graph(borrower)
        return compare(*graphs, same_task=same, seconds=service.settings.query_time)

    return reply(await service.matching.run(who.user.name, work, request.is_disconnected))
