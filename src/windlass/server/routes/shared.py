"""Shared by all routes: writing answers, and describing errors for OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Path
from starlette.responses import Response

from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.server.answer_models import ProblemDetails, Snapshot
from windlass.server.problems import MEDIA_TYPE

__all__ = ["BY", "STARTED", "Id", "answer", "problems", "told"]

BY = "http"
"""Name of this surface in the journal."""
Id = Annotated[str, Path(description="An execution's id, or a unique beginning of it.", max_length=100)]


def _follows(*operations: str) -> dict[str, Any]:
    """For OpenAPI: the links from an answer to the execution's other routes."""
    parameters = {"execution": "$response.body#/id"}
    return {name: {"operationId": name, "parameters": parameters} for name in operations}


STARTED: dict[str, Any] = {
    "model": Snapshot,
    "description": "Started: it is on disk",
    "links": _follows(
        "show", "events", "prompts", "pause", "interrupt", "cancel", "resume", "fork", "checkpoint", "allow_budget"
    ),
}

_ALWAYS = (400, 401, 403, 413, 421, 422, 500, 503)
"""Statuses that any request can get: from the guard, for a bad request, or for trouble with the journal."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the errors of a route, besides those that any can have."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*_ALWAYS, *statuses}):
        found[status] = {
            "model": ProblemDetails,
            "content": {MEDIA_TYPE: {}},
            "description": _WORDS.get(status, "An error"),
        }
    return found


_WORDS = {
    400: "The body is not valid JSON",
    401: "No token and no session",
    403: "Not permitted, or from a foreign page",
    404: "Not found",
    409: "Not possible in its current state",
    413: "The body is too long",
    415: "The body is not JSON",
    421: "Not a name of this server",
    422: "The request or the plan has problems",
    500: "A bug in Windlass",
    503: "The journal cannot be used",
}


def answer(told: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(told), status, headers, "application/json")


def told(
    state: State,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Response:
    """An execution as it stands; with notes and warnings of the request, where there are some."""
    more = {"notes": list(notes), "warnings": list(warnings)}
    return answer(snapshot(state) | {name: lines for name, lines in more.items() if lines}, status, headers)
