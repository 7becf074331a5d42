"""A home in which programs run, for tests: opened, left, cut off at any commit, and opened again.

Everything is real but the disk: the sandbox, the gates, the composed tools on their shelf. `Notes` are tools that write
down what was done, so that a test sees what the world saw; `PowerCut` is a journal that fails at a commit of choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import windlass
from windlass import Execution, Plan, Step
from windlass.assembly import child_environment
from windlass.assembly.agents import policy_of
from windlass.assembly.plan_loader import PlanLoader
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.engine.code.composed import ComposedTools
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.search import CodeSearch
from windlass.engine.code.tool import CodeTool
from windlass.engine.drivers import LocalDrivers
from windlass.engine.engine import Engine
from windlass.engine.gates import Gates
from windlass.engine.gates.terms import TermsOfUse
from windlass.engine.perform import AttemptRunner
from windlass.errors import Failure
from windlass.homes import user_folder
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.memory import MemoryLedger
from windlass.ports import Call, ComposedTool, Journal, Sandbox, Tool
from windlass.process import Supervisor
from windlass.settings import load_settings
from windlass.testing import MemoryJournal
from windlass.tools.built_in import Registry
from windlass.tools.composed import FolderComposedStore
from windlass.tools.files.tools import file_tools
from windlass.tools.shell import Shell
from windlass.trust import Trust

if TYPE_CHECKING:
    from conftest import Project

__all__ = ["CodeWorld", "Notes", "PowerCut", "code", "failure", "kept", "occurred", "of", "plan", "quick"]

quick = {"delay": "1ms", "max_delay": "2ms"}
"""Retries that nobody waits for."""


def code(source: str, id: str = "work", **more: Any) -> Step:
    return Step(id=id, code=source, **{"retry": quick, **more})


def plan(*steps: Step | str, **more: Any) -> Plan:
    return Plan(steps=[code(step) if isinstance(step, str) else step for step in steps], **more)


def kept(name: str, source: str, *grants: str, **more: Any) -> ComposedTool:
    """A composed tool that takes any arguments, unless told otherwise."""
    return ComposedTool(name, source, grants=grants, **{"schema": {"type": "object"}, **more})


def failure(state: State, step: str = "work") -> Failure:
    found = state.steps[step].error
    assert found is not None, f"{step} did not fail: {state.steps[step].output!r}"
    return found


def of(events: Iterable[ev.Event], *kinds: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


class Notes:
    """What was done, in its order. `note` may be repeated, `pay` may not, `look` does nothing."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @windlass.tool
        async def note(text: str) -> str:
            self.done.append(text)
            return text.upper()

        @windlass.tool(effect="once")
        async def pay(text: str) -> str:
            self.done.append(text)
            return f"paid {text}"

        @windlass.tool(effect="none")
        async def look(text: str) -> int:
            self.done.append(text)
            return len(text)

        self.tools: list[Tool] = [note, pay, look]


class CodeWorld:
    """What outlives an engine: the journal, the sandbox, the tools, and the composed tools on their shelf."""

    def __init__(
        self,
        project: Project,
        sandbox: Sandbox,
        tools: Iterable[Tool] = (),
        journal: Journal | None = None,
        terms: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`terms` is what the settings say of tools."""
        self.project, self.sandbox, self.journal = project, sandbox, journal or MemoryJournal()
        self.tools = list(tools)
        self.settings, self._terms = {"grace": 0.1, **settings}, dict(terms or {})
        self._known = load_settings(project.home, {**self.settings, "tools": self._terms})
        clock = SystemClock()
        desk, policy = ProgramDeps(sandbox, clock), policy_of(self._known)
        fixed: list[Tool] = [Shell(), *file_tools(), *self.tools, CodeTool(desk, policy), CodeSearch()]
        folders = project.home / "composed-tools", user_folder() / "composed-tools"
        self.shelf = FolderComposedStore(*folders, lambda: [tool.name for tool in fixed])
        self.registry = Registry(fixed, ComposedTools(self.shelf, desk, policy))

    def engine(self) -> Engine:
        """Its sandbox outlives it: the next one finds warm workers."""
        home, known = self.project.home, self._known
        env, gates = child_environment(known), Gates(terms=TermsOfUse(known.tools))
        return Engine(
            LocalDrivers(self.journal, SystemClock()),
            AttemptRunner(self.registry, Supervisor(), env, home / "executions", known.grace, gates),
            home=home,
            ledger=MemoryLedger(),
            settings=known,
            policy=policy_of(known),
            shelf=self.shelf,
            reader=PlanLoader(self.registry, Trust(user_folder())),
            archive=CheckpointFolder(home / "executions"),
        )

    def with_journal(self, journal: Journal, tools: Iterable[Tool] | None = None) -> CodeWorld:
        """The same in another home of journals, as it would be with these tools."""
        own = self.tools if tools is None else tools
        return CodeWorld(self.project, self.sandbox, own, journal, self._terms, **self.settings)

    async def run(self, plan: Plan, *, hold: bool = False) -> State:
        """Start it, and wait until it has finished or stands still."""
        async with self.engine() as engine:
            return await (await engine.start(plan, hold=hold)).wait()

    async def resume(self, execution: str, *, hold: bool = False, **how: Any) -> State:
        async with self.engine() as engine:
            return await (await engine.resume(execution, hold=hold, **how)).wait()

    async def step(self, source: str, **more: Any) -> StepState:
        """How a plan of one program ends."""
        return (await self.run(plan(code(source, **more)))).steps["work"]

    async def events(self, execution: str) -> list[ev.Event]:
        return [entry.event for entry in await self.journal.read(execution)]

    async def calls(self, execution: str) -> list[str]:
        """The calls that were begun, as `number tool`."""
        return [f"{event.call} {event.tool}" for event in of(await self.events(execution), ev.CallStarted)]


class PowerCut(MemoryJournal):
    """Fails at a commit of choice, before it or right after it, and at all that come then: the power is gone."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._before = 0, True
        self._out = False

    def cut_at(self, commit: int, before: bool) -> None:
        """The power is back, and whoever drove is dead. It goes again at the n-th commit from now; 0 is never."""
        self._left, self._before, self._out = commit, before, False
        for driver in list(self._drivers):
            self.retire(driver)

    async def append(self, execution: str, after: int, events: Sequence[ev.Event], **rest: Any) -> None:
        self._left -= 1
        last = self._left == 0
        if self._out or (last and self._before):
            self._out = True
            raise OSError("the power is gone")
        await super().append(execution, after, events, **rest)
        if last:
            self._out = True
            raise OSError("the power is gone")


async def occurred(execution: Execution, kind: type[ev.Event], count: int = 1) -> Any:
    """Follow it until such an event has come that many times, and give that one."""
    async for event in execution.events():
        count -= isinstance(event, kind)
        if count == 0:
            return event
    raise AssertionError(f"there was no such {kind.__name__}")


def plain_call(folder: Path, contact: Any = None) -> Call:
    """A use of a tool, outside of an execution unless there is a `contact`."""
    return Call(
        execution="e",
        step="s",
        attempt=1,
        workdir=folder,
        folder=folder,
        processes=Supervisor(),
        output=lambda stream, text: None,
        contact=contact,
    )
