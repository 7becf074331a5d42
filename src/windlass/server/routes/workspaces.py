"""The folders that agents have for themselves: listed, and cleaned up where no work is lost (K4)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from windlass.server import answer_models, request_models
from windlass.server.problems import not_now
from windlass.server.routes.shared import BY, answer, problems, returns
from windlass.server.service import Service

__all__ = ["workspace_routes"]


def workspace_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/workspaces", tags=["workspaces"])
    engine = service.engine

    @router.get("", responses={200: returns(answer_models.FolderList), **problems(404, 409)})
    async def workspaces(
        execution: Annotated[str, Query(max_length=100, description="Only of this execution.")] = "",
    ) -> Response:
        """Folders of agents and merges, each with the state of its work and its place in a merge."""
        with not_now():
            return answer({"workspaces": await engine.workspaces(execution)})

    @router.post("/clean", responses={200: returns(answer_models.FolderList), **problems(404, 409, 415)})
    async def clean(body: request_models.Cleaning | None = None) -> Response:
        """Remove folders and branches without work that would be lost; the others are kept, with the reason."""
        wanted = body or request_models.Cleaning()
        with not_now():
            return answer({"workspaces": await engine.workspaces(wanted.execution, clean=True, by=BY)})

    return router
