"""The application: every surface of the server behind one guard.

From the outside in: the log sees every request, the guard checks who may come in, bodies are checked to be sound JSON,
a request with a key is carried out once, and then the routes: the API, the stream, MCP, the login pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from windlass.server import problems
from windlass.server.bodies import SoundBodies
from windlass.server.dashboard import dashboard_routes
from windlass.server.document import DescribedApp
from windlass.server.guard import MAX_BODY, Guard, Peers
from windlass.server.hooks import Hooks, hook_routes
from windlass.server.idempotency import IdempotencyMiddleware
from windlass.server.login_pages import approval_pages, login_routes
from windlass.server.logs import RequestLog
from windlass.server.mcp.endpoint import McpEndpoint
from windlass.server.routes.approvals import approval_routes
from windlass.server.routes.artifacts import artifact_routes
from windlass.server.routes.control import answer_routes, control_routes, step_routes
from windlass.server.routes.conversations import conversation_routes
from windlass.server.routes.executions import execution_routes
from windlass.server.routes.home import health_routes, home_routes
from windlass.server.routes.plans import plan_routes
from windlass.server.routes.steps import step_list_routes
from windlass.server.routes.workspaces import workspace_routes
from windlass.server.saved import saved_routes
from windlass.server.service import Service
from windlass.server.stream import stream_routes
from windlass.version import __version__

__all__ = ["create_app", "create_routes"]

ROUTERS = (
    execution_routes,
    step_list_routes,
    artifact_routes,
    conversation_routes,
    control_routes,
    answer_routes,
    step_routes,
    approval_routes,
    plan_routes,
    workspace_routes,
    home_routes,
    health_routes,
    saved_routes,
)
"""Described when their modules are imported, for every server of the process: they ask a request for its service."""


def create_app(service: Service, *, hosts: Collection[str] = (), max_body: int = MAX_BODY) -> ASGIApp:
    """The whole of it, to be given to a server. `hosts` are names that it may be reached by besides the loopback."""
    inner: ASGIApp = IdempotencyMiddleware(create_routes(service), service.keys, service.engine.clock)
    guarded = Guard(SoundBodies(inner), service.access, hosts=hosts, max_body=max_body, redactor=service.redactor)
    logged = RequestLog(guarded, service.metrics.request)
    # A proxy before us says how it was asked; but the peer is who holds the connection, whatever a header says.
    return Peers(ProxyHeadersMiddleware(logged))  # type: ignore[arg-type]


def create_routes(service: Service) -> FastAPI:
    """The routes, unguarded."""
    mcp = McpEndpoint(service)
    hooks = Hooks(service.engine, service.triggers)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(service.running())
            stack.push_async_callback(hooks.close)
            await stack.enter_async_context(mcp)
            yield

    app = DescribedApp(
        title="Windlass",
        version=__version__,
        description="Start, watch and steer executions. Errors are problem+json, with what to do next.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    app.state.service = service
    # Not by `include_router`: with the first request, that would describe each of them anew.
    app.router.routes += [route for router in ROUTERS for route in router.routes]
    app.router.routes += stream_routes(service.feed).routes
    app.router.routes += [
        *login_routes(service.access),
        *approval_pages(service.engine, service.access, service.redactor),
    ]
    app.router.routes += hook_routes(hooks, service.engine, service.triggers, service.tick_soon)
    app.router.routes += [Route(path, endpoint=mcp) for path in ("/mcp", "/mcp/")]  # clients are configured with either
    app.router.routes += dashboard_routes()
    return app
