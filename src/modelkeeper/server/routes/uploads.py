"""How does a model come in? Announced, sent in as many pieces as the line allows, completed."""

import asyncio
import contextlib
from functools import partial
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response
from starlette.requests import ClientDisconnect

from modelkeeper.coordinator.wire import SAFETENSORS, UploadRequest, UploadState
from modelkeeper.errors import InvalidWeights
from modelkeeper.server.bodies import gives, read_json, reply, takes
from modelkeeper.server.dependencies import Id, TheService, Writer
from modelkeeper.server.inflow import LongBody
from modelkeeper.server.limits import Held
from modelkeeper.server.service import Service
from modelkeeper.server.upload_store import Sending
from modelkeeper.write_buffers import Buffer

router = APIRouter(tags=["uploads"])
FLUSH = 64 * 2**20  # bytes after which what is written goes to the disk
_BODY = {"requestBody": {"required": True, "content": {SAFETENSORS: {"schema": {"type": "string"}}}}}


@router.post("/uploads", openapi_extra=takes(UploadRequest), responses=gives(UploadState))
async def announce(request: Request, service: TheService, who: Writer) -> Response:
    """Announce a model: its graph, what is known of it, size and checksum of its safetensors file."""
    upload = await read_json(request, UploadRequest)
    return reply(await service.matching.run(who.user.name, lambda: service.announce(upload, who)))


@router.get("/uploads/{model}", responses=gives(UploadState))
async def state(model: Id, service: TheService, who: Writer) -> Response:
    """How many bytes have arrived?"""
    sending = await service.read(who, lambda: service.uploads.get(model, service.named(who)))
    return reply(UploadState(id=model, offset=sending.offset, size=sending.request.size))


@router.delete("/uploads/{model}", status_code=204, response_class=Response)
async def abandon(model: Id, service: TheService, who: Writer) -> Response:
    """Forget an upload."""
    async with service.turns.of(model):
        await service.read(who, lambda: service.uploads.get(model, service.named(who)))
        await service.read(who, lambda: service.uploads.forget(model))
    return Response(status_code=204)


@router.put("/uploads/{model}", openapi_extra=_BODY, responses=gives(UploadState))
async def receive(
    model: Id,
    request: Request,
    service: TheService,
    who: Writer,
    offset: Annotated[int, Query(ge=0, le=2**60)] = 0,
) -> Response:
    """The bytes of the safetensors file from `offset` on, which is where those that are there end.

    At whichever process of the zoo: bytes that another one has taken meanwhile are taken once.
    """
    turn = service.turns.of(model)
    if turn.locked():  # it would be in vain
        raise HTTPException(409, "this model is being sent already")
    async with turn:
        sending = await service.read(who, lambda: service.uploads.get(model, service.named(who)))
        if offset != sending.offset:
            raise HTTPException(409, f"{sending.offset:,} bytes are there; go on from there")
        try:
            with contextlib.ExitStack() as stack:
                await service.read(who, lambda: stack.enter_context(service.uploads.working(model)))
                there = await _receive(service, request, sending)
        except InvalidWeights as problem:
            raise HTTPException(409, f"{problem.problem}; go on from there") from problem
    service.metrics.bytes.labels("in").inc(there - offset)
    return reply(UploadState(id=model, offset=there, size=sending.request.size))


@router.post("/uploads/{model}/complete", responses=gives(UploadState))
async def complete(
    model: Id,
    service: TheService,
    who: Writer,
    checksum: Annotated[str, Query(pattern="^([0-9a-f]{64})?$")] = "",
) -> Response:
    """Take the model into the zoo, if it is the one with this checksum. When this has answered, it lasts."""
    async with service.turns.of(model):
        return reply(
            await service.matching.run(who.user.name, lambda: service.complete(model, who, checksum))
        )


async def _receive(service: Service, request: Request, sending: Sending) -> int:
    """Write what comes, while more is coming; two buffers, which stay, are all that is held.

    What was written is flushed to the disk meanwhile, so that whoever completes has little to wait for.
    """
    uploads, run = service.uploads, partial(anyio.to_thread.run_sync, limiter=service.storing)
    identity, at, size = sending.request.id, sending.offset, sending.request.size
    held: Held = request.state.held
    held.take(2 * min(uploads.piece, size - at))
    filling, spare = Buffer(size - at, uploads.piece), Buffer(size - at, uploads.piece)
    writing: asyncio.Task[None] | None = None
    flushing: asyncio.Task[None] | None = None
    flushed = at
    body = LongBody(request, size - at)
    try:
        more = True
        while more:
            try:
                more = await body.fill(filling)
            except (ClientDisconnect, TimeoutError):
                more = False  # what has arrived stays
            if filling.held:
                if writing is not None:
                    await writing
                writing = asyncio.create_task(
                    run(uploads.write, identity, sending.attempt, at, filling.view())
                )
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
