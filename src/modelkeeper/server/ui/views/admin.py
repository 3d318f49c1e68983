"""Who may use the service, and for what? Users, projects and tokens: pages for administrators.

Forms over `server.administration`, which decides who may do what, and logs it.
"""

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from modelkeeper.coordinator.wire import NewProject, NewToken, NewUser, Quotas
from modelkeeper.errors import InvalidSetting, NotAllowed
from modelkeeper.server.administration import Administration
from modelkeeper.server.dependencies import Id, TheService
from modelkeeper.server.service import Service
from modelkeeper.server.ui.filters import size_of
from modelkeeper.server.ui.forms import onward, read_form
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.accounts.holders import SCOPES, Holder

router = APIRouter()
HERE = "/ui/admin"
SIZE = 50  # of each list on a page
MEMBERS = 500
KINDS = ("users", "projects", "tokens")
T = TypeVar("T")


async def _done(service: Service, who: Holder, do: Callable[[Administration], T]) -> T:
    return await service.read(who, lambda: do(service.administration))


@router.get(HERE)
async def overview(request: Request, service: TheService, who: Visitor) -> Response:
    """Users with what they keep, projects, and tokens; each list goes on by itself."""
    asked = {name: request.query_params.get(name, "").strip()[:200] for name in ("text", *KINDS)}
    text = asked["text"]
    lists: dict[str, Any] = await _done(
        service,
        who,
        lambda those: {
            "users": those.users(who, limit=SIZE, after=asked["users"], text=text),
            "projects": those.projects(who, limit=SIZE, after=asked["projects"], text=text),
            "tokens": those.tokens(who, limit=SIZE, after=asked["tokens"]),
        },
    )
    chosen = {name: value for name, value in asked.items() if value}
    more = {name: urlencode({**chosen, name: lists[name].next}) if lists[name].next else "" for name in KINDS}
    return page(
        request, "admin.html", text=text, more=more, later=len(chosen) > bool(text), scopes=SCOPES, **lists
    )


@router.get(f"{HERE}/users/{{user}}")
async def user(user: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """One user: what they keep, quotas, tokens."""
    after = request.query_params.get("tokens", "")[:200]
    known, tokens = await _done(
        service,
        who,
        lambda those: (those.user(who, user), those.tokens(who, limit=SIZE, after=after, user=user)),
    )
    more = urlencode({"tokens": tokens.next}) if tokens.next else ""
    return page(request, "admin_user.html", user=known, tokens=tokens, more=more, scopes=SCOPES)


@router.get(f"{HERE}/projects/{{project}}")
async def project(project: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """One project, and who belongs to it."""
    after = request.query_params.get("members", "")[:200]
    known, members = await _done(
        service,
        who,
        lambda those: (those.project(who, project), those.members(who, project, limit=MEMBERS, after=after)),
    )
    more = urlencode({"members": members.next}) if members.next else ""
    return page(request, "admin_project.html", project=known, members=members, more=more)


@router.post(f"{HERE}/users")
async def add_user(request: Request, service: TheService, who: Visitor) -> Response:
    """Add a user, and lead to their page, where a token is made."""
    asked = NewUser(name=(await read_form(request)).get("name", "").strip())
    known = await _done(service, who, lambda those: those.add_user(who, asked))
    return onward(f"{HERE}/users/{known.id}")


@router.post(f"{HERE}/users/{{user}}/quotas")
async def set_quotas(user: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """Set all quotas of a user; what is left empty is as the service is set."""
    form = await read_form(request)
    models, pins = _number(form, "models"), _number(form, "pins")
    quotas = Quotas(
        bytes=_size(form.get("bytes", "")),
        models=None if models is None else int(models),
        pins=None if pins is None else int(pins),
        rate=_number(form, "rate"),
    )
    await _done(service, who, lambda those: those.set_quotas(who, user, quotas))
    return onward(f"{HERE}/users/{user}")


@router.post(f"{HERE}/users/{{user}}/remove")
async def remove_user(user: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """Remove a user with all tokens."""
    _expect_sure(await read_form(request), user)
    await _done(service, who, lambda those: those.remove_user(who, user))
    return onward(HERE)


@router.post(f"{HERE}/projects")
async def add_project(request: Request, service: TheService, who: Visitor) -> Response:
    """Add a project, and lead to its page, where members are added."""
    asked = NewProject(name=(await read_form(request)).get("name", "").strip())
    known = await _done(service, who, lambda those: those.add_project(who, asked))
    return onward(f"{HERE}/projects/{known.id}")


@router.post(f"{HERE}/projects/{{project}}/{{action}}")
async def change_project(
    project: Id, action: str, request: Request, service: TheService, who: Visitor
) -> Response:
    """Let somebody join or leave a project, or remove it."""
    form = await read_form(request)
    named = form.get("user", "").strip()
    if action == "remove":
        _expect_sure(form, project)
        await _done(service, who, lambda those: those.remove_project(who, project))
        return onward(HERE)
    if action == "join":
        await _done(service, who, lambda those: those.join(who, project, named))
    elif action == "leave":
        await _done(service, who, lambda those: those.leave(who, project, named))
    else:
        raise InvalidSetting("what is done to a project", repr(action[:40]), "join, leave or remove")
    return onward(f"{HERE}/projects/{project}")


@router.post(f"{HERE}/tokens")
async def add_token(request: Request, service: TheService, who: Visitor) -> Response:
    """Make a token, and show it this once: the page is kept nowhere."""
    form = await read_form(request)
    asked = NewToken(
        scope=form.get("scope", ""),
        user=_expect_named(form),
        days=_number(form, "days"),
        note=form.get("note", "").strip(),
    )
    await _done(service, who, lambda those: those.users(who, limit=1))  # for administrators, as the page is
    made = await _done(service, who, lambda those: those.add_token(who, asked))
    return page(request, "admin_token.html", made=made)


@router.post(f"{HERE}/tokens/{{token}}/revoke")
async def revoke(token: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """End a token, and those made with it."""
    _expect_sure(await read_form(request), token)

    def end(those: Administration) -> str:
        those.users(who, limit=1)  # for administrators, as the page is
        return those.revoke(who, token).user_id

    return onward(f"{HERE}/users/{await _done(service, who, end)}")


def _expect_sure(form: dict[str, str], what: str) -> None:
    if form.get("sure") != what:
        raise NotAllowed("nobody has said that they are sure", "Tick the box beside the button.")


def _expect_named(form: dict[str, str]) -> str:
    if not (named := form.get("user", "").strip()):
        raise InvalidSetting("user", "''", "say whose token it is to be")
    return named


def _size(text: str) -> int | None:
    """Bytes as people write them; None: nobody said."""
    try:
        return size_of(text.strip()) if text.strip() else None
    except ValueError:
        raise InvalidSetting("the quota of bytes", repr(text[:40]), "write 500 MB or 2 GB") from None


def _number(form: dict[str, str], name: str) -> float | None:
    """A number from 0 on; None: nobody said. Whole, where things are counted."""
    text = form.get(name, "").strip()
    if not text:
        return None
    whole = name in ("models", "pins")
    if not re.fullmatch(r"[0-9]{1,18}" if whole else r"[0-9]{1,12}(\.[0-9]{1,12})?", text):
        raise InvalidSetting(name, repr(text[:40]), f"write a {'whole ' * whole}number, like 20")
    value = float(text)
    return int(text) if whole else value if math.isfinite(value) else None
