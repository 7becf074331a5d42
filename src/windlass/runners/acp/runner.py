"""The runners of agents that speak the Agent Client Protocol: one for every agent, and a class for each row."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from typing import ClassVar

from windlass.errors import Category, Failure, classify
from windlass.ports import AgentRequest, AgentResult, Amount, Health, Host, Media, Runner, RunnerHooks, account_name
from windlass.process import SpawnError
from windlass.process.pipes import PIPE
from windlass.runners import RunnerDeps
from windlass.runners.acp.agents import ANY_AGENT, CODEX_AGENT, GEMINI_AGENT, AgentProgram, KnownAgent
from windlass.runners.acp.turn import PATIENCE, AgentTurn, introduction
from windlass.runners.acp.wire import AgentWire, RpcError, WireEnded
from windlass.runners.endings import TurnEnding, failure
from windlass.runners.tool_listener import ToolListener

__all__ = ["AcpRunner", "CodexRunner", "GeminiRunner"]

log = logging.getLogger("windlass.runners.acp")

OWN_PROMPT = 20_000
"""Tokens of an agent's own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
DEAREST = "opus"


class AcpRunner(RunnerHooks, Runner):
    """Any agent: the user's settings name its command."""

    agent: ClassVar[KnownAgent] = ANY_AGENT

    def __init__(self, deps: RunnerDeps) -> None:
        self._deps = deps
        self._listener = ToolListener()
        self._running: dict[str, asyncio.Event] = {}
        self._met: dict[tuple[str, ...], Health] = {}

    @property
    def name(self) -> str:
        return self.agent.name

    def _program(self) -> AgentProgram | Health:
        settings = self._deps.settings
        return self.agent.located(settings.path, settings.command, self._deps.env)

    def installed(self) -> Health:
        found = self._program()
        return found if isinstance(found, Health) else Health(True, found.argv[0])

    async def available(self) -> Health:
        """Start it and have it introduce itself, once for each program that was found."""
        found = self._program()
        if isinstance(found, Health):
            return found
        if found.argv not in self._met:
            health = await self._introduced(found)
            if not health.ok:
                return health
            self._met[found.argv] = health
        return self._met[found.argv]

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """With its own instructions and tools before the prompt. A model of no known price counts as the dearest."""
        prices = self._deps.prices
        found = prices.call(model or DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)

    def window(self, model: str | None) -> int | None:
        return self._deps.prices.window(model) if model else None

    def media(self, model: str | None) -> Media:
        """The agent says what it takes when it is started; the rest is left out, and the result says so."""
        return "attached"

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        known = {**self._deps.env, **env}
        keys = [
            known.get(name)
            for name in sorted(known)
            if name.endswith("_API_KEY") and name.startswith(self.agent.prefixes)
        ]
        return account_name(self.name, *keys)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        begun = asyncio.get_running_loop().time()
        interrupted = self._running[request.id] = asyncio.Event()
        try:
            result = await self._run(request, host, interrupted)
        except SpawnError as error:
            said = Failure(error.category, f"{self.name}: {error.message}", advice=error.advice, elsewhere=True)
            result = AgentResult(failure=said, session=request.session)
        except Exception as error:
            # A runner never raises for an error of its runtime: an unforeseen answer is a failure like others.
            log.exception("%s did something that was not foreseen", self.name)
            unforeseen = failure(TurnEnding.DIED, classify(error).message, runtime=self.name)
            result = AgentResult(failure=unforeseen, session=request.session)
        finally:
            del self._running[request.id]
        return dataclasses.replace(result, duration=asyncio.get_running_loop().time() - begun)

    async def interrupt(self, request: str) -> None:
        if running := self._running.get(request):
            running.set()

    async def close(self) -> None:
        await self._listener.close()

    async def _run(self, request: AgentRequest, host: Host, interrupted: asyncio.Event) -> AgentResult:
        found = self._program()
        if isinstance(found, Health):
            advice = (found.advice,) if found.advice else ()
            said = Failure(Category.CONFIGURATION, f"{self.name}: {found.detail}", advice=advice, elsewhere=True)
            return AgentResult(failure=said, session=request.session)
        if self.agent.reads_folder and not request.trusted:
            text = f"{self.name}: this agent may run code of {request.workdir}, which is not trusted"
            advice = (f"if you trust it: windlass trust {request.workdir}",)
            return AgentResult(failure=Failure(Category.PERMISSION, text, advice=advice), session=request.session)
        turn = AgentTurn(self._deps, self.agent, found, request, host, listener=self._listener, interrupted=interrupted)
        return await turn.run()

    async def _introduced(self, program: AgentProgram) -> Health:
        where, detail = program.argv[0], ""
        self._deps.home.mkdir(parents=True, exist_ok=True)
        try:
            process = await self._deps.supervisor.spawn(
                list(program.argv), cwd=str(self._deps.home), env=program.env({}), stdin=PIPE
            )
        except SpawnError as error:
            return Health(False, error.message, "; ".join(error.advice) or self.agent.row.install)
        wire = AgentWire(process, lambda method, params: None, _no_answer)
        try:
            async with asyncio.timeout(PATIENCE):
                hello = await wire.call("initialize", introduction())
        except TimeoutError:
            detail = f"{where} says nothing for {PATIENCE:g} s"
        except RpcError as error:
            detail = f"{where} does not begin a conversation: {error.message}"
        except WireEnded:
            detail = f"{where} does not speak the Agent Client Protocol: it ended without a message of it"
        finally:
            await asyncio.shield(process.stop(0))
            await wire.close()
        if detail:
            words = str(wire.last_words)[-200:]
            return Health(False, f"{detail} ({words})" if words else detail, f"try it: {' '.join(program.argv)}")
        about = hello.get("agentInfo") if isinstance(hello, Mapping) else None
        about = about if isinstance(about, Mapping) else {}
        version = str(about.get("version") or "")
        return Health(True, f"{about.get('title') or about.get('name') or where} {version} ({where})", version=version)


class GeminiRunner(AcpRunner):
    agent = GEMINI_AGENT


class CodexRunner(AcpRunner):
    agent = CODEX_AGENT


async def _no_answer(method: str, params: Mapping[str, object]) -> None:
    return None
