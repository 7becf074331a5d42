"""Errors as `application/problem+json` (RFC 9457): the error, its place, its reason, and advice (C5).

Every error of the API has this form: the engine's own, a request that does not fit, a path that is not there, and what
nobody foresaw. Of the last, the body gives only its number in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass.errors import (
    Ambiguous,
    CannotResume,
    Category,
    Conflict,
    Damaged,
    InputInvalid,
    JournalError,
    NotFound,
    NotPermitted,
    PlanInvalid,
    UsageError,
    WindlassError,
)

__all__ = ["MEDIA_TYPE", "REQUEST", "NotNow", "install", "not_now", "of_error", "problem", "unexpected"]

MEDIA_TYPE = "application/problem+json"
REQUEST = "windlass.request"
"""Key in the scope of the request's number in the log."""


class NotNow(UsageError):
    """A request that is not possible in the execution's current state."""


_STATUSES: tuple[tuple[type[WindlassError], int, str], ...] = (
    # The first that fits.
    (InputInvalid, 422, "the inputs have problems"),
    (PlanInvalid, 422, "the plan has problems"),
    (NotFound, 404, "not found"),
    (Ambiguous, 409, "ambiguous"),
    (CannotResume, 409, "cannot be resumed as it is"),
    (NotNow, 409, "not possible in its current state"),
    (Conflict, 409, "another process took it over"),
    (NotPermitted, 403, "not permitted"),
    (Damaged, 409, "its record is damaged"),
    (JournalError, 503, "the journal cannot be used"),
    (UsageError, 422, "invalid request"),
    (WindlassError, 409, "not possible"),
)


@contextmanager
def not_now() -> Iterator[None]:
    """Around what is asked of an execution: a refusal is about where it stands, not about the request's form."""
    try:
        yield
    except UsageError as error:
        if type(error) is UsageError:
            raise NotNow(error.message, advice=error.advice) from error
        raise


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    category: str = Category.CONFIGURATION,
    advice: Sequence[str] = (),
    where: str = "",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    told = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "category": str(category),
        "advice": list(advice),
        "where": where,
        **more,
    }
    return Response(msgspec.json.encode(told), status, headers, MEDIA_TYPE)


def of_error(error: WindlassError, execution: str = "") -> Response:
    """An error of the engine as a response. `execution` is the one that the request was about."""
    _, status, title = next(row for row in _STATUSES if isinstance(error, row[0]))
    more: dict[str, Any] = {}
    if isinstance(error, PlanInvalid):
        more["problems"] = [msgspec.to_builtins(found) for found in error.problems]
    if isinstance(error, CannotResume):
        more["reasons"] = list(error.reasons)
    failure = error.failure
    return problem(
        status,
        title,
        _sound(failure.message),
        category=failure.category,
        advice=failure.advice or _usual_advice(status, execution),
        where=failure.where,
        **more,
    )


def _usual_advice(status: int, execution: str) -> tuple[str, ...]:
    """Advice for an error that brings none of its own."""
    if status == 404:
        return ("list them: GET /api/executions",)
    if status == 422:
        return ("see its parameters: GET /api/openapi.json",)
    if status == 409 and execution:
        return (f"see its status: GET /api/executions/{execution}", f"or type: windlass status {execution}")
    return ("check the home: windlass doctor",) if status == 503 else ()


def unexpected(number: str) -> Response:
    return problem(
        500,
        "internal error",
        f"this is a bug in Windlass; see the server's log for request {number}",
        category=Category.LOGIC,
        advice=("report it with that line of the log", "check the execution's status before you repeat the request"),
    )


def install(app: FastAPI) -> None:
    """Give every error of the application this form. Unexpected ones are raised on as well, for the log."""
    app.add_exception_handler(WindlassError, _windlass_error)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _windlass_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WindlassError)
    return of_error(error, str(request.path_params.get("execution", "")))


async def _unfit(request: Request, error: Exception) -> Response:
    """Answer a request whose fields do not fit; their values are not repeated, they may be long or secret."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"where": ".".join(str(part) for part in one["loc"]), "message": _plain(str(one["msg"]))}
        for one in error.errors()
    ]
    lines = "; ".join(f"{one['where']}: {one['message']}" for one in found[:5])
    return problem(422, "invalid request", lines, advice=("see its parameters: GET /api/openapi.json",), problems=found)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = HTTPStatus(error.status_code).phrase.lower()
    advice = {404: "list them: GET /api/openapi.json", 405: "see its parameters: GET /api/openapi.json"}
    detail = f"there is no route {request.method} {request.url.path}" if error.status_code in (404, 405) else words
    given = [advice[error.status_code]] if error.status_code in advice else []
    headers = dict(error.headers) if error.headers else None
    return problem(error.status_code, words, _sound(detail), advice=given, headers=headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    return unexpected(request.scope.get(REQUEST, ""))


def _plain(message: str) -> str:
    return _sound(message.removeprefix("Value error, "))


def _sound(text: str) -> str:
    """Replace halves of characters, which JSON cannot hold."""
    return text.encode("utf-8", "replace").decode()
