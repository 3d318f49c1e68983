"""Which files do pages need? Scripts and styles, under an address that changes whenever one of them does.

All of them lie under one address with a digest over all, so that modules import each other by plain names and
a browser may keep them for ever. What others wrote lies in the folder vendor, and is asked for as `vendor/…`.
"""

import hashlib
from importlib import resources

from fastapi import APIRouter, HTTPException, Request, Response

from modelkeeper.server.ui.visitors import ROOM

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOLDER = resources.files("modelkeeper.server.ui") / "static"
FILES = {
    before + file.name: file.read_bytes()
    for before, folder in (("", _FOLDER), ("vendor/", _FOLDER / "vendor"))
    for file in sorted(folder.iterdir(), key=lambda file: file.name)
    if file.name.rpartition(".")[2] in TYPES
}
VERSION = hashlib.sha256(b"\0".join(FILES.values())).hexdigest()[:12]
router = APIRouter()


def address(name: str) -> str:
    """Where a file is to be had."""
    assert name in FILES, name
    return f"{ROOM}/static/{VERSION}/{name}"


@router.get("/ui/static/{version}/{name:path}")
async def static(version: str, name: str, request: Request) -> Response:
    """A script or a style; of another version, as another replica may have it, what there is now."""
    if name not in FILES:
        raise HTTPException(404, "there is no such file")
    etag = f'"{VERSION}"'
    kept = "public, max-age=31536000, immutable" if version == VERSION else "no-cache"
    headers = {"etag": etag, "cache-control": kept}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(FILES[name], media_type=TYPES[name.rpartition(".")[2]], headers=headers)
