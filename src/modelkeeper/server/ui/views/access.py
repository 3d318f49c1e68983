"""Who may see a page? Whoever is logged in with a token that may read; the page to log in and out."""

from typing import Annotated
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from modelkeeper.errors import NotAllowed, NotAuthenticated
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui.forms import onward, read_form
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.visitors import ROOM, cookie, secret_of, under_tls
from modelkeeper.zoo.accounts.holders import PARTNER, READ, WRITE, Holder

router = APIRouter()
LOGIN = f"{ROOM}/login"


async def _visitor(request: Request) -> Holder:
    holder: Holder | None = request.state.holder
    if holder is None:
        raise NotAuthenticated("nobody is logged in", "Log in with a token.")
    if not holder.may(READ):
        raise NotAllowed(
            f"this needs the scope {READ}, yours is {holder.scope}", "Log in with another token."
        )
    return holder


async def _colleague(request: Request) -> Holder:
    """Who may read, and is of this organisation: what happened in a zoo is told to nobody else."""
    holder = await _visitor(request)
    if holder.scope == PARTNER:
        raise NotAllowed(
            f"this needs the scope {READ}, yours is {holder.scope}", "Log in with another token."
        )
    return holder


async def _editor(request: Request) -> Holder:
    holder = await _visitor(request)
    if not holder.may(WRITE):
        raise NotAllowed(
            f"this needs the scope {WRITE}, yours is {holder.scope}", "Log in with another token."
        )
    return holder


Visitor = Annotated[Holder, Depends(_visitor)]
Colleague = Annotated[Holder, Depends(_colleague)]
Editor = Annotated[Holder, Depends(_editor)]
To = Annotated[str, Query(max_length=2000)]


def to_login(request: Request) -> Response:
    """Lead whoever is not logged in to the login page, and from there back.

    Who follows a link of another site may well be logged in: their browser does not say so before a page of
    ours asks, which then does.
    """
    if request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET":
        return page(request, "again.html")
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = asked if request.method == "GET" else ROOM
    return RedirectResponse(f"{LOGIN}?to={quote(back, safe='/')}", 303)


@router.get("/")
@router.get("/ui")
@router.get("/ui/")
async def first() -> Response:
    """The first page is the zoo."""
    return RedirectResponse(f"{ROOM}/models", 303)


@router.get("/ui/login")
async def login(request: Request, to: To = "") -> Response:
    """Log in."""
    if request.state.holder is not None:
        return onward(to)
    return page(request, "login.html", to=to, problem="")


@router.post("/ui/login")
async def begin(request: Request, service: TheService) -> Response:
    """Begin a session with a token, which is sent this once."""
    form = await read_form(request)
    token, to = form.get("token", "").strip(), form.get("to", "")
    sessions, accounts = service.accounts.sessions, service.accounts
    run = anyio.to_thread.run_sync
    holder = await run(accounts.holder, token)
    if holder is not None and not holder.may(READ):
        problem = f"This token has the scope {holder.scope}, with which nothing can be read."
        return page(request, "login.html", 403, to=to, problem=problem)
    secret = await run(sessions.begin, token) if holder is not None else None
    if secret is None:
        problem = "This token is not valid, or not any more."
        return page(request, "login.html", 401, to=to, problem=problem)
    reply = onward(to)
    headers = dict(request.headers)
    reply.headers["set-cookie"] = cookie(secret, under_tls(request.scope, headers))
    return reply


@router.post("/ui/logout")
async def end(request: Request, service: TheService) -> Response:
    """End the session."""
    headers = dict(request.headers)
    if secret := secret_of(request.scope, headers):
        await anyio.to_thread.run_sync(service.accounts.sessions.end, secret)
    reply = RedirectResponse(LOGIN, 303)
    reply.headers["set-cookie"] = cookie("", under_tls(request.scope, headers))
    return reply
