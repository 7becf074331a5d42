"""One line of JSON for each request, and for whatever else the server has to tell.

A line names the route, not the address: addresses can hold login codes and signed links. Nothing that a request brings
is written down but its method, its route and the execution that it is about. A line about an execution has the ids of
its step, attempt, trace and span, as far as they are known. The redactor goes over every line.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
import uuid
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.clock import iso
from windlass.ports import Telemetry, current_attempt, incoming_traceparent
from windlass.redact import Redactor
from windlass.server.guard import PUBLIC
from windlass.server.problems import REQUEST, unexpected

__all__ = ["JsonLines", "RequestLog", "log_ids", "log_to"]

NO_ROUTE = "(none)"
REQUEST_ID = b"x-request-id"
_FIXED = PUBLIC | {"/mcp", "/mcp/"}
"""Paths of routes that do not name themselves in the scope."""
_log = logging.getLogger("windlass.server")


class RequestObserver(Protocol):
    """Called with each request that was answered."""

    def __call__(self, method: str, route: str, status: int, seconds: float) -> None: ...


def log_ids(fields: Mapping[str, Any], telemetry: Telemetry | None) -> dict[str, Any]:
    """The execution, step and attempt that a log line is about, by its fields or the running attempt, and its span."""
    ids: dict[str, Any]
    if "execution" in fields:  # the line says itself what it is about
        ids = {name: fields[name] for name in ("execution", "step", "attempt") if name in fields}
    else:
        here = current_attempt.get()
        ids = here._asdict() if here is not None else {}
    if telemetry is not None and "execution" in ids:
        ids |= telemetry.ids(str(ids["execution"]), str(ids.get("step", "")), int(ids.get("attempt", 0)))
    return ids


class JsonLines(logging.Formatter):
    def __init__(self, redactor: Redactor, telemetry: Telemetry | None = None) -> None:
        """With `telemetry`, lines about an execution have the ids of its trace."""
        super().__init__()
        self._redactor = redactor
        self._telemetry = telemetry

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {"at": iso(record.created), "level": record.levelname.lower(), "from": record.name}
        told["message"] = record.getMessage()
        fields = getattr(record, "fields", {})
        told |= fields | log_ids(fields, self._telemetry)
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return self._redactor.text(json.dumps(told, ensure_ascii=False, default=str))


def log_to(stream: TextIO, redactor: Redactor, telemetry: Telemetry | None = None) -> None:
    """Let the server's log, and uvicorn's, go there."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(redactor, telemetry))
    for name, level in (("windlass", logging.INFO), ("uvicorn", logging.WARNING), ("mcp", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class RequestLog:
    """The outermost layer of the application: sees every answer, also the guard's, and unexpected errors."""

    def __init__(self, app: ASGIApp, seen: RequestObserver) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        number = scope[REQUEST] = uuid.uuid4().hex[:16]
        given = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        incoming_traceparent.set(given.decode("latin-1"))
        began = time.perf_counter()
        status = 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, number.encode())]}
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception:
            _log.exception("unexpected", extra={"fields": {"request": number}})
            if status == 0 and scope["type"] == "http":
                await unexpected(number)(scope, receive, note)
        finally:
            self._tell(scope, number, status, time.perf_counter() - began)

    def _tell(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        method = scope.get("method", "WEBSOCKET")
        fixed = scope["path"] if scope["path"] in _FIXED else NO_ROUTE
        route = getattr(scope.get("route"), "path_format", None) or fixed
        fields = {"request": number, "method": method, "route": route, "status": status, "ms": round(seconds * 1000, 3)}
        execution = scope.get("path_params", {}).get("execution")
        if execution is not None:
            fields["execution"] = execution
        _log.info("request", extra={"fields": fields})
        self._seen(method, route, status, seconds)
