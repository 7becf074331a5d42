"""What the crash tests run in a process of its own, forked from a server that has it imported already."""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_world import TOOLS, World

import windlass.faults
from windlass.errors import ToolError
from windlass.tools.files.undo import roll_back
from windlass.tools.files.undo_step import undo_steps

__all__ = ["attempt", "in_child", "limited_attempt", "roll_back_there", "undo_there", "unprivileged_attempt"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["crash_child"])


def in_child(work: Callable[..., None], *arguments: Any) -> int:
    """Run it in a child: 0, or minus the signal that killed it."""
    child = _context.Process(target=work, args=arguments)
    with pytest.MonkeyPatch.context() as patch:
        # The server looks for what it preloads in its own path, not in ours.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        child.start()
    child.join()
    code = child.exitcode
    child.close()
    assert code is not None
    return code


def _arm(fault: str) -> None:
    os.environ["WINDLASS_FAULT"] = fault
    importlib.reload(windlass.faults)


def attempt(base: Path, folder: Path, fault: str, tool: str, arguments: dict[str, Any]) -> None:
    _arm(fault)
    world = World.there(base, folder)
    asyncio.run(TOOLS[tool].execute(arguments, world.call()))


def roll_back_there(base: Path, folder: Path, fault: str) -> None:
    _arm(fault)
    world = World.there(base, folder)
    roll_back(world.scratch, world.root)


def undo_there(base: Path, folder: Path, fault: str) -> None:
    _arm(fault)
    world = World.there(base, folder)
    undo_steps(world.folder, ["s"], world.root)


def _report(world: World, tool: str, arguments: dict[str, Any], report: Path) -> None:
    try:
        result = asyncio.run(TOOLS[tool].execute(arguments, world.call()))
    except ToolError as error:
        failure = error.failure
        result = {"category": failure.category, "message": failure.message}
    report.write_text(json.dumps(result))


def limited_attempt(base: Path, folder: Path, limit: int, tool: str, arguments: Any, report: Path) -> None:
    world = World.there(base, folder)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    _report(world, tool, arguments, report)


def unprivileged_attempt(base: Path, folder: Path, tool: str, arguments: Any, report: Path, fault: str = "") -> None:
    if fault:
        _arm(fault)
    world = World.there(base, folder)
    asyncio.run(world.do("list", {}))  # imports what it needs while it may
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    _report(world, tool, arguments, report)
