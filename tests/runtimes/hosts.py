"""A recording `Host`: what a runner told the engine, in order, and scripted answers to what it asked.

Tests wait for something to have been told with `until`, which ends the moment the runner says it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windlass.core.events import AgentTold, Event
from windlass.plan.model import Effect
from windlass.ports import Answer, ChooseTools, Host, ToolReturn, ToolSpec, Usage
from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.runners import RunnerDeps
from windlass.settings import RuntimeSettings

__all__ = ["Acted", "Asked", "FakeHost", "Used", "deps"]


class NoPrices(Prices):
    """A list that knows no model."""

    def cost(self, model: str, usage: Usage, at: float | None = None) -> float | None:
        return None


def deps(
    supervisor: Supervisor | None = None,
    *,
    env: Mapping[str, str],
    now: Callable[[], float] = time.time,
    home: Path = Path("/nonexistent"),
    prices: Prices | None = None,
    **settings: str | None,
) -> RunnerDeps:
    """What a runner is made with; `settings` are those of its runtime."""
    return RunnerDeps(supervisor or Supervisor(), env, now, home, RuntimeSettings(**settings), prices or NoPrices())


class Acted(NamedTuple):
    tool: str
    summary: str
    input: Any


class Asked(NamedTuple):
    tool: str
    input: Any


class Used(NamedTuple):
    tool: str
    arguments: Mapping[str, Any]
    use_id: str


Answers = Callable[[Asked], Answer | Awaitable[Answer]]
Uses = Callable[[Used], ToolReturn | Awaitable[ToolReturn]]


def _refuse(asked: Asked) -> Answer:
    return Answer(False, f"the test answers no question about {asked.tool}")


def _no_tool(used: Used) -> ToolReturn:
    raise AssertionError(f"the test has no tool {used.tool!r}")


class Returned(NamedTuple):
    call: str
    tool: str
    text: str
    failed: bool


class Reply(NamedTuple):
    text: str
    thinking: str
    usage: Usage | None


class FakeHost:
    """`answer` decides what `ask` gives, `tool` what `use` gives; both may be async functions that wait."""

    def __init__(
        self,
        answer: Answers = _refuse,
        *,
        tools: Sequence[ToolSpec] = (),
        tool: Uses = _no_tool,
        effects: Mapping[str, Effect] | None = None,
    ) -> None:
        self.sessions: list[str] = []
        self.texts: list[str] = []
        self.acts: list[Acted] = []
        self.usages: list[Usage] = []
        self.notes: list[str] = []
        self.asks: list[Asked] = []
        self.uses: list[Used] = []
        self.calls: list[tuple[str, str]] = []
        """Names of the calls and their tools."""
        self.returns: list[Returned] = []
        self.replies: list[Reply] = []
        self.summaries: list[dict[str, Any]] = []
        self.wants_summary = False
        """A person asked for a summary."""
        self.messages: list[AgentTold] = []
        """Messages of people that the agent has not been given."""
        self.heard_ids: list[tuple[tuple[str, ...], str]] = []
        self.events: list[tuple[str, Any]] = []
        """Everything above in the order it was told: ("text", …), ("acted", Acted(…)), …"""
        self.journal: list[Event] = []
        """What `history` gives."""
        self._answer, self._tools, self._tool = answer, list(tools), tool
        self._effects = dict(effects or {})
        self._told = asyncio.Event()

    @property
    def said(self) -> str:
        """All text so far."""
        return "".join(self.texts)

    async def until(self, condition: Callable[[FakeHost], object], seconds: float = 300.0) -> None:
        """Wait until what was told fulfils the condition; it is asked again whenever something is told."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                self._told.clear()
                await self._told.wait()

    def session(self, session: str) -> None:
        self._keep("session", self.sessions, session)

    def text(self, text: str) -> None:
        self._keep("text", self.texts, text)

    def acted(self, tool: str, summary: str, input: Any = None, call: str = "") -> None:
        self._keep("acted", self.acts, Acted(tool, summary, input))
        self.calls.append((call, tool))

    def returned(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        self._keep("returned", self.returns, Returned(call, tool, text, failed))

    def spoke(self, text: str, thinking: str = "", usage: Usage | None = None, number: int = 0) -> None:
        self._keep("spoke", self.replies, Reply(text, thinking, usage))

    def summarised(self, **about: Any) -> None:
        self.wants_summary = False
        self._keep("summarised", self.summaries, about)

    async def history(self) -> list[Event]:
        return list(self.journal)

    def summary_wanted(self) -> bool:
        return self.wants_summary

    def told(self) -> list[AgentTold]:
        return list(self.messages)

    async def heard(self, ids: Sequence[str], how: str) -> None:
        self.messages = [message for message in self.messages if message.id not in ids]
        self._keep("heard", self.heard_ids, (tuple(ids), how))

    async def wait_told(self) -> None:
        await self.until(lambda host: host.messages)

    def tell(self, text: str, id: str = "") -> None:
        """Say something to the agent, as a person does."""
        id = id or f"m{len(self.messages) + len(self.heard_ids)}"
        self.messages.append(AgentTold(0.0, "step", id, text, "tester"))
        self._told.set()

    def usage(self, usage: Usage) -> None:
        self._keep("usage", self.usages, usage)

    def note(self, text: str, *, waits: bool = False) -> None:
        self._keep("note", self.notes, text)

    async def afford(self, prompt: int) -> bool:
        return True

    async def ask(self, tool: str, input: Any) -> Answer:
        asked = Asked(tool, input)
        self._keep("ask", self.asks, asked)
        answer = self._answer(asked)
        return answer if isinstance(answer, Answer) else await answer

    def tools(self, choose: ChooseTools | None = None) -> list[ToolSpec]:
        chosen = choose({tool.name: False for tool in self._tools}) if choose is not None else None
        return [tool for tool in self._tools if chosen is None or tool.name in chosen]

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        return self._effects.get(tool, Effect.REPEATABLE)

    async def use(self, tool: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        used = Used(tool, arguments, use_id)
        self._keep("use", self.uses, used)
        returned = self._tool(used)
        return returned if isinstance(returned, ToolReturn) else await returned

    def _keep(self, kind: str, where: list[Any], what: Any) -> None:
        where.append(what)
        self.events.append((kind, what))
        self._told.set()


def _a_host(host: FakeHost) -> Host:
    """The type checker holds `FakeHost` to the port here."""
    return host
