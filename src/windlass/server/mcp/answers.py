"""Messages to the client besides a result: errors, warnings and progress."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from windlass.core.state import State
from windlass.core.view import progress
from windlass.errors import Failure, PlanInvalid, ToolError, WindlassError
from windlass.process import Peer, peer
from windlass.server.answer_redactor import AnswerRedactor
from windlass.server.guard import peer_of
from windlass.server.mcp.look import error_view

__all__ = ["ProgressReporter", "client_name", "failed", "told"]

P = ParamSpec("P")
R = TypeVar("R")


class ClientTools(Protocol):
    """An object with tools of clients as its methods."""

    redactor: AnswerRedactor


T = TypeVar("T", bound=ClientTools)


def client_name(ctx: Context[Any, Any]) -> str:
    """The client's name for itself, if it gives one."""
    params = ctx.session.client_params
    return params.client_info.name if params is not None else ""


def told(tool: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[T, P], Awaitable[R]]:
    """Wrap a tool: clean its answer and leave empty fields out of it, and give an error its category and advice.

    The library takes a result that is made already as it is, and the schema from the tool's own signature.
    """

    @functools.wraps(tool)
    async def telling(self: T, *args: P.args, **kwargs: P.kwargs) -> R:
        for given_context in (*args, *kwargs.values()):
            if isinstance(given_context, Context):
                peer.set(_peer(given_context))
        try:
            given = await tool(self, *args, **kwargs)
        except WindlassError as error:
            problems = [str(problem) for problem in error.problems] if isinstance(error, PlanInvalid) else []
            return failed(error.failure, problems, self.redactor)  # type: ignore[return-value]
        except ToolError as error:
            return failed(error.failure, [], self.redactor)  # type: ignore[return-value]
        if isinstance(given, InputRequiredResult):
            return given
        if isinstance(given, BaseModel):
            return _short(given, self.redactor)  # type: ignore[return-value]
        return self.redactor.clean(given)  # type: ignore[no-any-return]

    return telling  # type: ignore[return-value]


def _peer(ctx: Context[Any, Any]) -> Peer | None:
    """The other end of this call. A session keeps the context of the request that began it, so look anew."""
    request = ctx.request_context.request
    return peer_of(request.scope) if isinstance(request, HTTPConnection) else None


def _short(answer: BaseModel, redactor: AnswerRedactor) -> CallToolResult:
    """Every word of it is paid for by whoever runs the client's model."""
    structured = redactor.clean(answer.model_dump(mode="json", exclude_defaults=True))
    text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def failed(failure: Failure, problems: list[str], redactor: AnswerRedactor) -> CallToolResult:
    """A tool's error: for the model as text, for programs as structured content."""
    failure = msgspec.structs.replace(failure, message=redactor.clean(failure.message))
    problems = redactor.clean(problems)
    lines = [failure.message, f"category: {failure.category}", *(f"→ {line}" for line in failure.advice)]
    error = error_view(failure)
    assert error is not None
    structured: dict[str, Any] = {"error": error.model_dump()}
    if problems:
        structured["problems"] = problems
    text = TextContent(type="text", text="\n".join(lines))
    return CallToolResult(content=[text], structured_content=structured, is_error=True)


class ProgressReporter:
    """Sends the progress of one call to its client."""

    def __init__(self, ctx: Context[Any, Any], redactor: AnswerRedactor) -> None:
        self._ctx, self._cleaner = ctx, redactor
        self._told = 0.0

    async def progress(self, state: State, message: str) -> None:
        """Report the progress. The protocol wants each number to be larger than the last."""
        if self._told >= 100.0:
            return
        self._told = max(progress(state), self._told + (100.0 - self._told) / 1000)
        await self._ctx.report_progress(self._told, 100.0, self._cleaner.clean(message))

    async def warn(self, warning: str) -> None:
        """As a log message, where the client has asked for them; the result says it again."""
        with warnings.catch_warnings():
            # Deprecated by the newer protocol, in favour of nothing that reaches a client of the older one.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending = self._ctx.session.send_log_message(
                "warning",
                self._cleaner.clean(warning),
                logger="windlass",
                related_request_id=self._ctx.request_id,
            )
        await sending
