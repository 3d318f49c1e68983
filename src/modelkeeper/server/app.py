"""The service as an ASGI application: routes, pages, errors, and the guard in front of them."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import modelkeeper
from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.coordinator.wire import PREFIX, Problem, to_problem
from modelkeeper.errors import InvalidMeta, ModelKeeperError, ModelRefused
from modelkeeper.server.bodies import reply
from modelkeeper.server.guard import Guard, headers_of, note_failure, public
from modelkeeper.server.routes import (
    accounts,
    comparing,
    history,
    maps,
    models,
    operations,
    queries,
    trust,
    uploads,
)
from modelkeeper.server.service import Service
from modelkeeper.server.ui.pages import Pages
from modelkeeper.settings import ServiceSettings


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
        for part in (queries, models, comparing, uploads, operations, history, maps, trust, accounts):
            self.routes.include_router(part.router, prefix=PREFIX)
        self.routes.include_router(operations.probes)
        self.routes.add_exception_handler(ModelKeeperError, _known)
        self.routes.add_exception_handler(HTTPException, _plain)
        self.routes.add_exception_handler(RequestValidationError, _invalid)
        self.routes.add_exception_handler(Exception, _unknown)
        _build(self.routes)
        self.pages = Pages(self.service)
        self._guarded = Guard(self._by_path, self.service, self.pages.refuse)

    @property
    def busy(self) -> bool:
        """Are requests under way?"""
        return self._guarded.busy

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._guarded(scope, receive, send)

    async def _by_path(self, scope: Any, receive: Any, send: Any) -> None:
        """Pages for people, or routes for programs."""
        app = self.pages if scope.get("state", {}).get("page") else self.routes
        await app(scope, receive, send)


def _build(routes: FastAPI) -> None:
    """Work out what each route takes, now: FastAPI else does so while the first request waits.

    It changes what all threads warn of meanwhile, so that two services of one process could fail at it.
    """
    nowhere = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "root_path": "",
        "headers": [],
        "query_string": b"",
    }
    for route in routes.routes:
        route.matches(nowhere)


async def _known(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ModelKeeperError)
    if isinstance(problem, ModelRefused):
        request.app.state.service.metrics.refused.inc()
    note_failure(problem, request.state.request)
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
