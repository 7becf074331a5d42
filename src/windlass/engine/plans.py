"""Plans before anything of them runs: read, checked, and compared with what is installed here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from windlass.core.events import Source
from windlass.engine.agents.tool import AgentTool
from windlass.engine.code.tool import refuse_unreadable
from windlass.engine.drivers import Launcher
from windlass.engine.prerequisites import find_missing
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import ToolCatalog
from windlass.plan.load import check_plan
from windlass.plan.model import Plan
from windlass.ports import Sandbox, Tool

__all__ = ["LoadedPlan", "PlanReader", "Plans"]


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan with its source and the tools that it brings along."""

    plan: Plan
    source: Source = field(default_factory=Source)
    tools: tuple[Tool, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan | LoadedPlan) -> LoadedPlan:
        """Wrap a bare plan, which has no source and brings nothing."""
        return cls(plan) if isinstance(plan, Plan) else plan


class PlanReader(Protocol):
    """Reads plans from files, and loads the tools that they bring."""

    def read(self, path: Path, workdir: Path) -> LoadedPlan: ...

    def parse(self, text: str, name: str, workdir: Path) -> LoadedPlan: ...

    def catalog(self, tools: Iterable[Tool], workdir: Path) -> ToolCatalog: ...

    def of_source(self, source: Source) -> list[Tool]: ...


class Plans:
    """Reads plans, and refuses those that cannot run here."""

    def __init__(
        self, reader: PlanReader, launcher: Launcher, agents: AgentTool | None, sandbox: Sandbox | None
    ) -> None:
        self.tools_of = reader.of_source
        """Loads the tools that a plan from this source brings."""
        self._reader = reader
        self._launcher = launcher
        self._agents = agents
        self._sandbox = sandbox
        self._checked: set[str] = set()
        """Digests of plans from Python or text that were found valid."""

    def read(self, path: Path | str, workdir: Path | str | None = None) -> LoadedPlan:
        """Read a plan file and check all of it. Raises `PlanInvalid` with every problem in it.

        Roles and skills of its agents are looked for in `workdir`.
        """
        return self._reader.read(Path(path), Path(workdir or os.getcwd()))

    def parse(self, text: str, workdir: Path | str | None = None, *, name: str = "<text>") -> LoadedPlan:
        """Read a plan from text, checked as a file is. A `name` that ends in .json makes it JSON."""
        loaded = self._reader.parse(text, name, Path(workdir or os.getcwd()))
        self._checked.add(loaded.plan.digest)
        return loaded

    def check(self, loaded: LoadedPlan, workdir: Path | str | None) -> None:
        """Refuse a plan with problems of its own; one from a file was checked when it was read."""
        plan = loaded.plan
        if loaded.source.path is None and plan.digest not in self._checked:
            problems = check_plan(plan, self._reader.catalog(loaded.tools, Path(workdir or os.getcwd())))
            if problems:
                raise PlanInvalid(problems)
            self._checked.add(plan.digest)
        if self._agents is not None and (strange := self._agents.strange_runtimes(plan)):
            raise UsageError("; ".join(strange))

    async def check_programs(self, plan: Plan) -> None:
        """Raises `PlanInvalid` with every program of the plan that cannot be parsed."""
        if self._sandbox is not None and any(step.is_code for step in plan.steps):
            await refuse_unreadable(self._sandbox, plan)

    async def prerequisites(
        self, plan: Plan | LoadedPlan, workdir: Path | str | None = None, *, anyway: bool = False
    ) -> list[str]:
        """Look for the programs and runtimes that a plan needs. Returns warnings; raises what is missing (D5).

        With `anyway` that is a warning, too: the step will fail or fall back in its turn.
        """
        loaded = LoadedPlan.of(plan)
        self.check(loaded, workdir)
        if not any(step.is_agent or step.tool_name == "shell" for step in loaded.plan.steps):
            return []
        runners = self._agents.runners if self._agents is not None else {}
        folder = os.path.abspath(workdir or os.getcwd())
        env, policy = self._launcher.performer.env, self._launcher.policy
        found = await asyncio.to_thread(find_missing, loaded.plan, folder, env, runners, policy)
        if not found.missing or anyway:
            return [*found.missing, *found.doubtful]
        listed = "\n".join(f"  - {line}" for line in found.missing)
        advice = (*found.advice, "see what is installed: windlass doctor", "start it all the same: --anyway")
        raise UsageError(f"this plan cannot run here as it is, so nothing was started:\n{listed}", advice=advice)
