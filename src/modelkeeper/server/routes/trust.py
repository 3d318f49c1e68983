"""Whose signatures count here, and is the log of the zoo whole? Routes for trusted keys and audits."""

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response

from modelkeeper.coordinator.wire import TrustRequest
from modelkeeper.server.bodies import gives, read_json, reply, takes
from modelkeeper.server.dependencies import Admin, Colleague, TheService
from modelkeeper.zoo.care.audit import Audited
from modelkeeper.zoo.trust import TrustedKey

run = anyio.to_thread.run_sync
router = APIRouter(tags=["trust"])
KeyId = Annotated[str, Path(pattern="^[0-9a-f]{4,64}$")]


@router.get("/keys", responses=gives(list[TrustedKey]))
async def keys(service: TheService, who: Colleague) -> Response:
    """The public keys that are trusted here, and those that were."""
    return reply(await service.read(who, service.coordinator.trusted_keys))


@router.post("/keys", openapi_extra=takes(TrustRequest), responses=gives(TrustedKey))
async def trust(request: Request, service: TheService, who: Admin) -> Response:
    """Trust a public key."""
    asked = await read_json(request, TrustRequest)
    coordinator, user = service.coordinator, who.user.name
    return reply(await service.read(who, lambda: coordinator.trust_key(asked.line, asked.name, user=user)))


@router.delete("/keys/{key}", responses=gives(TrustedKey))
async def revoke(key: KeyId, service: TheService, who: Admin) -> Response:
    """Trust a public key no more."""
    coordinator, user = service.coordinator, who.user.name
    return reply(await service.read(who, lambda: coordinator.revoke_key(key, user=user)))


@router.get("/audit", responses=gives(Audited))
async def audit(
    service: TheService, who: Admin, since: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Verify the log of the zoo; since an earlier head, if that is given."""
    return reply(await run(lambda: service.coordinator.audit(since)))
