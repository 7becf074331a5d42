"""Load plans from files, with the tools and roles that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from windlass.core.events import Source
from windlass.engine.agents.plan_output import PlanCatalog
from windlass.engine.agents.tool import AgentTool
from windlass.engine.plans import LoadedPlan
from windlass.errors import UsageError
from windlass.plan.check import ToolCatalog
from windlass.plan.load import load_plan, load_text, peek_tools, plan_bytes
from windlass.plan.model import AGENT
from windlass.ports import Tool
from windlass.tools.built_in import Registry
from windlass.trust import Trust

__all__ = ["PlanLoader"]


class PlanLoader:
    """Reads plan files and brings their tools, asking for trust where it must."""

    def __init__(self, registry: Registry, trust: Trust, *, pipes: bool = True) -> None:
        """`pipes` is for `plan_bytes`."""
        self._registry = registry
        self._trust = trust
        self._pipes = pipes

    def read(self, path: Path, workdir: Path) -> LoadedPlan:
        """A plan file, checked whole, with the tools that it names and the roles there are in `workdir`."""
        data = plan_bytes(path, pipes=self._pipes)
        files = [(path.parent / name).resolve() for name in peek_tools(data, str(path))]
        tools = self.load(files)
        loaded = load_plan(path, tools=self.catalog(tools, workdir), data=data)
        source = Source(
            path=str(path.resolve()),
            digest=loaded.digest,
            tools={str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        )
        return LoadedPlan(loaded.plan, source, tuple(tools), tuple(map(str, loaded.warnings)))

    def parse(self, text: str, name: str, workdir: Path) -> LoadedPlan:
        """A plan as text. It brings no tools of its own: there is no folder that they could be trusted in."""
        if peek_tools(text.encode(errors="replace"), name):  # its steps that use them would be called wrong
            raise UsageError(
                "a plan that is not in a file cannot have `tools`",
                advice=("write the plan into a file beside its tools, and name that file",),
            )
        loaded = load_text(text, file=name, tools=self.catalog((), workdir))
        return LoadedPlan(loaded.plan, warnings=tuple(map(str, loaded.warnings)))

    def catalog(self, tools: Iterable[Tool], workdir: Path) -> ToolCatalog:
        box = self._registry.extended(tools)
        agents = box.get(AGENT)
        return PlanCatalog(box, agents.misfits if isinstance(agents, AgentTool) else None, workdir)

    def of_source(self, source: Source) -> list[Tool]:
        """The tools that an execution was started with, for as far as their files are still there."""
        return self.load([Path(file) for file in source.tools if Path(file).is_file()])

    def load(self, files: list[Path]) -> list[Tool]:
        missing = [file for file in files if not file.is_file()]
        if missing:
            names = ", ".join(str(file) for file in missing)
            raise UsageError(f"the plan names tool files that are not there, or are no files: {names}")
        self._trust.require(files)
        if not files:
            return []
        from windlass.tools.function import tools_in  # most plans name none

        return [found for file in files for found in tools_in(file)]
