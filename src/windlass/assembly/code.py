"""The sandbox, the tools that run programs in it, and the composed tools, all made when an engine is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.engine.code.composed import ComposedTools
from windlass.engine.code.finding import CodeSearch
from windlass.engine.code.running import Desk
from windlass.engine.code.tool import CodeTool
from windlass.homes import user_folder
from windlass.ports import Sandbox, Shelf, Tool
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox
from windlass.tools.composed import ComposedShelf
from windlass.tools.registry import Registry

__all__ = ["Programs", "cache_folder", "programs"]


class Programs(NamedTuple):
    sandbox: Sandbox
    shelf: Shelf
    registry: Registry


def cache_folder() -> Path:
    """What can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "windlass"


def programs(
    policy: Policy,
    home: Path,
    supervisor: Supervisor,
    tools: Iterable[Tool],
    enabled: Callable[[str], bool] = lambda name: True,
    more: Callable[[], Sequence[Tool]] = tuple,
    unlisted: Callable[[str], Tool | None] = lambda name: None,
) -> Programs:
    """No worker is started before a program needs one. What is not `enabled` nobody has; the rest: see the registry."""
    sandbox = WasmSandbox(supervisor, cache_folder())
    desk = Desk(sandbox, SystemClock())
    fixed: list[Tool] = [*tools, CodeTool(desk, policy), CodeSearch()]
    folder = "composed-tools"
    shelf = ComposedShelf(home / folder, user_folder() / folder, lambda: [*(tool.name for tool in fixed), "mcp"])
    composed = ComposedTools(shelf, desk, policy)

    def come_and_go() -> list[Tool]:
        return [tool for tool in (*composed(), *more()) if enabled(tool.name)]

    def by_name(name: str) -> Tool | None:
        return unlisted(name) if enabled(name) else None

    kept = [tool for tool in fixed if enabled(tool.name)]
    return Programs(sandbox, shelf, Registry(kept, come_and_go, by_name))
