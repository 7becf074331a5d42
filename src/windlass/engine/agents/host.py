"""The engine's side of a running agent: its reports become events, its questions become approvals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.budget import known_part, plus
from windlass.engine.agents.agent_tools import AgentTools
from windlass.engine.agents.permits import verdict
from windlass.engine.agents.reservation import BudgetReservation
from windlass.engine.perform import Held
from windlass.errors import ToolError
from windlass.plan.model import Effect
from windlass.ports import Answer, Call, ChooseTools, Contact, Permissions, SummaryMethod, ToolReturn, ToolSpec, Usage
from windlass.redact import Redactor

__all__ = ["EngineHost"]

LONGEST_INLINE = 8 * 1024
"""Bytes of a tool's input or result that the journal keeps; a longer one is a file below the execution's artifacts."""
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
        self._files = 0
        self._redactor: Redactor | None = None
        self.meter = call.meter
        """The meter for the runner's processes, if it can measure them."""
        self._watching: asyncio.Task[None] | None = None
        self.used = Usage()
        """The last report of the attempt's usage."""
        self._before: Usage | None = None
        """Usage of the attempt's earlier turns."""
        self.given: tuple[str, ...] = ()
        """Messages in the prompt of a runner that does not take them itself; heard once the model has answered."""
        self._how: Literal["follow-up", "prompt"] = "prompt"
        self._heard: set[str] = set()
        """Messages whose delivery is reported, and may not be in the state yet."""
        self.told_text = False
        self.named: str | None = None
        """The conversation's name, once it is known."""
        self.over = asyncio.Event()
        """The runtime's turn is over."""
        self.held: Held | ToolError | None = None
        """Why it was stopped, when the budget was passed or cannot be held."""

    def session(self, session: str) -> None:
        self.named = session
        now = self._clock.now()
        self._contact.tell(ev.AgentSession(now, self._call.step, self._call.attempt, self._runtime, session))

    def give(self, messages: Sequence[ev.AgentTold], how: Literal["follow-up", "prompt"]) -> None:
        """These messages are in the prompt."""
        self.given, self._how = tuple(message.id for message in messages), how

    def next_turn(self) -> None:
        """Another turn of the runtime begins: its usage is added to that of the earlier ones."""
        self._before = self.used

    def answered(self) -> None:
        """The model has seen the prompt, and so the messages in it."""
        if self.given:
            now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
            self._contact.tell(ev.AgentHeard(now, step, attempt, self.given, self._how), soon=True)
            self._heard.update(self.given)
            self.given = ()

    def text(self, text: str) -> None:
        self.told_text = True
        self.answered()
        self._call.output("agent", text)

    def note(self, text: str, *, waits: bool = False) -> None:
        self._call.output("wait.model" if waits else "note", text if text.endswith("\n") else text + "\n")

    def acted(self, tool: str, summary: str, input: Any = None, call: str = "") -> None:
        self.answered()
        line, now, file = " ".join(summary.split())[:LONGEST_SUMMARY], self._clock.now(), ""
        try:
            encoded = msgspec.json.encode(input)
        except (TypeError, ValueError):
            input = None
        else:
            if len(encoded) > LONGEST_INLINE:
                input, file = None, self._keep(encoded, "json")
        self._contact.tell(ev.AgentActed(now, self._call.step, self._call.attempt, tool, line, input, call, file))

    def returned(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        size, file, text = 0, "", self._without_secrets(text)
        if len(text) > LONGEST_INLINE // 4 and len(encoded := text.encode("utf-8", "replace")) > LONGEST_INLINE:
            size, file = len(encoded), self._keep(encoded, "txt")
            text = encoded[:LONGEST_INLINE].decode("utf-8", "ignore")
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        self._contact.tell(ev.AgentReturned(now, step, attempt, call, tool, text, failed, file, size))

    def spoke(self, text: str, thinking: str = "", usage: Usage | None = None, number: int = 0) -> None:
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        said, thought = self._without_secrets(text), self._without_secrets(thinking)
        self._contact.tell(ev.AgentSpoke(now, step, attempt, said, thought, usage, number))

    def summarised(
        self,
        *,
        by: SummaryMethod,
        tokens_before: int | None,
        tokens_after: int | None,
        messages: int = 0,
        model: str = "",
        text: str = "",
        pinned: Sequence[str] = (),
        usage: Usage | None = None,
    ) -> None:
        agent = self._contact.step.agent
        event = ev.AgentSummarised(
            self._clock.now(),
            self._call.step,
            self._call.attempt,
            len(agent.summaries) + 1 if agent is not None else 1,
            by,
            tokens_before,
            tokens_after,
            messages,
            model,
            text,
            tuple(pinned),
            usage,
        )
        self._contact.tell(event, soon=True)

    def _without_secrets(self, text: str) -> str:
        """Hide secrets: the output of `env` in a runtime's own shell has the keys that the runtime needs."""
        if self._redactor is None:
            self._redactor = Redactor({**os.environ, **self._call.variables})
        return self._redactor.text(text) if text else ""

    def _keep(self, content: bytes, kind: str) -> str:
        """Write what is too big for the journal to a file; returns its path below the execution's artifacts."""
        self._files += 1
        path = self._call.artifacts / "transcript" / f"{self._call.attempt}-{self._files}.{kind}"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
        except OSError as error:
            self.note(f"the transcript lacks {len(content):,} bytes: {path} cannot be written: {error.strerror}")
            return ""
        return str(path.relative_to(self._call.artifacts.parent))

    def usage(self, usage: Usage) -> None:
        self.answered()
        self.used = self._total(usage)
        self._contact.tell(self.reported())
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def ended(self, usage: Usage) -> None:
        """Take the runtime's last report. Costs reported before stay known, even if this one has none."""
        usage = self._total(usage)
        known = max(known_part(self.used), known_part(usage))
        self.used = usage if usage.usd is not None else msgspec.structs.replace(usage, at_least=known)

    async def look_at_budget(self) -> None:
        """See between two turns that there is room for another: the last one's use may be known by its result alone."""
        await self.watched()  # the two write the same reservation
        if self.held is None:
            self.held = await self._reservation.cover(self.used)

    def _total(self, usage: Usage) -> Usage:
        return usage if self._before is None else plus(self._before, usage)

    async def afford(self, prompt: int) -> bool:
        await self.watched()  # the two write the same reservation
        if self.held is None:
            self.held = await self._reservation.afford(prompt)
        return self.held is None

    def reported(self) -> ev.UsageReported:
        now, call = self._clock.now(), self._call
        return ev.UsageReported(now, call.step, call.attempt, self.used, self._runtime, self._role)

    async def ask(self, tool: str, input: Any) -> Answer:
        ours = self._tools.tool(tool) is not None
        allowed = self._tools.verdict(tool, input) if ours else verdict(self._permissions, tool, input)
        if allowed is not None:
            return Answer(allowed, "" if allowed else "denied by its role or the settings")
        answer = await self._contact.ask(tool, input, self._call.workdir)
        return Answer(answer.allow, answer.note)

    def tools(self, choose: ChooseTools | None = None) -> list[ToolSpec]:
        return self._tools.specs(choose)

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        return self._tools.effect(tool, arguments)

    async def use(self, tool: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        return await self._tools.use(tool, arguments, use_id)

    async def history(self) -> list[ev.Event]:
        agent, folder = self._contact.step.agent, self._call.artifacts.parent
        own = [self._whole(event, folder) for event in await self._contact.history()]
        if agent is None or not agent.session_origin:
            return own
        folder = folder.parent / agent.session_origin
        return [*(self._whole(event, folder) for event in await self._contact.history(agent.session_origin)), *own]

    def _whole(self, event: ev.Event, folder: Path) -> ev.Event:
        """The same with the text of its file, as far as it can be read. `folder` has an execution's artifacts."""
        if not isinstance(event, ev.AgentActed | ev.AgentReturned) or not event.file:
            return event
        try:
            content = (folder / event.file).read_bytes()
            if isinstance(event, ev.AgentActed):
                return msgspec.structs.replace(event, input=msgspec.json.decode(content))
        except (OSError, msgspec.DecodeError):
            return event
        return msgspec.structs.replace(event, text=content.decode("utf-8", "replace"))

    def summary_wanted(self) -> bool:
        agent = self._contact.step.agent
        return agent is not None and agent.summary_wanted

    def told(self) -> list[ev.AgentTold]:
        agent = self._contact.step.agent
        return [told for told in agent.told.values() if told.id not in self._heard] if agent is not None else []

    async def heard(self, ids: Sequence[str], how: Literal["steer", "follow-up", "prompt"]) -> None:
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        await self._contact.record(ev.AgentHeard(now, step, attempt, tuple(ids), how))

    async def wait_told(self) -> None:
        while not self.told():
            await self._contact.message()

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
