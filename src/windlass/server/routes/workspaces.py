"""The folders that agents have for themselves: listed, and cleaned up where no work is lost (K4)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from windlass.server import answer_models, request_models
from windlass.server.problems import not_now
from windlass.server.routes.shared import BY, answer, engine_of, new_router, problems, returns

__all__ = ["workspace_routes"]

workspace_routes = new_router("/api/workspaces", "workspaces")


@workspace_routes.get("", responses={200: returns(answer_models.FolderList), **problems(404, 409)})
async def workspaces(
    request: Request,
    execution: Annotated[str, Query(max_length=100, description="Only of this execution.")] = "",
) -> Response:
    """Folders of agents and merges, each with the state of its work and its place in a merge."""
    engine = engine_of(request)
    with not_now():
        return answer({"workspaces": await engine.workspaces(execution)})


@workspace_routes.post("/clean", responses={200: returns(answer_models.FolderList), **problems(404, 409, 415)})
async def clean(request: Request, body: request_models.Cleaning | None = None) -> Response:
    """Remove folders and branches without work that would be lost; the others are kept, with the reason."""
    engine = engine_of(request)
    wanted = body or request_models.Cleaning()
    with not_now():
        return answer({"workspaces": await engine.workspaces(wanted.execution, clean=True, by=BY)})
