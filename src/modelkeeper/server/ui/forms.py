"""What did a form send, and where does a page lead next? Small bodies, and ways that stay on this service."""

import asyncio
import re
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from fastapi.responses import RedirectResponse

from modelkeeper.server.ui.visitors import ROOM

MOST = 64 * 1024  # bytes of a form
PATIENCE = 30.0  # seconds in which it must have arrived
_HERE = re.compile(rf"{ROOM}(?:[/?][\x21-\x7e]*)?")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "send a form as browsers do")
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST:
                    raise HTTPException(413, f"the form has more than {MOST:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the form did not arrive within {PATIENCE:g} s") from None
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=32))


def onward(where: str) -> RedirectResponse:
    """Lead to another page of this service, by GET; to the first, if it is none."""
    inside = _HERE.fullmatch(where) is not None and "\\" not in where
    return RedirectResponse(where if inside else f"{ROOM}/models", 303)
