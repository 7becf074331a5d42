"""A real MCP client at a real `windlass mcp`, in either era of the protocol.

`client` connects over stdio to a server in a process of its own; `hosted` is an engine behind streamable HTTP, to which
clients connect over loopback. `Ear` notes what the server says besides results, and answers its questions.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from forks import shared_zygote
from mcp import Client, ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, ElicitResult, Implementation, LoggingMessageNotificationParams, TextContent
from starlette.applications import Starlette
from starlette.routing import Route

from windlass import Engine
from windlass.assembly import open_engine
from windlass.ports import Health, Runner
from windlass.redact import Redactor
from windlass.runtimes import RUNTIMES
from windlass.server.mcp.endpoint import McpEndpoint
from windlass.testing import ScriptedRunner

if TYPE_CHECKING:
    from conftest import Project

__all__ = ["BOTH_ERAS", "Ear", "Hosted", "client", "error_of", "hosted", "shown"]

BOTH_ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
ERAS = {"2026-07-28": "2026-07-28", "legacy": "2025-11-25", "auto": "2026-07-28"}

_sound_schemas: dict[str, Any] = {}
"""By the text of an output schema: what the library checks results with. One that is not sound is not here."""
_validator_of = ClientSession._output_schema_validator


def _output_schema_validator(session: ClientSession, name: str, output_schema: dict[str, Any]) -> Any:
    """Check each schema once in this process. The library does it for every client, which takes a tenth of a second for
    an execution's; our servers all have the same schemas. Results are checked as ever."""
    text = json.dumps(output_schema)
    if text not in _sound_schemas:
        _sound_schemas[text] = _validator_of(session, name, output_schema)
    return _sound_schemas[text]


ClientSession._output_schema_validator = _output_schema_validator  # type: ignore[method-assign]


@dataclass
class Ear:
    """What one client was told, and what its person answers."""

    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answers: list[ElicitResult] = field(default_factory=list)
    opens: Path | None = None
    """Made at the first sign of progress. A call tells what happens once it looks, and an execution may be quicker: a
    step that waits for this file begins when it is looked at."""

    async def on_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append((done, total, message))
        if self.opens is not None:
            self.opens.touch()

    async def on_log(self, params: LoggingMessageNotificationParams) -> None:
        self.logs.append(f"{params.level}: {params.data}")

    async def on_question(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return self.answers.pop(0)


@asynccontextmanager
async def client(
    project: Project,
    mode: str = "auto",
    *arguments: str,
    ear: Ear | None = None,
    asks: bool = False,
    name: str = "tester",
) -> AsyncIterator[Client]:
    """A client of `windlass mcp` in the project's folder. It can show a person a form only if it `asks`."""
    ear = ear or Ear()
    server = StdioServerParameters(
        command=str(shared_zygote().folder / "windlass"),
        args=["mcp", *arguments],
        env=dict(project.env),
        cwd=str(project.path),
    )
    async with Client(
        server,
        mode=mode,
        client_info=Implementation(name=name, version="1"),
        logging_callback=ear.on_log,
        log_level="info",
        elicitation_callback=ear.on_question if asks else None,
    ) as connected:
        assert connected.protocol_version == ERAS[mode]
        yield connected


def shown(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a call that worked."""
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def error_of(result: CallToolResult) -> tuple[dict[str, Any], str]:
    """The error of a call that did not work, as a program and as a model read it."""
    assert result.is_error
    assert result.structured_content is not None
    (text,) = result.content
    assert isinstance(text, TextContent)
    return result.structured_content["error"], text.text


@dataclass
class Service:
    """The part of a server that the MCP endpoint needs."""

    engine: Engine
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    redactor: Redactor = field(default_factory=Redactor)


@dataclass
class Hosted:
    """An engine behind `/mcp` on a port of its own, with the clients that were let at it."""

    engine: Engine
    url: str
    stopping: asyncio.Event

    @asynccontextmanager
    async def client(
        self, mode: str = "auto", *, ear: Ear | None = None, asks: bool = False, name: str = "tester"
    ) -> AsyncIterator[Client]:
        ear = ear or Ear()
        async with Client(
            self.url,
            mode=mode,
            client_info=Implementation(name=name, version="1"),
            logging_callback=ear.on_log,
            log_level="info",
            elicitation_callback=ear.on_question if asks else None,
        ) as connected:
            assert connected.protocol_version == ERAS[mode]
            yield connected


@asynccontextmanager
async def hosted(project: Project, *runners: Runner, **settings: Any) -> AsyncIterator[Hosted]:
    """The streamable HTTP endpoint, served by a real uvicorn. Runtimes that are not given are not installed."""
    given = {runner.name: runner for runner in runners}
    gone = Health(False, "not installed", "install it")
    missing = [ScriptedRunner(name=name, health=gone) for name in RUNTIMES if name not in given]
    async with open_engine(project.home, runners=[*runners, *missing], grace=1.0, **settings) as engine:
        service = Service(engine)
        endpoint = McpEndpoint(service)
        listening = socket.create_server(("127.0.0.1", 0))
        app = Starlette(routes=[Route("/mcp", endpoint=endpoint)])
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        async with endpoint:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield Hosted(engine, f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", service.stopping)
            finally:
                server.should_exit = True
                await serving
