"""A folder in which a tool is tried: furnished, with attempts of its own, and gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.ports import Call
from windlass.process import Supervisor

__all__ = ["Prepare", "ToolPlace"]

Prepare = Callable[[Path], object]
"""Furnishes a working directory."""


class ToolPlace:
    """A working directory, and attempts in it."""

    def __init__(self, prepare: Prepare | None) -> None:
        self._prepare, self._count = prepare, 0

    async def __aenter__(self) -> ToolPlace:
        self._base = tempfile.TemporaryDirectory(prefix="windlass-tool-")
        base = Path(self._base.name).resolve()
        self.work, self._folder = base / "work", base / "home" / "executions" / "exercise"
        self.work.mkdir()
        self._folder.mkdir(parents=True)
        if self._prepare is not None:
            self._prepare(self.work)
        self._processes = Supervisor()
        await self._processes.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._processes.__aexit__(*error)
        self._base.cleanup()

    def call(self) -> Call:
        self._count += 1
        return Call(
            execution="exercise",
            step=f"use{self._count}",
            attempt=1,
            workdir=self.work,
            folder=self._folder,
            processes=self._processes,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            grace=0.5,
        )

    def seen(self) -> dict[str, tuple[int, int, int]]:
        looks = ((path, path.lstat()) for path in sorted(self.work.rglob("*")))
        return {str(path): (look.st_mode, look.st_size, look.st_mtime_ns) for path, look in looks}
