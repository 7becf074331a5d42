"""`ClaudeCodeRunner`: the methods of the port."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping

from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Amount, Health, Host, Runner, RunnerHooks, Usage
from windlass.runners import RunnerDeps, import_in_background
from windlass.runners.claude.binary import ON_PATH, VERBATIM, Binaries
from windlass.runners.claude.command import account, credentials
from windlass.runners.claude.turn import ClaudeTurn
from windlass.runtimes import CLAUDE_CODE

__all__ = ["ClaudeCodeRunner"]

OWN_PROMPT = 30_000
"""Tokens of its own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
"""Tokens that it asks for in one reply at most, unless CLAUDE_CODE_MAX_OUTPUT_TOKENS says otherwise."""
DEAREST = "opus"


class ClaudeCodeRunner(RunnerHooks, Runner):
    name = CLAUDE_CODE.name

    def __init__(self, deps: RunnerDeps) -> None:
        self._deps = deps
        self._binaries = Binaries(deps.supervisor, deps.settings.path, deps.env)
        self._running: dict[str, asyncio.Event] = {}

    async def available(self) -> Health:
        found = await self._binaries.find()
        if isinstance(found, Health):
            return found
        old = ("it expands @paths in prompts: claude update",) if found.version < VERBATIM else ()
        if credentials(self._deps.env) or await self._binaries.logged_in(found):
            return Health(True, "; ".join((found.detail, *old)), version=found.label)
        program = found.path if found.origin != ON_PATH else "claude"
        advice = f"log in with: {shlex.quote(program)} auth login; or set ANTHROPIC_API_KEY"
        detail = "; ".join((found.detail, "installed, not logged in", *old))
        return Health(True, detail, advice, unset=True, version=found.label)

    def installed(self) -> Health:
        return self._binaries.installed()

    def prepare(self, model: str | None) -> None:
        if self.installed().ok:
            import_in_background("claude_agent_sdk")

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """With its own instructions and tools before the prompt. It says itself what a call did cost, so a model that
        we have no price for counts as the dearest until then."""
        named = model or self._deps.env.get("ANTHROPIC_MODEL") or DEAREST
        most = self._deps.env.get("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "")
        output = int(most) if most.isdecimal() else MOST_OUTPUT
        prices = self._deps.prices
        found = prices.call(named, prompt + OWN_PROMPT, output)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, output)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        begun = self._deps.now()
        interrupted = self._running[request.id] = asyncio.Event()
        try:
            found = await self._binaries.find()
            if isinstance(found, Health):
                return _unavailable(found, request, self._deps.now() - begun)
            return await ClaudeTurn(self._deps, found, request, host, interrupted=interrupted).run()
        finally:
            del self._running[request.id]

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return account({**self._deps.env, **env})

    async def interrupt(self, request: str) -> None:
        if running := self._running.get(request):
            running.set()

    async def close(self) -> None:
        """Nothing is kept warm: each turn's process ends with it."""


def _unavailable(health: Health, request: AgentRequest, duration: float) -> AgentResult:
    advice = (health.advice,) if health.advice else ()
    failure = Failure(Category.CONFIGURATION, f"{CLAUDE_CODE.name}: {health.detail}", advice=advice, elsewhere=True)
    nothing = Usage(usd=0.0, source="runtime")
    return AgentResult(failure=failure, usage=nothing, session=request.session, duration=duration)
