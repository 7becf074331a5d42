"""The `claude-code` runtime: the real `claude`, driven through the claude-agent-sdk (A2).

`ClaudeCodeRunner` is the port's methods; what it is made of is in `claude/`. The SDK is imported by the first run.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping

from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Amount, Health, Host, Usage
from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.runners.claude.binary import ON_PATH, VERBATIM, Binaries
from windlass.runners.claude.environment import account, credentials
from windlass.runners.claude.failures import RUNTIME
from windlass.runners.claude.turn import Turn

__all__ = ["ClaudeCodeRunner"]

OWN_PROMPT = 30_000
"""Tokens of its own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
"""Tokens that it asks for in one reply at most, unless CLAUDE_CODE_MAX_OUTPUT_TOKENS says otherwise."""
DEAREST = "opus"


class ClaudeCodeRunner:
    def __init__(
        self,
        supervisor: Supervisor,
        *,
        path: str | None = None,
        env: Mapping[str, str],
        now: Callable[[], float],
        prices: Prices | None = None,
    ) -> None:
        """`path` is the user's own choice of a binary; `env` the engine's environment, to pick from."""
        self._supervisor, self._env, self._now, self._prices = supervisor, env, now, prices
        self._binaries = Binaries(supervisor, path, env)
        self._running: dict[str, asyncio.Event] = {}

    @property
    def name(self) -> str:
        return RUNTIME

    async def available(self) -> Health:
        found = await self._binaries.find()
        if isinstance(found, Health):
            return found
        old = ("it expands @paths in prompts: claude update",) if found.version < VERBATIM else ()
        if credentials(self._env) or await self._binaries.logged_in(found):
            return Health(True, "; ".join((found.detail, *old)), version=found.label)
        program = found.path if found.origin != ON_PATH else "claude"
        advice = f"log in with: {shlex.quote(program)} auth login; or set ANTHROPIC_API_KEY"
        detail = "; ".join((found.detail, "installed, not logged in", *old))
        return Health(True, detail, advice, unset=True, version=found.label)

    def installed(self) -> Health:
        return self._binaries.installed()

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """With its own instructions and tools before the prompt. It says itself what a call did cost, so a model that
        we have no price for counts as the dearest until then."""
        named = model or self._env.get("ANTHROPIC_MODEL") or DEAREST
        most = self._env.get("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "")
        output = int(most) if most.isdecimal() else MOST_OUTPUT
        prices = self._prices or Prices()
        found = prices.call(named, prompt + OWN_PROMPT, output)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, output)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        begun = self._now()
        interrupted = self._running[request.id] = asyncio.Event()
        try:
            found = await self._binaries.find()
            if isinstance(found, Health):
                return _unavailable(found, request, self._now() - begun)
            return await Turn(
                self._supervisor,
                found,
                request,
                host,
                interrupted=interrupted,
                env=self._env,
                now=self._now,
                prices=self._prices,
            ).run()
        finally:
            del self._running[request.id]

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return account({**self._env, **env})

    async def interrupt(self, request: str) -> None:
        if running := self._running.get(request):
            running.set()

    async def close(self) -> None:
        """Nothing is kept warm: each turn's process ends with it."""


def _unavailable(health: Health, request: AgentRequest, duration: float) -> AgentResult:
    advice = (health.advice,) if health.advice else ()
    failure = Failure(Category.CONFIGURATION, f"{RUNTIME}: {health.detail}", advice=advice, elsewhere=True)
    nothing = Usage(usd=0.0, source="runtime")
    return AgentResult(failure=failure, usage=nothing, session=request.session, duration=duration)
