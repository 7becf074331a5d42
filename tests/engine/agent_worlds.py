"""A home with scripted runtimes in it, for tests of agents: opened, left, cut off at any event, and opened again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from windlass import Execution, Plan, Step
from windlass.agents import Briefing
from windlass.assembly import child_environment
from windlass.assembly.agents import policy_of
from windlass.assembly.plan_loader import PlanLoader
from windlass.clock import Clock, SystemClock
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.agents.tool import AgentTool, MergeTool
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import LocalDrivers
from windlass.engine.engine import Engine
from windlass.engine.housekeeping import release_dead_reservations
from windlass.engine.perform import AttemptRunner
from windlass.homes import user_folder
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.memory import MemoryLedger
from windlass.plan.load import bind_inputs
from windlass.ports import Health, Journal, Ledger, Tool
from windlass.process import Supervisor
from windlass.settings import load_settings
from windlass.testing import MemoryJournal, ScriptedRunner, Turn
from windlass.tools.built_in import Registry
from windlass.tools.files.tools import file_tools
from windlass.tools.shell import Shell
from windlass.trust import Trust

if TYPE_CHECKING:
    from conftest import Project

__all__ = ["BEGAN", "GONE", "AgentWorld", "agent", "done", "occurred", "plan", "quick"]

GONE = Health(False, "not installed", "install it")
quick = {"delay": "1ms", "max_delay": "2ms"}
"""Retries that nobody waits for."""
BEGAN = 1_800_000_000.0
"""The beginning of an execution that was left behind."""


def agent(id: str = "work", **more: Any) -> Step:
    return Step(id=id, **{"agent": "developer", "prompt": f"do {id}", "retry": quick, **more})


def plan(*steps: Step, **more: Any) -> Plan:
    return Plan(steps=steps or (agent(),), **more)


def done(text: str = "done", usd: float | None = 0.0) -> Turn:
    return Turn(repeat=True).say(text).spend(tokens_in=10, tokens_out=1, usd=usd)


class MiddayClock(SystemClock):
    """Goes on from noon of today: no budget of a day ends while a test runs."""

    def __init__(self) -> None:
        super().__init__()
        now = datetime.now()
        self._base += (now.replace(hour=12, minute=0, second=0, microsecond=0) - now).total_seconds()


class AgentWorld:
    """What outlives an engine: the journal, the ledger, the clock, and the runtimes of the machine."""

    def __init__(
        self,
        project: Project,
        *runners: ScriptedRunner,
        journal: Journal | None = None,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        tools: Iterable[Tool] = (),
        **settings: Any,
    ) -> None:
        """Runtimes that are not given are not installed."""
        self._project = project
        given = {runner.name: runner for runner in runners}
        missing = {name for name in ("claude-code", "open-code", "cli") if name not in given}
        self.runners = given | {name: ScriptedRunner(name=name, health=GONE) for name in missing}
        self.journal = journal or MemoryJournal()
        self.ledger = ledger or MemoryLedger()
        self.clock = clock or MiddayClock()
        self.tools = list(tools)
        self.settings = settings

    def engine(self, **settings: Any) -> Engine:
        home = self._project.home
        known = load_settings(home, {"grace": 60.0, **self.settings, **settings})
        supervisor, trust = Supervisor(), Trust(user_folder())
        drivers = LocalDrivers(self.journal, self.clock)
        agents = AgentTool(
            runners=self.runners,
            briefing=Briefing(),
            ledger=self.ledger,
            clock=self.clock,
            settings=known,
            policy=policy_of(known),
            trusted=trust.has,
            release_dead=partial(release_dead_reservations, drivers, self.ledger),
        )
        registry = Registry([Shell(), *file_tools(), agents, MergeTool(agents), *self.tools])
        attempt_runner = AttemptRunner(registry, supervisor, child_environment(known), home / "executions", known.grace)
        return Engine(
            drivers,
            attempt_runner,
            home=home,
            ledger=self.ledger,
            settings=known,
            policy=policy_of(known),
            agents=agents,
            reader=PlanLoader(registry, trust),
            archive=CheckpointFolder(home / "executions"),
        )

    async def run(self, plan: Plan, *, hold: bool = False, **settings: Any) -> State:
        """Start it, and wait until it has finished or stands still."""
        async with self.engine(**settings) as engine:
            return await (await engine.start(plan, hold=hold)).wait()

    async def resume(self, execution: str, *, hold: bool = False, **settings: Any) -> State:
        async with self.engine(**settings) as engine:
            return await (await engine.resume(execution, hold=hold)).wait()

    async def events(self, execution: str) -> list[ev.Event]:
        return [entry.event for entry in await self.journal.read(execution)]

    async def left_behind(self, plan: Plan, *events: ev.Event) -> State:
        """An execution whose driver is gone, with these events after its start."""
        created = ev.ExecutionCreated(BEGAN, "x" * 32, Raw(plan.encoded), bind_inputs(plan, {}), os.getcwd())
        history = [created, ev.ExecutionStarted(BEGAN, "gone"), *events]
        state = fold(history, plan)
        await self.journal.append(state.id, 0, history, head=head_of(state))
        return state

    async def cut_off(self, execution: str, after: Callable[[ev.Event], Any]) -> AgentWorld:
        """The world as it would be, had the power gone right after the first such event was written."""
        history = await self.events(execution)
        length = next(number for number, event in enumerate(history, 1) if after(event))
        kept = history[:length]
        journal = MemoryJournal()
        await journal.append(execution, 0, kept, head=head_of(fold(kept)))
        return AgentWorld(
            self._project,
            *self.runners.values(),
            journal=journal,
            ledger=self.ledger,
            clock=self.clock,
            tools=self.tools,
            **self.settings,
        )


async def occurred(execution: Execution, kind: type[ev.Event], count: int = 1) -> Any:
    """Follow it until such an event has come that many times, and give that one."""
    async for event in execution.events():
        count -= isinstance(event, kind)
        if count == 0:
            return event
    raise AssertionError(f"there was no such {kind.__name__}")
