"""Whether the server is well, and what it counts: `/health` (also `/api/health`) and `/metrics`."""

from __future__ import annotations

import os
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from windlass.engine.gates.view import breakers, open_breakers
from windlass.errors import JournalError
from windlass.server.mcp.clean import clean
from windlass.server.metrics import CONTENT_TYPE_LATEST
from windlass.server.routes.shared import answer, problems
from windlass.server.service import Service
from windlass.version import __version__

__all__ = ["health_routes"]


def health_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["health"])
    engine = service.engine

    @router.get("/health", responses={503: {"description": "The journal cannot be used"}})
    async def health(request: Request) -> Response:
        """Whether it is well. Who is logged in is told more."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        known = kind.lower() == "bearer" and service.access.has_token(token.strip())
        return await _health(details=known)

    @router.get("/api/health", responses=problems())
    async def health_details() -> Response:
        """Whether it is well, and what it is."""
        return await _health(details=True)

    async def _health(*, details: bool) -> Response:
        trouble = None
        try:
            await engine.journal.heads(limit=1)
        except JournalError as error:
            trouble = error.message
        told: dict[str, Any] = {"ok": trouble is None}
        if details:
            told |= {
                "version": __version__,
                "home": str(engine.home),
                "pid": os.getpid(),
                "uptime_s": round(engine.clock.now() - service.started_at, 3),
                "driven": engine.driving,
                "waiting": service.waiting,
                "journal": trouble or "ok",
                "recovery": service.trouble or "ok",
                "damaged": [
                    {"execution": one.execution, "seq": one.seq, "reason": clean(one.reason)}
                    for one in sorted(engine.damaged.values(), key=lambda one: one.execution)
                ],
                "breakers": clean(open_breakers(engine.performer.gates)),
                "intake": engine.performer.intake.told(),
            }
        return answer(told, 200 if trouble is None else 503, {"cache-control": "no-store"})

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **problems()}, response_class=Response)
    async def metrics() -> Response:
        """What the server counts, in Prometheus' form."""
        page = service.metrics.page(
            counts=await engine.counts(),
            spent=await engine.ledger.spent("runtime"),
            circuits={name: told["circuit"] for name, told in breakers(engine.performer.gates).items()},
            waiting=engine.performer.intake.told()["waiting"],
            driven=engine.driving,
            clients=service.feed.clients,
            dropped=service.feed.dropped,
        )
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    return router
