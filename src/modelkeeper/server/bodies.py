"""How do requests and replies become values? JSON in and out, within limits, and ranges of bytes."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from typing import Any, TypeVar

import anyio.to_thread
import msgspec
from anyio import CancelScope, CapacityLimiter
from fastapi import HTTPException, Request, Response
from fastapi.responses import StreamingResponse

from modelkeeper.coordinator.wire import MAX_JSON, SAFETENSORS
from modelkeeper.errors import InvalidMeta
from modelkeeper.server.limits import Held

T = TypeVar("T")
PATIENCE = 30.0  # seconds in which the JSON of a request must have arrived
_BYTES = {"content": {SAFETENSORS: {"schema": {"type": "string", "format": "binary"}}}}
STREAMED: dict[int | str, dict[str, Any]] = {  # what the API description says of a stream
    200: _BYTES,
    206: {"description": "a part", **_BYTES},
}


async def read_json(request: Request, kind: type[T]) -> T:
    """The body of a request.

    Raises:
        InvalidMeta: It is not what is wanted here; the message says where.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send the body as application/json")
    text = await _whole(request)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise InvalidMeta("the body", "so", str(problem)) from problem


async def _whole(request: Request) -> bytes:
    """All of a body, for which there must be room before it comes."""
    held: Held = request.state.held
    length = request.headers.get("content-length", "")
    announced = int(length) if re.fullmatch("[0-9]{1,18}", length) else 0
    text, too_long = bytearray(), HTTPException(413, f"the body has more than {MAX_JSON:,} bytes")
    if announced > MAX_JSON:
        raise too_long
    held.take(announced)
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                if len(text) + len(chunk) > MAX_JSON:
                    raise too_long
                held.take(len(text) + len(chunk))
                text += chunk
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {PATIENCE:g} s") from None
    return bytes(text)


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status, media_type="application/json", headers=headers)


def takes(kind: type[Any]) -> dict[str, Any]:
    """What the API description says of a body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(kind)}}}}


def gives(kind: Any) -> dict[int | str, dict[str, Any]]:
    """What the API description says of a reply."""
    return {200: {"content": {"application/json": {"schema": _schema(kind)}}}}


def _schema(kind: Any) -> Any:
    schema = msgspec.json.schema(kind, ref_template="#/components/schemas/{name}")
    return _inlined(schema, schema.get("$defs", {}), ())


def _inlined(schema: Any, known: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """A schema that refers to nothing; what would hold itself is there any object."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return {"type": "object"} if name in inside else _inlined(known[name], known, (*inside, name))
        return {key: _inlined(value, known, inside) for key, value in schema.items() if key != "$defs"}
    if isinstance(schema, list):
        return [_inlined(part, known, inside) for part in schema]
    return schema


def wanted_range(request: Request, total: int, etag: str) -> int | None:
    """The first byte that is wanted (`Range: bytes=N-`); None: all of them.

    A range of something that has changed meanwhile (`If-Range`) is all of it, as HTTP has it.
    """
    text = request.headers.get("range", "")
    asked = re.fullmatch(r"bytes=([0-9]{1,18})-", text.strip())
    if asked is None or request.headers.get("if-range", etag) != etag:
        return None
    start = int(asked[1])
    if start >= total:
        raise HTTPException(416, f"there are {total:,} bytes", headers={"content-range": f"bytes */{total}"})
    return start


def stream_reply(
    threads: CapacityLimiter,
    chunks: Iterator[bytes] | Iterator[memoryview],
    total: int,
    start: int | None,
    etag: str,
    more: Mapping[str, str] | None = None,
) -> Response:
    """Bytes as they are made, in these threads: all of them, or from `start` on, with `more` headers."""
    length = str(total - (start or 0))
    headers = {"etag": etag, "accept-ranges": "bytes", "content-length": length, **(more or {})}
    if start is not None:
        headers["content-range"] = f"bytes {start}-{total - 1}/{total}"
    status = 200 if start is None else 206
    return StreamingResponse(made_ahead(threads, chunks), status, headers=headers, media_type=SAFETENSORS)


async def made_ahead(
    threads: CapacityLimiter, chunks: Iterator[bytes] | Iterator[memoryview]
) -> AsyncIterator[bytes | memoryview]:
    """What an iterator gives, made in a thread: the next chunk while the one before is on its way."""

    async def make() -> bytes | memoryview | None:
        return await anyio.to_thread.run_sync(lambda: next(chunks, None), limiter=threads)

    making = asyncio.create_task(make())
    try:
        while (chunk := await making) is not None:
            making = asyncio.create_task(make())
            yield chunk
    finally:  # also if whoever wanted it has gone: a thread may still be at it
        with CancelScope(shield=True):
            await asyncio.wait([making])
        if not making.cancelled():
            making.exception()  # seen, if nobody waits for it any more
        if isinstance(chunks, Generator):
            chunks.close()
