"""The zoo: a table of models, with everything that is chosen in the address; and the same as CSV."""

from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui import filters, spreadsheets
from modelkeeper.server.ui.map_parts import located
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.catalog.paging import Page
from modelkeeper.zoo.records import STATES

router = APIRouter()


@router.get("/ui/models")
async def zoo(request: Request, service: TheService, who: Visitor) -> Response:
    """The table."""
    asked = filters.read(request.query_params.multi_items(), who.viewer)
    coordinator = service.coordinator

    def find() -> tuple[filters.Wanted, Page, bool, int, int]:
        wanted = located(service, asked)
        turn = partial(coordinator.page, wanted.filter, order=wanted.order, limit=filters.SIZE)
        found, first = turn(**wanted.where), not wanted.way
        if wanted.way == filters.BEFORE and not found.more:  # that far back it is the first page, a full one
            found, first = turn(), True
        total = coordinator.count(wanted.filter)
        everything = total if total else coordinator.count(filters.read((), who.viewer).filter)
        return wanted, found, first, total, everything

    wanted, found, first, total, everything = await service.read(who, find)
    return page(
        request,
        "zoo.html",
        records=found.records,
        total=total,
        empty=not everything,
        wanted=wanted,
        states=STATES,
        first=first,
        last=wanted.model == filters.END if wanted.way == filters.BEFORE and not first else not found.more,
    )


@router.get("/ui/models.csv")
async def as_csv(request: Request, service: TheService, who: Visitor) -> Response:
    """The same models as a file for spreadsheets."""
    asked = filters.read(request.query_params.multi_items(), who.viewer)
    wanted = await service.read(who, lambda: located(service, asked))

    def ask(after: str, limit: int) -> Page:
        return service.coordinator.page(wanted.filter, order=wanted.order, limit=limit, after=after)

    lines = await service.read(who, partial(spreadsheets.table, ask))
    named = {"content-disposition": 'attachment; filename="models.csv"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=named)
