"""The service as an ASGI application: routes, errors, and the guard in front of them."""

import logging
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import modelkeeper
from modelkeeper.coordinator.local import Coordinator
from modelkeeper.coordinator.wire import PREFIX, Problem, to_problem
from modelkeeper.errors import InvalidMeta, ModelKeeperError
from modelkeeper.server.bodies import Reader, reply
from modelkeeper.server.guard import App, Guard, headers_of, public
from modelkeeper.server.routes import queries, records
from modelkeeper.server.service import Service
from modelkeeper.server.upload_routes import uploads
from modelkeeper.settings import ServiceSettings

log = logging.getLogger("modelkeeper.server")


class Application:
    """What uvicorn runs. `routes` is the FastAPI application inside the guard."""

    def __init__(self, coordinator: Coordinator, settings: ServiceSettings) -> None:
        self.service = Service(coordinator, settings)
        self.routes = FastAPI(
            title="ModelKeeper",
            version=modelkeeper.__version__,
            description="Warm starts for neural-network training.",
            docs_url=None,  # pages that load scripts from elsewhere
            redoc_url=None,
        )
        for part in (queries, records, uploads):
            self.routes.include_router(part(self.service), prefix=PREFIX)
        self.routes.include_router(_operations(self.service))
        self.routes.add_exception_handler(ModelKeeperError, _known)
        self.routes.add_exception_handler(HTTPException, _plain)
        self.routes.add_exception_handler(RequestValidationError, _invalid)
        self.routes.add_exception_handler(Exception, _unknown)
        self._guarded: App = Guard(self.routes, self.service)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._guarded(scope, receive, send)


def _operations(service: Service) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def healthz() -> Response:
        """Is the process there?"""
        return reply({"status": "ok"})

    @router.get("/readyz")
    async def readyz() -> Response:
        """Does the catalog answer?"""
        await anyio.to_thread.run_sync(service.coordinator.zoo.catalog.clock)
        return reply({"status": "ok"})

    @router.get("/version")
    async def version() -> Response:
        """Which modelkeeper is it?"""
        return reply({"version": modelkeeper.__version__, "api": PREFIX})

    @router.get("/metrics")
    async def metrics(who: Reader) -> Response:
        """Numbers for Prometheus."""
        text = await anyio.to_thread.run_sync(service.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


async def _known(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ModelKeeperError)
    if problem.status >= 500:
        log.error("request %s failed: %s", request.state.request, problem, exc_info=problem)
    return reply(to_problem(public(problem), request.state.request), problem.status, headers_of(problem))


async def _plain(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    told = Problem(error="HTTP", message=str(problem.detail), request=request.state.request)
    return reply(told, problem.status_code, dict(problem.headers or {}))


async def _unknown(request: Request, problem: Exception) -> Response:
    """Something that nobody thought of; the guard logs it."""
    told = Problem(error="Internal", message="the coordinator failed", request=request.state.request)
    return reply(told, 500)


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    told = InvalidMeta(where, repr(first.get("input"))[:80], str(first["msg"]))
    return reply(to_problem(told, request.state.request), 422)
