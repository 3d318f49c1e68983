"""How does the body of a long reply come, without being copied on its way?

    for chunk in body_of(reply): ...

httpx gives bodies out in pieces of 64 KB, each of which was copied four times. For a file of weights that
costs as much as the rest of its way, so once such a body has begun it is read from the line itself. The line
is not used again then: whoever parses HTTP on it does not know where it stands.
"""

from collections.abc import Iterator

import httpcore
import httpx

LONG = 8 * 2**20  # bytes that are worth a new line afterwards
PIECE = 2**18  # bytes that are read at a time


def body_of(reply: httpx.Response) -> Iterator[bytes]:
    """The body as it is on the line, as `iter_raw` gives it, with the same errors."""
    chunks, left = reply.iter_raw(), _length(reply)
    # With the first of them, all that was read together with the head has been given out.
    for chunk in chunks:
        yield chunk
        left -= len(chunk)
        if left >= LONG:
            break
    line = reply.extensions.get("network_stream")
    if line is None or left < LONG:
        yield from chunks
        return
    timeout = reply.request.extensions.get("timeout", {}).get("read")
    while left > 0:
        try:
            chunk = line.read(min(left, PIECE), timeout=timeout)
        except httpcore.TimeoutException as late:
            raise httpx.ReadTimeout(str(late), request=reply.request) from late
        except httpcore.NetworkError as broken:
            raise httpx.ReadError(str(broken), request=reply.request) from broken
        if not chunk:
            raise httpx.RemoteProtocolError("the line was closed within a body", request=reply.request)
        left -= len(chunk)
        yield chunk


def _length(reply: httpx.Response) -> int:
    """How many bytes come, where the head alone says where they end; else 0."""
    length = reply.headers.get("content-length", "")
    plain = reply.http_version == "HTTP/1.1" and "transfer-encoding" not in reply.headers
    return int(length) if plain and length.isascii() and length.isdigit() else 0
