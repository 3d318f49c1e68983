"""The pages as an ASGI application beside the routes of /v1: views, and what is seen when something fails."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from modelkeeper.errors import ModelKeeperError, NotAuthenticated
from modelkeeper.server.bodies import reply
from modelkeeper.server.guard import headers_of, note_failure, public
from modelkeeper.server.service import Service
from modelkeeper.server.ui import static_files
from modelkeeper.server.ui.rendering import HEADERS, page
from modelkeeper.server.ui.views import access, admin, diff, health, log, model, savings, what_if, zoo
from modelkeeper.server.ui.views import map as map_page

_EXTRA = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Pages:
    """What people see of a service."""

    def __init__(self, service: Service) -> None:
        self.routes = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        self.routes.state.service = service
        for part in (static_files, access, zoo, model, diff, map_page, what_if, savings, log, health, admin):
            self.routes.include_router(part.router)
        self.routes.add_exception_handler(ModelKeeperError, _known)
        self.routes.add_exception_handler(HTTPException, _plain)
        self.routes.add_exception_handler(RequestValidationError, _invalid)
        self.routes.add_exception_handler(Exception, _unknown)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.routes(scope, receive, _binding(send))

    async def refuse(
        self, scope: Any, receive: Any, send: Any, status: int, words: str, headers: dict[str, str]
    ) -> None:
        """Reply to what comes no further than the guard."""
        request = Request({**scope, "app": self.routes}, receive)
        await _failed(request, status, words, headers)(scope, receive, _binding(send))


def _binding(send: Any) -> Any:
    """The same `send`, by which each reply says what the browser may do with it."""

    async def bound(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_EXTRA]}
        await send(message)

    return bound


async def _known(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ModelKeeperError)
    if isinstance(problem, NotAuthenticated) and not _for_script(request):
        return access.to_login(request)
    note_failure(problem, request.state.request)
    return _failed(request, problem.status, str(public(problem)), headers_of(problem))


async def _plain(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return _failed(request, problem.status_code, str(problem.detail), dict(problem.headers or {}))


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return _failed(request, 422, f"{where} cannot be {str(first.get('input'))[:80]!r}: {first['msg']}")


async def _unknown(request: Request, problem: Exception) -> Response:
    """Something that nobody thought of; the guard logs it."""
    return _failed(request, 500, "The coordinator failed; its log says more.")


def _for_script(request: Request) -> bool:
    return "text/html" not in request.headers.get("accept", "text/html")


def _failed(request: Request, status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """What went wrong, as a page or for a script of one."""
    if _for_script(request):
        return reply({"message": words, "request": request.state.request}, status, headers)
    failed = page(request, "problem.html", status, words=words)
    failed.headers.update(headers or {})
    return failed
