"""Which requests does the service answer? Queries, records, and what operators ask for."""

from typing import Annotated, Any

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from modelkeeper.coordinator.local import Warmth
from modelkeeper.coordinator.wire import MAX_LISTED, SAFETENSORS, QueryRequest, WeightsRequest
from modelkeeper.errors import InvalidMeta
from modelkeeper.meta import Query as Asked
from modelkeeper.meta import read_query
from modelkeeper.server.bodies import Admin, Reader, Writer, read_json, reply, takes, wanted_range
from modelkeeper.server.service import Service, read_graph
from modelkeeper.zoo.blobs import WEIGHTS
from modelkeeper.zoo.records import STORED, Filter, Record, checked_name

run = anyio.to_thread.run_sync
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Name = Annotated[str, Query(max_length=200)]
_STATES = (*STORED, "evicted", "removed", "damaged")
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {SAFETENSORS: {}}},
    206: {"description": "a part"},
}


def queries(service: Service) -> APIRouter:
    """Find a parent, and fetch what it lends."""
    router = APIRouter(tags=["queries"])

    @router.post("/query", openapi_extra=takes(QueryRequest))
    async def query(request: Request, who: Reader) -> Response:
        """Find a parent for a model, and plan what it lends."""
        asked = await read_json(request, QueryRequest)

        def search() -> Warmth:
            graph, wanted = read_graph(bytes(asked.graph)), _checked(asked.query)
            return service.coordinator.query(
                graph,
                wanted,
                viewer=who.viewer,
                dry_run=asked.dry_run,
                runners_up=asked.runners_up,
                seconds=service.settings.query_time,
            )

        found = await service.matching.run(who.user.name, search)
        service.metrics.answered(found.answer)
        return reply(found.answer)

    @router.post("/weights", openapi_extra=takes(WeightsRequest), responses=_STREAM)
    async def weights(request: Request, who: Reader) -> Response:
        """The weights that a parent lends to a model, as safetensors, made tensor by tensor."""
        asked = await read_json(request, WeightsRequest)
        _checked(asked.query)
        key, found = await service.matching.run(who.user.name, lambda: service.warmth(asked, who))
        header = found.header
        total, etag = len(header.to_bytes()) + header.data_bytes, f'"{key}"'
        start = wanted_range(request, total, etag)
        service.metrics.bytes.labels("out").inc(total - (start or 0))
        return _stream(service.gathered(key, found, total, start or 0), total, start, etag)

    @router.get("/weights/{key}/checksum")
    async def checksum(key: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], who: Reader) -> Response:
        """The SHA-256 of a stream of weights that was sent to its end; `key` is its ETag."""
        found = service.checksum(key)
        if found is None:
            raise HTTPException(404, "no such stream has ended here")
        return reply({"checksum": found})

    return router


def records(service: Service) -> APIRouter:
    """List, show and remove models."""
    router = APIRouter(tags=["models"])
    coordinator = service.coordinator

    async def filters(
        who: Reader,
        task: Name | None = None,
        data: Name | None = None,
        owner: Name | None = None,
        text: Name | None = None,
        tag: Annotated[list[str] | None, Query(max_length=64)] = None,
        state: Annotated[list[str] | None, Query(max_length=8)] = None,
    ) -> Filter:
        if unknown := set(state or ()) - set(_STATES):
            raise InvalidMeta("state", repr(unknown.pop()[:40]), f"choose of {', '.join(_STATES)}")
        return Filter(
            viewer=who.viewer,
            states=tuple(state) if state else STORED,
            task=_name("task", task),
            data=_name("data", data),
            owner=_name("owner", owner),
            text=_name("text", text),
            tags=tuple(checked_name("tag", each, empty=False) for each in tag or ()),
        )

    @router.get("/models")
    async def models(
        wanted: Annotated[Filter, Depends(filters)],
        order: Annotated[str, Query(max_length=40)] = "-created",
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 100,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Response:
        """Records of models that may be seen."""
        if order.removeprefix("-") not in Record.__struct_fields__:
            raise InvalidMeta("order", repr(order), "give a field of a record, - in front for descending")
        found = await run(lambda: coordinator.models(wanted, order=order, limit=limit, offset=offset))
        return reply(found)

    @router.get("/count")
    async def count(wanted: Annotated[Filter, Depends(filters)]) -> Response:
        """How many models that may be seen there are."""
        return reply(await run(lambda: coordinator.count(wanted)))

    @router.get("/find")
    async def find(name: Name, who: Reader) -> Response:
        """The model with this id, the only one whose id begins so, or the newest of this name."""
        checked_name("name", name, empty=False)
        return reply(await run(lambda: coordinator.show(name, who.viewer)))

    @router.get("/models/{model}")
    async def show(model: Id, who: Reader) -> Response:
        """One record."""
        return reply(await run(lambda: coordinator.show(model, who.viewer)))

    @router.get("/models/{model}/tree")
    async def tree(model: Id, who: Reader) -> Response:
        """A model with all that it descends from and all that descends from it."""
        return reply(await run(lambda: coordinator.tree(model, who.viewer)))

    @router.get("/models/{model}/graph")
    async def graph(model: Id, who: Reader) -> Response:
        """The graph of a model."""
        text = await run(
            lambda: coordinator.zoo.catalog.graph_bytes(coordinator.show(model, who.viewer).graph)
        )
        return Response(text, media_type="application/json")

    @router.get("/models/{model}/program")
    async def program(model: Id, who: Reader) -> Response:
        """The program of a model in base64, or null: what it computes, as plain data."""
        return reply(await run(lambda: coordinator.zoo.program(coordinator.show(model, who.viewer))))

    @router.get("/models/{model}/" + WEIGHTS, responses=_STREAM)
    async def weights(model: Id, request: Request, who: Reader) -> Response:
        """The weights of a model as they were registered. The ETag is their SHA-256."""
        record = await run(lambda: coordinator.show(model, who.viewer))
        etag = f'"{record.checksum}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        blobs = coordinator.zoo.blobs
        await run(lambda: blobs.weights(record.folder, record.bytes))  # is it there, and as long as it was?
        start = wanted_range(request, record.bytes, etag)
        service.metrics.bytes.labels("out").inc(record.bytes - (start or 0))
        chunks = blobs.chunks(f"{record.folder}/{WEIGHTS}", start or 0)
        return _stream(chunks, record.bytes, start, etag)

    @router.delete("/models/{model}")
    async def remove(model: Id, who: Writer) -> Response:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""
        record = await run(lambda: service.owned(model, who))
        return reply(await run(lambda: coordinator.remove(record.id, user=who.user.name, viewer=who.viewer)))

    @router.put("/models/{model}/pin")
    async def pin(model: Id, who: Writer) -> Response:
        """Keep a model whatever it is worth."""
        record = await run(lambda: service.owned(model, who))
        return reply(
            await run(lambda: coordinator.pin(record.id, True, user=who.user.name, viewer=who.viewer))
        )

    @router.delete("/models/{model}/pin")
    async def unpin(model: Id, who: Writer) -> Response:
        """Let retention decide about a model again."""
        record = await run(lambda: service.owned(model, who))
        return reply(
            await run(lambda: coordinator.pin(record.id, False, user=who.user.name, viewer=who.viewer))
        )

    @router.get("/stats")
    async def stats(who: Reader) -> Response:
        """Counts over all models that may be seen."""
        return reply(await run(lambda: coordinator.stats(viewer=who.viewer)))

    @router.get("/log")
    async def log(
        who: Reader,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
        model: Annotated[str | None, Query(pattern="^[0-9a-f]{16}$")] = None,
        action: Annotated[str | None, Query(pattern="^[a-z_]{1,40}$")] = None,
    ) -> Response:
        """What happened, the newest first."""
        found = await run(lambda: coordinator.log(limit=limit, model=model, action=action, viewer=who.viewer))
        return reply(found)

    @router.post("/gc")
    async def gc(
        who: Admin,
        grace: Annotated[float | None, Query(ge=0, le=10**9)] = None,
        verify: bool = False,
    ) -> Response:
        """Sweep what was left behind."""
        return reply(await run(lambda: service.gc(grace, verify)))

    return router


def _stream(chunks: Any, total: int, start: int | None, etag: str) -> Response:
    headers = {"etag": etag, "accept-ranges": "bytes", "content-length": str(total - (start or 0))}
    if start is not None:
        headers["content-range"] = f"bytes {start}-{total - 1}/{total}"
    status = 200 if start is None else 206
    return StreamingResponse(chunks, status, headers=headers, media_type=SAFETENSORS)


def _checked(asked: Asked) -> Asked:
    """The same query, if it holds what `read_query` would let through."""
    given = msgspec.structs.asdict(asked)
    return read_query(
        {key: value or None for key, value in given.items() if key != "minimum_similarity"}
        | {"minimum_similarity": asked.minimum_similarity}
    )


def _name(what: str, text: str | None) -> str | None:
    return None if text is None else checked_name(what, text)
