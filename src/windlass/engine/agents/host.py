"""The engine's side of a running agent: its reports become events, its questions become approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.budget import known_part
from windlass.engine.agents.agent_tools import AgentTools
from windlass.engine.agents.permits import verdict
from windlass.engine.agents.reservation import BudgetReservation
from windlass.engine.perform import Held
from windlass.errors import ToolError
from windlass.plan.model import Effect
from windlass.ports import Answer, Call, Contact, Permissions, ToolReturn, ToolSpec, Usage

__all__ = ["EngineHost"]

LONGEST_INPUT = 8 * 1024
"""Bytes of a tool's input that are kept with the note that it was used; approvals keep all of it."""
LONGEST_SUMMARY = 300
LAST_REPLY = 0.3
"""Seconds that a turn has to end by itself after the reply that passed the budget, before it is stopped."""


class EngineHost:
    """Implements `ports.Host` for one attempt."""

    def __init__(
        self,
        *,
        call: Call,
        contact: Contact,
        clock: Clock,
        runtime: str,
        role: str,
        permissions: Permissions,
        reservation: BudgetReservation,
        tools: AgentTools,
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        """`stop` ends the agent's turn: it is called when the budget is passed."""
        self._call, self._contact, self._clock = call, contact, clock
        self._runtime, self._role = runtime, role
        self._permissions = permissions
        self._reservation = reservation
        self._tools = tools
        self._stop = stop
        self.meter = call.meter
        """The meter for the runner's processes, if it can measure them."""
        self._watching: asyncio.Task[None] | None = None
        self.used = Usage()
        """The last report of the attempt's usage."""
        self.told_text = False
        self.over = asyncio.Event()
        """The runtime's turn is over."""
        self.held: Held | ToolError | None = None
        """Why it was stopped, when the budget was passed or cannot be held."""

    def session(self, session: str) -> None:
        now = self._clock.now()
        self._contact.tell(ev.AgentSession(now, self._call.step, self._call.attempt, self._runtime, session))

    def text(self, text: str) -> None:
        self.told_text = True
        self._call.output("agent", text)

    def note(self, text: str) -> None:
        self._call.output("note", text if text.endswith("\n") else text + "\n")

    def acted(self, tool: str, summary: str, input: Any = None) -> None:
        line = " ".join(summary.split())[:LONGEST_SUMMARY]
        event = ev.AgentActed(self._clock.now(), self._call.step, self._call.attempt, tool, line, _kept(input))
        self._contact.tell(event)

    def usage(self, usage: Usage) -> None:
        self.used = usage
        self._contact.tell(self.reported())
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def ended(self, usage: Usage) -> None:
        """Take the runtime's last report. Costs reported before stay known, even if this one has none."""
        known = max(known_part(self.used), known_part(usage))
        self.used = usage if usage.usd is not None else msgspec.structs.replace(usage, at_least=known)

    async def afford(self, prompt: int) -> bool:
        await self.watched()  # the two write the same reservation
        if self.held is None:
            self.held = await self._reservation.afford(prompt)
        return self.held is None

    def reported(self) -> ev.UsageReported:
        now, call = self._clock.now(), self._call
        return ev.UsageReported(now, call.step, call.attempt, self.used, self._runtime, self._role)

    async def ask(self, tool: str, input: Any) -> Answer:
        allowed = verdict(self._permissions, tool, input)
        if allowed is not None:
            return Answer(allowed, "" if allowed else "denied by its role or the settings")
        answer = await self._contact.ask(tool, input)
        return Answer(answer.allow, answer.note)

    def tools(self) -> list[ToolSpec]:
        return self._tools.specs()

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        return self._tools.effect(tool, arguments)

    async def use(self, tool: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        return await self._tools.use(tool, arguments, use_id)

    async def watched(self) -> None:
        """Let the last look at the budget come to its end."""
        if self._watching is not None:
            await self._watching

    async def _watch(self) -> None:
        seen = None
        while seen != self.used and self.held is None:
            seen = self.used
            self.held = await self._reservation.cover(seen)
        if self.held is not None and not await self._ends_by_itself():
            await self._stop()

    async def _ends_by_itself(self) -> bool:
        """The reply that passed the budget may be the last one: it is paid for, so let it be the result."""
        try:
            async with asyncio.timeout(LAST_REPLY):
                await self.over.wait()
        except TimeoutError:
            return False
        return True


def _kept(input: Any) -> Any:
    try:
        return input if len(msgspec.json.encode(input)) <= LONGEST_INPUT else None
    except (TypeError, ValueError):
        return None
