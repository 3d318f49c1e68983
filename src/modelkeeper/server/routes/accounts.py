"""Who may use the service, and for what? The routes to users, projects and tokens.

Administrators use them; everybody's own tokens are for everybody: see `administration`. Users, projects and
tokens are named by their ids, which stay whatever they are called.
"""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from modelkeeper.coordinator.wire import (
    MAX_LISTED,
    KnownUser,
    MadeToken,
    NewProject,
    NewToken,
    NewUser,
    Quotas,
)
from modelkeeper.server.bodies import gives, read_json, reply, takes
from modelkeeper.server.dependencies import Admin, Colleague, Id, TheService
from modelkeeper.zoo.accounts.account_lists import Group, Listed, Member
from modelkeeper.zoo.accounts.holders import Token

router = APIRouter(tags=["accounts"])
After = Annotated[str, Query(max_length=200)]  # what `next` of a reply said
Text = Annotated[str, Query(max_length=200)]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
Whose = Annotated[str, Query(pattern="^([0-9a-f]{16})?$")]
MemberId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


@router.get("/users", responses=gives(Listed[KnownUser]))
async def users(
    service: TheService, who: Admin, limit: Limit = 100, after: After = "", text: Text = ""
) -> Response:
    """Users by name, with what they keep and may keep; `text` somewhere in the name."""
    listed = partial(service.administration.users, who, limit=limit, after=after, text=text)
    return reply(await service.read(who, listed))


@router.post("/users", openapi_extra=takes(NewUser), responses=gives(KnownUser))
async def add_user(request: Request, service: TheService, who: Admin) -> Response:
    """Add a user, who may do nothing before they have a token; 409 if there is one of this name."""
    asked = await read_json(request, NewUser)
    return reply(await service.read(who, lambda: service.administration.add_user(who, asked)))


@router.get("/users/{user}", responses=gives(KnownUser))
async def user(user: Id, service: TheService, who: Admin) -> Response:
    """One user."""
    return reply(await service.read(who, lambda: service.administration.user(who, user)))


@router.put("/users/{user}/quotas", openapi_extra=takes(Quotas), responses=gives(KnownUser))
async def set_quotas(user: Id, request: Request, service: TheService, who: Admin) -> Response:
    """Set all quotas of a user; what is left out or null is as the service is set."""
    quotas = await read_json(request, Quotas)
    return reply(await service.read(who, lambda: service.administration.set_quotas(who, user, quotas)))


@router.delete("/users/{user}", responses=gives(KnownUser))
async def remove_user(user: Id, service: TheService, who: Admin) -> Response:
    """Remove a user with all tokens and sessions; models stay. 409 for the last administrator."""
    return reply(await service.read(who, lambda: service.administration.remove_user(who, user)))


@router.get("/projects", responses=gives(Listed[Group]))
async def projects(
    service: TheService, who: Admin, limit: Limit = 100, after: After = "", text: Text = ""
) -> Response:
    """Projects by name, with how many belong to each; `text` somewhere in the name."""
    listed = partial(service.administration.projects, who, limit=limit, after=after, text=text)
    return reply(await service.read(who, listed))


@router.post("/projects", openapi_extra=takes(NewProject), responses=gives(Group))
async def add_project(request: Request, service: TheService, who: Admin) -> Response:
    """Add a project; 409 if there is one of this name."""
    asked = await read_json(request, NewProject)
    return reply(await service.read(who, lambda: service.administration.add_project(who, asked)))


@router.get("/projects/{project}", responses=gives(Group))
async def project(project: Id, service: TheService, who: Admin) -> Response:
    """One project."""
    return reply(await service.read(who, lambda: service.administration.project(who, project)))


@router.delete("/projects/{project}", responses=gives(Group))
async def remove_project(project: Id, service: TheService, who: Admin) -> Response:
    """Remove a project. Its models are then seen by their owners alone."""
    return reply(await service.read(who, lambda: service.administration.remove_project(who, project)))


@router.get("/projects/{project}/members", responses=gives(Listed[Member]))
async def members(
    project: Id, service: TheService, who: Admin, limit: Limit = 100, after: After = ""
) -> Response:
    """Who belongs to a project, by name."""
    listed = partial(service.administration.members, who, project, limit=limit, after=after)
    return reply(await service.read(who, listed))


@router.put("/projects/{project}/members/{user}", responses=gives(Group))
async def join(project: Id, user: MemberId, service: TheService, who: Admin) -> Response:
    """Make a user a member of a project; who is one stays one."""
    return reply(await service.read(who, lambda: service.administration.join(who, project, user)))


@router.delete("/projects/{project}/members/{user}", responses=gives(Group))
async def leave(project: Id, user: MemberId, service: TheService, who: Admin) -> Response:
    """End that a user belongs to a project; 404 if they do not."""
    return reply(await service.read(who, lambda: service.administration.leave(who, project, user)))


@router.get("/tokens", responses=gives(Listed[Token]))
async def tokens(
    service: TheService,
    who: Colleague,
    limit: Limit = 100,
    after: After = "",
    user: Whose = "",
) -> Response:
    """What is known of my tokens, the oldest first; administrators: of everybody's, or of a user's, by id."""
    listed = partial(service.administration.tokens, who, limit=limit, after=after, user=user)
    return reply(await service.read(who, listed))


@router.post("/tokens", openapi_extra=takes(NewToken), responses=gives(MadeToken))
async def add_token(request: Request, service: TheService, who: Colleague) -> Response:
    """Make a token, told this once: of mine, no more than the one I use; administrators: of anybody's."""
    asked = await read_json(request, NewToken)
    return reply(await service.read(who, lambda: service.administration.add_token(who, asked)))


@router.delete("/tokens/{token}", responses=gives(Token))
async def revoke(token: Id, service: TheService, who: Colleague) -> Response:
    """End a token of mine, and those made with it, everywhere within a second; administrators: anybody's."""
    return reply(await service.read(who, lambda: service.administration.revoke(who, token)))
