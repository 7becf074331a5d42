"""The `http.*` tools: each a name, a method and an effect for recovery."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

from windlass.plan.model import Effect
from windlass.ports import Call, Tool
from windlass.settings import NetworkSettings
from windlass.tools.functional import Act, Arguments, FunctionalTool
from windlass.tools.http.download import keep
from windlass.tools.http.requests import (
    Download,
    Downloaded,
    Fetch,
    Response,
    SendRequest,
    ask_of,
    body_of,
    failed,
    head_of,
    read,
    secrets_of,
)
from windlass.tools.net.exchange import exchange
from windlass.tools.net.failures import in_time
from windlass.tools.net.guard import AddressGuard, Resolver, system_resolver
from windlass.tools.net.names import read_address
from windlass.tools.net.transport import SharedConnections, installed

__all__ = ["http_tools"]

MOST_OF_A_REFUSAL = 64 * 1024
"""Bytes of an answer that says no."""


def http_tools(
    network: NetworkSettings,
    now: Callable[[], float],
    *,
    resolve: Resolver = system_resolver,
    tls: ssl.SSLContext | None = None,
) -> list[Tool]:
    """One of each; they share their connections. `tls` holds certificates other than the system's."""
    line = SharedConnections(AddressGuard(network, resolve), tls=tls)

    def tool(method: str, description: str, model: type[Arguments], effect: Effect) -> HttpTool:
        return HttpTool(
            f"http.{method.lower()}", description, model, _asking(method, line, now), effect, Response, line
        )

    download = HttpTool(
        "http.download",
        "Fetch a file into the working directory or to the artifacts, with its sha256",
        Download,
        _downloading(line, now),
        Effect.REPEATABLE,
        Downloaded,
        line,
    )
    return [
        tool("GET", "GET a page or a resource of an API", Fetch, Effect.NONE),
        tool("HEAD", "HEAD: get the headers of a web resource", Fetch, Effect.NONE),
        tool("POST", "POST to an API; each call may have an effect", SendRequest, Effect.ONCE),
        tool("PUT", "PUT: create or replace a resource of an API", SendRequest, Effect.REPEATABLE),
        tool("PATCH", "PATCH: change a resource of an API", SendRequest, Effect.ONCE),
        tool("DELETE", "DELETE a resource of an API", SendRequest, Effect.REPEATABLE),
        download,
    ]


class HttpTool(FunctionalTool):
    """A tool that shares a line with others."""

    def __init__(
        self,
        name: str,
        description: str,
        model: type[Arguments],
        act: Act,
        effect: Effect,
        result: type[Arguments],
        line: SharedConnections,
    ) -> None:
        super().__init__(name, description, model, act, effect=effect, result=result, health=installed)
        self._line = line

    def circuit(self, arguments: Mapping[str, Any]) -> str | None:
        """A host that is down says nothing about the others; arguments that are wrong say nothing about any."""
        try:
            address = read_address(str(arguments.get("url")))
        except ValueError:
            return None
        return f"http:{address.host}:{address.port}"

    async def close(self) -> None:
        """Let go of the connections; a later use opens new ones."""
        await self._line.close()


def _asking(method: str, line: SharedConnections, now: Callable[[], float]) -> Act:
    async def act(given: Fetch, call: Call) -> dict[str, Any]:
        ask = ask_of(method, given, call)
        secrets = secrets_of(ask)
        what = f"{method} {read_address(given.url).shown}"
        async with in_time(given.timeout, what), exchange(line, ask, call.meter) as answered:
            response = answered.response
            good = given.good(response.status_code)
            most = given.max_bytes if good else min(given.max_bytes, MOST_OF_A_REFUSAL)
            data, truncated = await read(response, most, secrets)
            kind = response.headers.get("content-type", "")
            result = head_of(answered, secrets) | body_of(data, truncated, kind, given.encoding)
        if not good:
            raise failed(what, result, now)
        return result

    return act


def _downloading(line: SharedConnections, now: Callable[[], float]) -> Act:
    async def act(given: Download, call: Call) -> dict[str, Any]:
        ask = ask_of("GET", given, call)
        secrets = secrets_of(ask)
        what = f"download of {read_address(given.url).shown}"
        async with in_time(given.timeout, what), exchange(line, ask, call.meter) as answered:
            head, response = head_of(answered, secrets), answered.response
            if given.good(response.status_code):
                return head | await keep(answered, given, call)
            data, truncated = await read(response, MOST_OF_A_REFUSAL, secrets)
            refusal = head | body_of(data, truncated, response.headers.get("content-type", ""), None)
        raise failed(what, refusal, now)

    return act
