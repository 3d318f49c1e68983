"""What would I get? Who would lend to a model: as `modelkeeper describe --json` has it, or one of the zoo.

A model of the zoo may be asked about as if it were wider or deeper: the page has sliders, a script asks anew
whenever one moves, and without scripts a button does. Nothing is counted as used.
"""

from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.errors import InvalidGraph, InvalidMeta, ModelKeeperError
from modelkeeper.graph import Graph
from modelkeeper.meta import read_query
from modelkeeper.server.bodies import read_json, reply
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.graphs import read_graph
from modelkeeper.server.service import Service
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.resizing import (
    NARROWEST,
    WIDEST,
    Sliders,
    read_sizes,
    resized,
    sliders,
    written_sizes,
)
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import Record, Viewer

router = APIRouter()
Named = Annotated[str, Query(max_length=200)]
Several = Annotated[list[str] | None, Query(max_length=64)]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, by what describes it or by its id; the sizes it would have; what it will be trained for."""

    graph: msgspec.Raw = msgspec.Raw(b"")
    model: str = ""
    width: float = 1.0
    blocks: tuple[int, ...] = ()
    task: str = ""
    data: str = ""


class Found(Struct, kw_only=True):
    """A model of the zoo, what it would be at other sizes, and who would lend to that."""

    record: Record
    now: Graph
    sliders: Sliders
    width: float = 1.0
    blocks: tuple[int, ...] = ()
    then: Graph | None = None
    answer: Answer | None = None
    problem: str = ""

    @property
    def query(self) -> str:
        """How the page of two models is asked for it as the one that borrows."""
        return _borrower(self.record, self.width, self.blocks, self.then is self.now)


def _borrower(record: Record, width: float, blocks: tuple[int, ...], same: bool) -> str:
    """A model, and its sizes if they are not the `same`, as an address has them."""
    return urlencode({"child": record.id} | ({} if same else written_sizes(width, blocks)))


@router.get("/ui/what-if")
async def what_if(
    request: Request,
    service: TheService,
    who: Visitor,
    model: Named = "",
    task: Named = "",
    data: Named = "",
    width: Named = "",
    blocks: Several = None,
) -> Response:
    """The page, with the answer if a model is named."""

    def look() -> Found | str:
        coordinator = service.coordinator
        try:
            record = coordinator.show(model.strip(), who.viewer)
            graph = coordinator.graph(record)
        except ModelKeeperError as problem:
            return str(problem)
        found = Found(record=record, now=graph, sliders=sliders(graph))
        try:
            found.width, found.blocks = read_sizes(width, blocks or ())
            found.then = resized(graph, found.width, found.blocks)
        except (InvalidMeta, InvalidGraph) as problem:
            found.problem, found.width, found.blocks = str(problem), 1.0, ()
            return found
        asked = Asked(model=record.id, width=found.width, blocks=found.blocks, task=task, data=data)
        found.answer = _answer(service, who.viewer, asked, found.then, record, found.then is graph)
        return found

    found = None
    if model.strip():
        found = await service.matching.run(who.user.name, look, request.is_disconnected)
    return page(
        request,
        "what_if.html",
        asked={"model": model, "task": task, "data": data},
        found=None if isinstance(found, str) else found,
        problem=found if isinstance(found, str) else "",
        bounds=(NARROWEST, WIDEST),
    )


@router.post("/ui/what-if.json")
async def explain(request: Request, service: TheService, who: Visitor) -> Response:
    """Who would lend what to a model, and why not the others; nothing is counted as used."""
    asked = await read_json(request, Asked)
    coordinator: ServedCoordinator = service.coordinator

    def search() -> dict[str, Any]:
        record = None
        if asked.model:
            record = coordinator.show(asked.model.strip(), who.viewer)
            graph = coordinator.graph(record)
        elif bytes(asked.graph):
            graph = read_graph(bytes(asked.graph))
        else:
            raise InvalidMeta("the model", "missing", "drop the file of `modelkeeper describe --json`")
        then = resized(graph, asked.width, asked.blocks)
        answer = _answer(service, who.viewer, asked, then, record, then is graph)
        unchanged = record.id if record is not None and then is graph else ""
        sizes = {"layers": len(then.layers), "parameters": then.parameters}
        borrower = _borrower(record, asked.width, asked.blocks, then is graph) if record is not None else ""
        return answer.to_dict() | {"model": unchanged, "sizes": sizes, "borrower": borrower}

    return reply(await service.matching.run(who.user.name, search, request.is_disconnected))


def _answer(
    service: Service, viewer: Viewer, asked: Asked, graph: Graph, record: Record | None, same: bool
) -> Answer:
    """Who would lend to a graph; to a model of the zoo as it is, anybody but itself."""
    said: dict[str, Any] = {"task": asked.task.strip() or None, "data": asked.data.strip() or None}
    if record is not None:
        said = {"task": said["task"] or record.task or None, "data": said["data"] or record.data or None}
        said |= {"exclude": [record.id]} if same else {}
    loan = service.coordinator.query(
        graph,
        read_query(said),
        viewer=viewer,
        dry_run=True,
        runners_up=True,
        seconds=service.settings.query_time,
    )
    return loan.answer
