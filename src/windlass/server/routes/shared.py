"""Shared by all routes: writing answers, and describing answers and errors for OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.engine import Engine
from windlass.server.answer_models import ProblemDetails, Snapshot
from windlass.server.idempotency import ticket_of
from windlass.server.problems import MEDIA_TYPE
from windlass.server.service import Service

__all__ = [
    "AS_IT_STANDS",
    "BY",
    "REFUSALS",
    "STARTED",
    "Id",
    "answer",
    "clean",
    "engine_of",
    "new_router",
    "problems",
    "returns",
    "service_of",
    "told",
    "written_by",
]

BY = "http"
"""Name of this surface in the journal."""
ANSWER_TYPE = "application/json"
Id = Annotated[str, Path(description="An execution's id, or a unique beginning of it.", max_length=100)]


class _AnswerEndpoint(APIRoute):
    """An endpoint that makes its whole answer: FastAPI need not look for its form in the function's signature."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **{**more, "response_model": None})


def new_router(prefix: str, group: str) -> APIRouter:
    """A router for the routes of a module. An operation is named in the document as its function is.

    FastAPI takes a tenth of a second to describe all routes, so they are described once, for every server of the
    process. A route asks by `service_of` whose request it has.
    """
    return APIRouter(
        prefix=prefix,
        tags=[group],
        route_class=_AnswerEndpoint,
        generate_unique_id_function=lambda route: route.name,
    )


def service_of(request: Request) -> Service:
    """The service of the server that got this request."""
    found: Service = request.app.state.service
    return found


def clean(request: Request, value: Any) -> Any:
    """The value with secrets hidden in every text of it, before JSON joins them."""
    return service_of(request).answer_redactor.clean(value)


def engine_of(request: Request) -> Engine:
    return service_of(request).engine


def _follows(*operations: str) -> dict[str, Any]:
    """For OpenAPI: the links from an answer to the execution's other routes."""
    parameters = {"execution": "$response.body#/id"}
    return {name: {"operationId": name, "parameters": parameters} for name in operations}


def returns(
    model: type[BaseModel], description: str = "Successful Response", *, many: bool = False, media: str = ANSWER_TYPE
) -> dict[str, Any]:
    """For OpenAPI: an answer with a body of this form, or a list of such. `DescribedApp` has the form itself.

    It is named, not given to FastAPI: that would make a validator of it for each route.
    """
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "description": description,
        "content": {media: {"schema": {"type": "array", "items": schema} if many else schema}},
    }


STARTED: dict[str, Any] = {
    **returns(Snapshot, "Started: it is on disk"),
    "links": _follows(
        "show", "events", "prompts", "pause", "interrupt", "cancel", "resume", "fork", "checkpoint", "allow_budget"
    ),
}

_ALWAYS = (400, 401, 403, 413, 421, 422, 500, 503)
"""Statuses that any request can get: from the guard, for a bad request, or for trouble with the journal."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the errors of a route, besides those that any can have."""
    every = sorted({*_ALWAYS, *statuses})
    return {status: returns(ProblemDetails, _WORDS[status], media=MEDIA_TYPE) for status in every}


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


REFUSALS = problems(404, 409, 415)
AS_IT_STANDS = {200: returns(Snapshot), **REFUSALS}
"""For OpenAPI: the answers of a request that changes an execution."""


def answer(told: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(told), status, headers, ANSWER_TYPE)


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


async def written_by(engine: Engine, execution: str, request: Request) -> ev.Event | None:
    """The event of this very request, if it was written by a server that died before it answered."""
    ticket = ticket_of(request)
    if not ticket.again:
        return None
    events = (entry.event for entry in await engine.journal.read(execution))
    return next((event for event in events if getattr(event, "request", "") == ticket.id), None)
