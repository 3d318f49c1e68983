"""How do requests and replies become values? JSON in and out, within limits, and ranges of bytes."""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, HTTPException, Request, Response

from modelkeeper.coordinator.wire import MAX_JSON
from modelkeeper.errors import InvalidMeta, NotAllowed
from modelkeeper.zoo.accounts import ADMIN, READ, WRITE, Holder

T = TypeVar("T")
PATIENCE = 30.0  # seconds in which the JSON of a request must have arrived


async def read_json(request: Request, kind: type[T]) -> T:
    """The body of a request.

    Raises:
        InvalidMeta: It is not what is wanted here; the message says where.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send the body as application/json")
    text = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                text += chunk
                if len(text) > MAX_JSON:
                    raise HTTPException(413, f"the body has more than {MAX_JSON:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {PATIENCE:g} s") from None
    try:
        return msgspec.json.decode(bytes(text), type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise InvalidMeta("the body", "so", str(problem)) from problem


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status, media_type="application/json", headers=headers)


def takes(kind: type[Any]) -> dict[str, Any]:
    """What the API description says of a body."""
    schema = msgspec.json.schema(kind, ref_template="#/components/schemas/{name}")
    flat = _inlined(schema, schema.get("$defs", {}), 0)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": flat}}}}


def _inlined(schema: Any, known: dict[str, Any], depth: int) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema and depth < 8:
            return _inlined(known[schema["$ref"].rpartition("/")[2]], known, depth + 1)
        return {key: _inlined(value, known, depth) for key, value in schema.items() if key != "$defs"}
    if isinstance(schema, list):
        return [_inlined(each, known, depth) for each in schema]
    return schema


def wanted_range(request: Request, total: int, etag: str) -> int | None:
    """The first byte that is wanted (`Range: bytes=N-`); None: all of them.

    A range of something that has changed meanwhile (`If-Range`) is all of it, as HTTP has it.
    """
    text = request.headers.get("range", "")
    found = re.fullmatch(r"bytes=([0-9]{1,18})-", text.strip())
    if found is None or request.headers.get("if-range", etag) != etag:
        return None
    start = int(found[1])
    if start >= total:
        raise HTTPException(416, f"there are {total:,} bytes", headers={"content-range": f"bytes */{total}"})
    return start


def _allowed(scope: str) -> Callable[[Request], Holder]:
    async def check(request: Request) -> Holder:
        holder: Holder = request.state.holder
        if not holder.may(scope):
            raise NotAllowed(f"this needs the scope {scope}, yours is {holder.scope}", "Ask for one.")
        return holder

    return check  # type: ignore[return-value]


Reader = Annotated[Holder, Depends(_allowed(READ))]
Writer = Annotated[Holder, Depends(_allowed(WRITE))]
Admin = Annotated[Holder, Depends(_allowed(ADMIN))]
