"""Which parent does a model get, and what does it lend? The routes of queries and of their weights."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, HTTPException, Path, Request, Response
from fastapi.responses import StreamingResponse

from modelkeeper.coordinator.base import ServedLoan
from modelkeeper.coordinator.wire import SEAL, SEAL_BYTES, VIA, Checksum, QueryRequest, WeightsRequest
from modelkeeper.meta import Query, read_query
from modelkeeper.server.bodies import STREAMED, gives, read_json, reply, stream_reply, takes, wanted_range
from modelkeeper.server.dependencies import Reader, TheService
from modelkeeper.server.graphs import read_graph
from modelkeeper.warmstart.answer import Answer

router = APIRouter(tags=["queries"])


@router.post("/query", openapi_extra=takes(QueryRequest), responses=gives(Answer))
async def query(request: Request, service: TheService, who: Reader) -> Response:
    """Find a parent for a model, and plan what it lends."""
    asked = await read_json(request, QueryRequest)
    graph_bytes, via = bytes(asked.graph), _via(request)

    def search() -> ServedLoan:
        wanted = _checked(asked.query)
        loan = service.coordinator.query(
            read_graph(graph_bytes),
            wanted,
            viewer=who.viewer,
            dry_run=asked.dry_run,
            runners_up=asked.runners_up,
            seconds=service.settings.query_time,
            via=via,
        )
        service.loans.remember(graph_bytes, wanted, loan)
        return loan

    loan = await service.matching.run(who.user.name, search, request.is_disconnected)
    service.metrics.answered(loan.answer)
    return reply(loan.answer)


@router.post(
    "/weights", openapi_extra=takes(WeightsRequest), responses=STREAMED, response_class=StreamingResponse
)
async def weights(request: Request, service: TheService, who: Reader) -> Response:
    """The weights that parents lend to a model, as safetensors, made tensor by tensor.

    With the header `x-modelkeeper-seal` their SHA-256 follows behind them, 32 bytes more: any process that
    goes on with a stream can say what all of it must be.
    """
    asked = await read_json(request, WeightsRequest)
    wanted, parents = _checked(asked.query), asked.all_parents()

    def find() -> tuple[str, ServedLoan]:
        return service.loans.find(bytes(asked.graph), wanted, parents, who.viewer)

    key, loan = await service.matching.run(who.user.name, find, request.is_disconnected)
    header = loan.header
    length, sealed = len(header.to_bytes()) + header.data_bytes, SEAL in request.headers
    total, etag = length + SEAL_BYTES * sealed, f'"{key}"'
    start = wanted_range(request, total, etag)
    service.metrics.bytes.labels("out").inc(total - (start or 0))
    chunks = service.loans.stream(key, loan, length, start or 0, sealed=sealed)
    headers = {SEAL: "sha256"} if sealed else {}
    return stream_reply(service.storing, chunks, total, start, etag, headers)


@router.get("/weights/{key}/checksum", responses=gives(Checksum))
async def checksum(
    key: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], service: TheService, who: Reader
) -> Response:
    """The SHA-256 of a stream of weights that this process has sent to its end; `key` is its ETag.

    For clients that do not ask for it behind the weights: see `weights`.
    """
    known = service.loans.checksum(key)
    if known is None:
        raise HTTPException(404, "no such stream has ended here")
    return reply(Checksum(checksum=known))


def _via(request: Request) -> tuple[str, ...]:
    """The coordinators that a query came through; what cannot be read goes no further."""
    text = request.headers.get(VIA)
    return () if text is None else tuple(text[:200].split(","))


def _checked(asked: Query) -> Query:
    """The same query, if it holds what `read_query` would let through."""
    fields = msgspec.structs.asdict(asked)
    numbers = {name: fields[name] for name in ("minimum_similarity", "most_parents", "budget")}
    query = read_query({key: value or None for key, value in fields.items() if key != "frozen"} | numbers)
    return msgspec.structs.replace(query, frozen=asked.frozen)
