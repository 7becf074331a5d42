"""Runs the plans of this folder in a world of loopback servers, with faults that a seed deals out (H2).

One use of a tool in ten fails. Half of the faults of what goes over the web are the server's, which answers with 503 or
hangs up; all others strike before the tool begins. The world remembers what reached it, so that an outcome can be told
from a claim of it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "tools" / part) for part in ("net", "search", "message")]

from loopback import Asked, Server, reply, serve  # noqa: E402  # found by the line above
from message_world import MailServer, WebServer  # noqa: E402
from search_world import searxng  # noqa: E402

import windlass  # noqa: E402
from windlass import ToolError, tool  # noqa: E402
from windlass.engine.engine import Engine  # noqa: E402
from windlass.engine.gates import Gates  # noqa: E402
from windlass.ports import Call, ComposedTool, Tool  # noqa: E402
from windlass.settings import user_folder  # noqa: E402

__all__ = ["PLANS", "Asked", "Faults", "World", "play", "reply", "serve", "world"]

PATIENCE = 60.0
BY_A_SERVER = ("http.", "search", "message.webhook", "message.send")
PLANS = sorted((HERE / "plans").glob("*.yaml"))
HITS = [("Windlass", "https://x.test/windlass", "hauls"), ("Capstan", "https://x.test/capstan", "turns")]
GREET = ComposedTool(
    "greet",
    "const path = `${args.name}.txt`; await tools.files.write({path, content: `hello ${args.name}`}); return {path};",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    description="Write a greeting.",
    grants=("files.write",),
)


@tool(effect="none")
def oracle(question: str) -> str:
    """Never knows."""
    raise ToolError("the oracle sleeps", category="transient")


@tool(effect="none")
def book(question: str) -> str:
    """Knows."""
    return f"{question}: nine fathoms"


class Faults:
    """What goes wrong, by a seed; without one, nothing does."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._any = seed is not None
        self.uses = self.dealt = 0

    def strikes(self, share: float = 0.05) -> bool:
        struck = self._any and self._random.random() < share
        self.dealt += struck
        return struck

    def strikes_use(self, tool: str) -> bool:
        """One use in ten: where a server deals out its own faults, half of them are its."""
        self.uses += 1
        return self.strikes(0.05 if tool.startswith(BY_A_SERVER) else 0.1)

    def cut(self) -> bool:
        return self._random.random() < 0.5


class _Struck:
    """A tool that fails before it begins, and is all that it was otherwise."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        raise ToolError(f"{self._tool.name}: the line was bad just now", category="transient")


class FaultyGates(Gates):
    def strike(self, gates: Gates, faults: Faults) -> FaultyGates:
        """These, in the place of an engine's own."""
        self.__dict__.update(gates.__dict__)
        self._faults = faults
        return self

    async def _use(self, tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
        # A program is a use of nothing but the sandbox: its calls of tools pass here one by one.
        struck = not getattr(tool, "is_program", False) and self._faults.strikes_use(tool.name)
        return await super()._use(_Struck(tool) if struck else tool, arguments, call)  # type: ignore[arg-type]


@dataclass
class World:
    engine: Engine
    web: Server
    mail: MailServer
    hook: WebServer
    chat: WebServer
    faults: Faults
    kept: list[tuple[str, Any]] = field(default_factory=list)
    """What the web server was told to do and did, in this order."""
    work: Path = Path()

    def text(self, name: str) -> str:
        return (self.work / name).read_text()


def _routes(faults: Faults, kept: list[tuple[str, Any]]) -> dict[str, Any]:
    def answer(asked: Asked) -> bytes:
        if asked.path == "/search":
            return searxng(HITS)  # type: ignore[no-any-return]
        if asked.path == "/item":
            return reply(json.dumps({"name": "rope", "price": 21}), content_type="application/json")
        if asked.path == "/file":
            return reply(b"0123456789" * 1000, content_type="application/octet-stream")
        if asked.method == "HEAD":
            return reply(b"", content_length="0")
        kept.append((asked.method, json.loads(asked.body or b"null")))
        return reply(json.dumps({"done": len(kept)}), content_type="application/json")

    async def route(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if faults.strikes():
            if faults.cut():
                writer.transport.abort()
                return
            writer.write(reply("busy", 503, connection="close"))
        else:
            told = answer(asked).replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
            writer.write(told)
        await writer.drain()

    return {"*": route}


class _Busy(list[str]):
    """The answers of a service that is busy whenever a fault strikes."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __bool__(self) -> bool:
        return self._faults.strikes()

    def pop(self, index: Any = 0) -> str:
        return "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


@asynccontextmanager
async def world(home: Path, seed: int | None = None) -> AsyncIterator[World]:
    """Servers and an engine; the same seed deals out the same faults."""
    faults = Faults(seed)
    kept: list[tuple[str, Any]] = []
    user_folder().mkdir(parents=True, exist_ok=True)
    (user_folder() / "config.toml").write_text('[tools.oracle]\nfallback = "book"\n[tools.search]\nrate = "100000/s"\n')
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(serve(_routes(faults, kept)))
        mail = await stack.enter_async_context(MailServer().serving())
        hook = await stack.enter_async_context(WebServer(answers=_Busy(faults)).serving())
        chat = await stack.enter_async_context(WebServer(answers=_Busy(faults)).serving())
        services = {
            "mail": {"smtp": f"localhost:{mail.port}", "sender": "w@example.com", "security": "none"},
            "hook": {"url": f"http://127.0.0.1:{hook.port}/hook"},
            "chat": {"url": f"json://127.0.0.1:{chat.port}/chat"},
        }
        engine = windlass.open(
            home,
            tools=[oracle, book],
            grace=0.5,
            network={"private": ["127.0.0.1", "localhost"]},
            search={"providers": [{"kind": "searxng", "url": web.url("")}], "cache": "1ms"},
            messages={"services": services, "recipients": ["*@example.com"], "rate": "100000/h"},
            mcp={"desk": {"command": sys.executable, "args": [str(HERE / "mcp_server.py")]}},
        )
        await stack.enter_async_context(engine)
        assert engine.shelf is not None
        engine.shelf.save(GREET)
        engine.performer.gates = FaultyGates().strike(engine.performer.gates, faults)
        yield World(engine, web, mail, hook, chat, faults, kept)


async def play(world: World, plan: Path, work: Path) -> dict[str, Any]:
    """Run a plan in a folder of its own; gives how it ended."""
    for heard in (world.kept, world.mail.mails, world.hook.requests, world.chat.requests):
        heard.clear()
    work.mkdir(parents=True)
    world.work = work
    inputs = {"web": world.web.url("")} if "web:" in plan.read_text() else {}
    async with asyncio.timeout(PATIENCE):
        execution = await world.engine.start(plan, inputs, workdir=work, hold=False)
        return await execution.result()
