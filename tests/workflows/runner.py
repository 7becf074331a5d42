"""Runs the plans of this folder in a world of loopback servers, with faults that a seed deals out (H2).

What goes wrong is in `faults.py`, the servers are in `servers.py`, the model behind the agents in `models.py`. The
world remembers what reached it, so that an outcome can be told from a claim of it. One world serves many plans: it has
one browser, one model and one process of each MCP server.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "tools" / part) for part in ("net", "search", "message", "browser")]
sys.path.append(str(HERE.parent / "process"))

from browser_world import find_chromium  # noqa: E402  # found by the lines above
from faults import Faults, FaultyGates  # noqa: E402
from loopback import Server, serve  # noqa: E402
from message_world import MailServer, WebServer  # noqa: E402
from models import answering  # noqa: E402
from servers import AtTheDesk, Busy, MailMoods, Shop  # noqa: E402

import windlass  # noqa: E402
from windlass import Plan, ToolError, tool  # noqa: E402
from windlass.engine.engine import Engine  # noqa: E402
from windlass.homes import user_folder  # noqa: E402
from windlass.ports import ComposedTool  # noqa: E402
from windlass.testing import ScriptedModel  # noqa: E402

__all__ = ["PLANS", "World", "lacking", "play", "world"]

PLANS = sorted((HERE / "plans").glob("*.yaml"))
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


@dataclass
class World:
    engine: Engine
    web: Server
    shop: Shop
    mail: MailServer
    hook: WebServer
    chat: WebServer
    desk: AtTheDesk
    model: ScriptedModel
    faults: Faults
    settings: dict[str, Any]
    """Settings of the engine, for another one that is to know the same tools."""
    work: Path = Path()

    def text(self, name: str) -> str:
        return (self.work / name).read_text()

    def artifact(self, output: dict[str, Any]) -> bytes:
        """What a step has kept among its artifacts."""
        return (self.engine.home / output["path"]).read_bytes()

    def forget(self) -> None:
        for heard in (self.web.asked, self.shop.kept, self.mail.mails, self.hook.requests, self.chat.requests):
            heard.clear()
        self.shop.orders.clear()
        self.desk.clear()


def lacking(plan: Path) -> str:
    """Why a plan cannot be run on this machine, if it cannot."""
    return "no Chromium is installed" if "browser." in plan.read_text() and find_chromium() is None else ""


@asynccontextmanager
async def world(home: Path, seed: int | None = None, journal: str | None = None) -> AsyncIterator[World]:
    """Servers and an engine; the same seed deals out the same faults."""
    faults = Faults(seed)
    shop = Shop(faults)
    desk = AtTheDesk(home.parent / f"{home.name}-desk", faults)
    user_folder().mkdir(parents=True, exist_ok=True)
    (user_folder() / "config.toml").write_text('[tools.oracle]\nfallback = "book"\n[tools.search]\nrate = "100000/s"\n')
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(serve(shop.routes()))
        mail = await stack.enter_async_context(MailServer().serving())
        mail.refuse = MailMoods(mail, faults)
        hook, chat = [await stack.enter_async_context(_service(faults)) for _ in range(2)]
        model = await stack.enter_async_context(ScriptedModel(answering(faults)))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("ANTHROPIC_BASE_URL", model.url)
        patch.setenv("ANTHROPIC_API_KEY", "none")
        services = {
            "mail": {"smtp": f"localhost:{mail.port}", "sender": "w@example.com", "security": "none"},
            "hook": {"url": f"http://127.0.0.1:{hook.port}/hook"},
            "chat": {"url": f"json://127.0.0.1:{chat.port}/chat"},
        }
        server = {"command": sys.executable, "args": [str(HERE / "mcp_server.py")], "env": {"DESK": str(desk.folder)}}
        settings: dict[str, Any] = {
            "tools": [oracle, book],
            "grace": 0.5,
            "network": {"private": ["127.0.0.1", "localhost"]},
            "search": {"providers": [{"kind": "searxng", "url": web.url("")}], "cache": "1ms"},
            "messages": {"services": services, "recipients": ["*@example.com"], "rate": "100000/h"},
            "mcp": {"desk": server},
            "journal": journal,
        }
        engine = await stack.enter_async_context(windlass.open(home, **settings))
        assert engine.shelf is not None
        engine.shelf.save(GREET)
        engine.attempt_runner.gates = FaultyGates().strike(engine.attempt_runner.gates, faults, desk.spoil)
        yield World(engine, web, shop, mail, hook, chat, desk, model, faults, settings)


@asynccontextmanager
async def _service(faults: Faults) -> AsyncIterator[WebServer]:
    busy = Busy(faults)
    busy.server = WebServer(answers=busy)
    async with busy.server.serving() as running:
        yield running


async def play(world: World, plan: Path | Plan, work: Path, starter: Engine | None = None) -> dict[str, Any]:
    """Run a plan in a folder of its own; gives how it ended. `starter` starts it, if not the world's own engine."""
    world.forget()
    work.mkdir(parents=True)
    world.work = work
    inputs = {"web": world.web.url("")} if isinstance(plan, Path) and "web:" in plan.read_text() else {}
    async with asyncio.timeout(PATIENCE):
        execution = await (starter or world.engine).start(plan, inputs, workdir=work, hold=False)
        return await execution.result()
