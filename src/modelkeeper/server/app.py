"""The service as an ASGI application: routes, errors, and the guard in front of them."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import modelkeeper
from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.coordinator.wire import PREFIX, Problem, to_problem
from modelkeeper.errors import InvalidMeta, ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.server.bodies import reply
from modelkeeper.server.guard import App, Guard, headers_of, public
from modelkeeper.server.routes import models, operations, queries, trust, uploads
from modelkeeper.server.service import Service
from modelkeeper.settings import ServiceSettings

log = logger("modelkeeper.server")


class Application:
    """What uvicorn runs. `routes` is the FastAPI application inside the guard."""

    def __init__(self, coordinator: ServedCoordinator, settings: ServiceSettings) -> None:
        self.service = Service(coordinator, settings)
        self.routes = FastAPI(
            title="ModelKeeper",
            version=modelkeeper.__version__,
            description="Warm starts for neural-network training.",
            docs_url=None,  # pages that load scripts from elsewhere
            redoc_url=None,
        )
        self.routes.state.service = self.service  # routes ask for it: see `dependencies`
        for part in (queries, models, uploads, operations, trust):
            self.routes.include_router(part.router, prefix=PREFIX)
        self.routes.include_router(operations.probes)
        self.routes.add_exception_handler(ModelKeeperError, _known)
        self.routes.add_exception_handler(HTTPException, _plain)
        self.routes.add_exception_handler(RequestValidationError, _invalid)
        self.routes.add_exception_handler(Exception, _unknown)
        self._guarded: App = Guard(self.routes, self.service)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._guarded(scope, receive, send)


async def _known(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ModelKeeperError)
    if problem.status >= 500:
        log.error("request %s failed: %s", request.state.request, problem, exc_info=problem)
    return reply(to_problem(public(problem), request.state.request), problem.status, headers_of(problem))


async def _plain(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    plain = Problem(error="HTTP", message=str(problem.detail), request=request.state.request)
    return reply(plain, problem.status_code, dict(problem.headers or {}))


async def _unknown(request: Request, problem: Exception) -> Response:
    """Something that nobody thought of; the guard logs it."""
    failed = Problem(error="Internal", message="the coordinator failed", request=request.state.request)
    return reply(failed, 500)


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    error = InvalidMeta(where, repr(first.get("input"))[:80], str(first["msg"]))
    return reply(to_problem(error, request.state.request), error.status)
