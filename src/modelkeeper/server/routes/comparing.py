"""What would one model lend to another, layer by layer? The route to a comparison of two models as data."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from modelkeeper.graph import Graph
from modelkeeper.server.bodies import gives, reply
from modelkeeper.server.comparisons import Comparison
from modelkeeper.server.dependencies import Reader, TheService
from modelkeeper.zoo.records import Record

router = APIRouter(tags=["models"])
Named = Annotated[str, Query(min_length=1, max_length=200)]


class Compared(Struct, frozen=True, kw_only=True):
    """One of the two models."""

    id: str
    name: str
    fingerprint: str
    layers: int
    parameters: int


class ComparedLayer(Struct, frozen=True, kw_only=True):
    """A layer, by its number in the graph, and the shapes of its weights."""

    number: int
    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]


class ComparedRow(Struct, frozen=True, kw_only=True):
    """A layer of both, or of one alone, what happens there, and what differs."""

    parent: ComparedLayer | None
    child: ComparedLayer | None
    action: str
    differs: tuple[str, ...]


class Covered(Struct, frozen=True, kw_only=True):
    """How much an action covers."""

    tensors: int
    layers: int
    parameters: int
    percent: float
    percent_of_layers: float


class Lent(Struct, frozen=True, kw_only=True):
    """What the parent lends: is it exact, why not, how much of the child's numbers, by which actions."""

    exact: bool
    doubts: tuple[str, ...]
    coverage: float
    actions: dict[str, Covered]


class Difference(Struct, frozen=True, kw_only=True):
    """Two models, layer against layer; without a plan, if that took too long."""

    parent: Compared
    child: Compared
    similarity: float
    plan: Lent | None
    counts: dict[str, int]  # rows by action
    rows: tuple[ComparedRow, ...]


@router.get("/diff", responses=gives(Difference))
async def diff(request: Request, service: TheService, who: Reader, parent: Named, child: Named) -> Response:
    """What `parent` would lend to `child` (ids or names), aligned row by row in the child's order."""

    def work() -> Difference:
        lender, borrower = (service.coordinator.show(name, who.viewer) for name in (parent, child))
        return told(lender, borrower, service.comparisons.of(lender, borrower))

    return reply(await service.matching.run(who.user.name, work, request.is_disconnected))


def told(lender: Record, borrower: Record, found: Comparison) -> Difference:
    """A comparison as data."""
    counts: dict[str, int] = {}
    for action in found.actions:
        counts[action] = counts.get(action, 0) + 1
    rows = tuple(
        ComparedRow(
            parent=_layer(found.parent, row.parent),
            child=_layer(found.child, row.child),
            action=action,
            differs=row.differs,
        )
        for row, action in zip(found.rows, found.actions, strict=True)
    )
    return Difference(
        parent=_model(lender, found.parent),
        child=_model(borrower, found.child),
        similarity=found.alignment.similarity,
        plan=_lent(found),
        counts=counts,
        rows=rows,
    )


def _model(record: Record, graph: Graph) -> Compared:
    return Compared(
        id=record.id,
        name=record.name,
        fingerprint=graph.fingerprint,
        layers=len(graph.layers),
        parameters=graph.parameters,
    )


def _layer(graph: Graph, number: int | None) -> ComparedLayer | None:
    if number is None:
        return None
    layer = graph.layers[number]
    shapes = tuple(dict.fromkeys(tensor.shape for tensor in layer.tensors if not tensor.buffer))
    return ComparedLayer(number=number, name=layer.name, kind=layer.kind, shapes=shapes)


def _lent(found: Comparison) -> Lent | None:
    plan = found.plan
    if plan is None:
        return None
    actions = {
        action: Covered(
            tensors=int(row["tensors"]),
            layers=int(row["layers"]),
            parameters=int(row["parameters"]),
            percent=row["percent"],
            percent_of_layers=row["percent_of_layers"],
        )
        for action, row in plan.summary().items()
    }
    return Lent(exact=plan.exact, doubts=plan.doubts, coverage=plan.coverage, actions=actions)
