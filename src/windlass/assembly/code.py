"""The sandbox, the tools that run programs in it, and the composed tools, all made when an engine is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.engine.code.composed import ComposedTools
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.search import CodeSearch
from windlass.engine.code.tool import CodeTool
from windlass.homes import user_folder
from windlass.ports import ComposedStore, Sandbox, Tool
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox
from windlass.tools.built_in import TABLE, BuiltInTools
from windlass.tools.composed import FolderComposedStore
from windlass.tools.registry import Registry

__all__ = ["Programs", "cache_folder", "programs"]


class Programs(NamedTuple):
    sandbox: Sandbox
    shelf: ComposedStore
    registry: Registry


def cache_folder() -> Path:
    """The folder for files that can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "windlass"


def programs(
    policy: Policy,
    home: Path,
    supervisor: Supervisor,
    built_in: BuiltInTools,
    tools: Iterable[Tool] = (),
    enabled: Callable[[str], bool] = lambda name: True,
) -> Programs:
    """The registry of all tools: the built-in ones, `tools`, those that run programs, and those that come and go.

    A tool that is not `enabled` is left out. No worker of the sandbox is started before a program needs one."""
    sandbox = WasmSandbox(supervisor, cache_folder())
    desk = ProgramDeps(sandbox, SystemClock())
    fixed: list[Tool] = [*tools, CodeTool(desk, policy), CodeSearch()]
    folder = "composed-tools"
    taken = [*TABLE, *(tool.name for tool in fixed), "mcp"]
    shelf = FolderComposedStore(home / folder, user_folder() / folder, lambda: taken)
    composed = ComposedTools(shelf, desk, policy)

    def come_and_go() -> list[Tool]:
        return [tool for tool in (*composed(), *built_in.more()) if enabled(tool.name)]

    def find(name: str) -> Tool | None:
        if not enabled(name):
            return None
        return built_in.find(name) or next((tool for tool in composed() if tool.name == name), None)

    kept = [tool for tool in fixed if enabled(tool.name)]
    return Programs(sandbox, shelf, Registry(kept, come_and_go, find, built_in))
