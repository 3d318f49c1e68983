"""How does a model come in? Announced, sent in as many pieces as the line allows, completed."""

import asyncio
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response
from starlette.requests import ClientDisconnect

from modelkeeper.coordinator.wire import SAFETENSORS, UploadRequest, UploadState
from modelkeeper.server.bodies import pieces, read_json, reply, takes
from modelkeeper.server.dependencies import Id, TheService, Writer
from modelkeeper.server.limits import Held
from modelkeeper.server.upload_store import UploadStore
from modelkeeper.write_buffers import BUFFER_BYTES, Buffer

run = anyio.to_thread.run_sync
router = APIRouter(tags=["uploads"])
FLUSH = 64 * 2**20  # bytes after which what is written goes to the disk
_BODY = {"requestBody": {"required": True, "content": {SAFETENSORS: {"schema": {"type": "string"}}}}}


@router.post("/uploads", openapi_extra=takes(UploadRequest))
async def announce(request: Request, service: TheService, who: Writer) -> Response:
    """Announce a model: its graph, what is known of it, size and checksum of its safetensors file."""
    upload = await read_json(request, UploadRequest)
    return reply(await service.matching.run(who.user.name, lambda: service.announce(upload, who)))


@router.get("/uploads/{model}")
async def state(model: Id, service: TheService, who: Writer) -> Response:
    """How many bytes have arrived?"""
    announced, offset = await run(lambda: service.uploads.get(model, service.named(who)))
    return reply(UploadState(id=model, offset=offset, size=announced.request.size))


@router.delete("/uploads/{model}")
async def abandon(model: Id, service: TheService, who: Writer) -> Response:
    """Forget an upload."""
    async with service.turns.of(model):
        await run(lambda: service.uploads.get(model, service.named(who)))
        await run(lambda: service.uploads.forget(model))
    return Response(status_code=204)


@router.put("/uploads/{model}", openapi_extra=_BODY)
async def receive(
    model: Id,
    request: Request,
    service: TheService,
    who: Writer,
    offset: Annotated[int, Query(ge=0, le=2**60)] = 0,
) -> Response:
    """The bytes of the safetensors file from `offset` on, which is where those that are there end."""
    turn = service.turns.of(model)
    if turn.locked():
        raise HTTPException(409, "this model is being sent already")
    async with turn:
        announced, there = await run(lambda: service.uploads.get(model, service.named(who)))
        if offset != there:
            raise HTTPException(409, f"{there:,} bytes are there; go on from there")
        there = await _receive(service.uploads, request, model, there, announced.request.size)
    service.metrics.bytes.labels("in").inc(there - offset)
    return reply(UploadState(id=model, offset=there, size=announced.request.size))


@router.post("/uploads/{model}/complete")
async def complete(model: Id, service: TheService, who: Writer) -> Response:
    """Take the model into the zoo. When this has answered, it is on the disk."""
    async with service.turns.of(model):
        return reply(await service.matching.run(who.user.name, lambda: service.complete(model, who)))


async def _receive(uploads: UploadStore, request: Request, identity: str, at: int, size: int) -> int:
    """Write what comes, while more is coming; two buffers, which stay, are all that is held.

    What was written is flushed to the disk meanwhile, so that whoever completes has little to wait for.
    """
    held: Held = request.state.held
    held.take(2 * min(BUFFER_BYTES, size - at))
    filling, spare = Buffer(size - at), Buffer(size - at)
    writing: asyncio.Task[None] | None = None
    flushing: asyncio.Task[None] | None = None
    flushed = at
    body = aiter(pieces(request))
    try:
        more = True
        while more:
            try:
                chunk = await anext(body, None)
            except (ClientDisconnect, TimeoutError):
                chunk = None  # what has arrived stays
            more = chunk is not None
            rest = memoryview(chunk or b"")
            if at + filling.held + len(rest) > size:
                raise HTTPException(413, f"more than the {size:,} bytes that were announced")
            while len(rest) or (not more and filling.held):
                rest = filling.take(rest)
                if filling.full or not more:
                    if writing is not None:
                        await writing
                    writing = asyncio.create_task(run(uploads.write, identity, at, filling.view()))
                    at += filling.held
                    filling, spare = spare, filling
                    filling.held = 0
            if at - flushed >= FLUSH and (flushing is None or flushing.done()):
                flushing, flushed = asyncio.create_task(run(uploads.flush, identity)), at
    finally:  # nobody else may write to it before this has ended
        under_way = [task for task in (writing, flushing) if task is not None]
        if under_way:
            await asyncio.wait(under_way)
    for task in under_way:
        task.result()
    return at
