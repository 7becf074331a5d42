"""Errors of an MCP server, as the failures that the engine decides by (C3)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from windlass.errors import CUT_OFF, Category, Failure, ToolError, WindlassError, classify
from windlass.redact import Redactor
from windlass.tools.mcp.described import clean
from windlass.tools.mcp.over_http import LastRefusal
from windlass.tools.mcp.servers import McpServer

__all__ = ["ENDED", "MOST_WORDS", "failure_of", "library_missing", "unless_done"]

MOST_WORDS = 2_000
"""Characters of a server's own words in an error."""
_UNAVAILABLE = frozenset({408, 425, 429})
_NOTHING_DONE = frozenset({408, 413, 425, 429, 503})
"""Refusals that come before anything is done."""
_CLOSED, _TIMEOUT, _INTERNAL = -32000, -32001, -32603
_BEYOND_US = frozenset({-32021, -32022, -32042})
"""It speaks no version that we speak, or needs something of its client that we do not do: questions to a person."""
_NO_ADDRESS = frozenset({"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"})
_SESSION_OVER = "Session terminated"
_LINE_CLOSED = "Connection closed"
"""The library's own words, when it notices that before we do."""
ENDED = "it ended before it answered"


def library_missing() -> ToolError:
    return ToolError(
        "tools of MCP servers need the `mcp` library, which is not installed",
        category=Category.CONFIGURATION,
        advice=("pip install 'windlass[server]'",),
    )


def failure_of(error: BaseException, server: McpServer, redactor: Redactor, noted: LastRefusal, doing: str) -> Failure:
    """`doing` is what was being done: `starting it`, `using search`."""
    from mcp.shared.exceptions import MCPError

    cause = next(_causes(error))
    if isinstance(cause, ToolError | WindlassError):
        found = cause.failure
        return Failure(found.category, f"MCP server {server.name}: {found.message}", advice=found.advice)
    words = redactor.text(clean(str(cause), MOST_WORDS) or type(cause).__name__)
    if isinstance(cause, MCPError) and words == _LINE_CLOSED:
        words = ENDED
    said = f"MCP server {server.name}, {doing}: {words}"
    if refused := _of_status(noted, said, server):
        return refused
    if isinstance(cause, MCPError):
        return _of_code(cause.code, words, said, server)
    if type(cause).__module__.startswith(("httpx2", "httpcore2")):
        category = Category.CONFIGURATION if type(cause).__name__ in _NO_ADDRESS else Category.TRANSIENT
        return Failure(category, f"{said} (nobody is reached at {_host(server)})", advice=_look(server))
    if type(cause).__name__ == "ValidationError":
        return Failure(Category.LOGIC, f"MCP server {server.name}, {doing}: its answer does not keep to the protocol")
    return Failure(classify(cause).category, said, advice=_look(server))


def unless_done(failure: Failure, noted: LastRefusal) -> Failure:
    """The same of a use that was on its way: the server may have done what it was asked, but for some refusals."""
    worth_a_retry = failure.category in (Category.TRANSIENT, Category.RESOURCE)
    if worth_a_retry and noted.status not in _NOTHING_DONE:
        return msgspec.structs.replace(failure, kind=CUT_OFF)
    return failure


def _of_status(noted: LastRefusal, said: str, server: McpServer) -> Failure | None:
    status = noted.status
    if status is None:
        return None
    said = f"{said} (HTTP {status})"
    if status in (401, 403):
        advice = (f"give it a header with a key: headers_env of mcp.{server.title} in {server.source}",)
        return Failure(Category.PERMISSION, said, advice=advice)
    if status in _UNAVAILABLE or status >= 500:
        return Failure(Category.TRANSIENT, said, retry_after=noted.retry_after)
    return Failure(Category.RESOURCE, said) if status == 413 else None


def _of_code(code: int, words: str, said: str, server: McpServer) -> Failure:
    if code in (_CLOSED, _TIMEOUT, _INTERNAL) or words == _SESSION_OVER:
        return Failure(Category.TRANSIENT, said, advice=_look(server) if code == _CLOSED else ())
    if code in _BEYOND_US:
        return Failure(Category.CONFIGURATION, f"{said} (it needs something that Windlass does not do for servers)")
    return Failure(Category.LOGIC, said)


def _host(server: McpServer) -> str:
    """Without what may be a secret: people put keys into addresses."""
    return urlsplit(server.told.url or "").netloc.rpartition("@")[2] or "this address"


def _look(server: McpServer) -> tuple[str, ...]:
    return (f"look at its entry in {server.source}", "check its health: windlass tools check")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors in the groups that anyio wraps them in."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error
