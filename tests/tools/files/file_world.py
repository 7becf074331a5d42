"""A working directory with an outside that must never be touched, and a short way to call a tool."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from windlass.errors import Failure, ToolError
from windlass.ports import Call
from windlass.schemas import misfits
from windlass.tools.files.tools import file_tools

__all__ = ["SECRET", "TOOLS", "World", "snapshot"]

TOOLS = {tool.name: tool for tool in file_tools()}
SECRET = "the secret outside"


class NoProcesses:
    """File tools start none."""


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything beneath a folder: kind, mode, content or target, and the times of what is no folder."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        about: tuple[Any, ...] = (stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode))
        if path.is_symlink():
            about += (os.readlink(path),)
        elif path.is_file():
            about += (found.st_mtime_ns, path.read_bytes())
        seen[str(path.relative_to(folder))] = about
    return seen


class World:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "work"
        self.outside = base / "outside"
        self.sibling = base / "work-sibling"
        self.folder = base / "state"
        self.said: list[str] = []

    @classmethod
    def there(cls, base: Path, folder: Path) -> World:
        """A world that another process has made."""
        world = cls(base)
        world.folder = folder
        return world

    def make(self) -> World:
        for folder in (self.root / "a" / "b", self.outside / "dir", self.sibling):
            folder.mkdir(parents=True)
        (self.root / "note.txt").write_text("a note\n")
        (self.root / "a" / "one.txt").write_text("one\n")
        (self.outside / "secret.txt").write_text(SECRET)
        (self.sibling / "secret.txt").write_text(SECRET)
        state = self.root / ".windlass"
        state.mkdir()
        (state / "windlass.db").write_text(SECRET)
        return self

    def call(
        self, *, attempt: int = 1, step: str = "s", reduced: int = 0, approved: Mapping[str, str] | None = None
    ) -> Call:
        return Call(
            execution="e",
            step=step,
            attempt=attempt,
            workdir=self.root,
            folder=self.folder,
            processes=NoProcesses(),  # type: ignore[arg-type]
            reduced=reduced,
            approved=approved,
            output=lambda stream, text: self.said.append(text),
        )

    async def do(self, tool: str, arguments: dict[str, Any], **about: Any) -> Any:
        used = TOOLS[f"files.{tool}"]
        result = await used.execute(arguments, self.call(**about))
        json.dumps(result).encode()  # plain JSON data, always
        assert misfits(getattr(used, "returns", {}), result) == []
        return result

    async def either(self, tool: str, arguments: dict[str, Any], **about: Any) -> Any | Failure:
        """The result, or the failure."""
        try:
            return await self.do(tool, arguments, **about)
        except ToolError as error:
            return error.failure

    async def fail(self, tool: str, arguments: dict[str, Any], **about: Any) -> Failure:
        with pytest.raises(ToolError) as caught:
            await self.do(tool, arguments, **about)
        assert "Traceback" not in str(caught.value)
        return caught.value.failure

    @property
    def scratch(self) -> Path:
        return self.call().scratch

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def beyond(self) -> dict[str, Any]:
        """All that no path may reach."""
        return {str(f): snapshot(f) for f in (self.outside, self.sibling, self.root / ".windlass")}

    def inside(self) -> dict[str, tuple[Any, ...]]:
        return snapshot(self.root)

    def litter(self) -> list[Path]:
        """Temporary entries that were left behind."""
        return list(self.root.rglob(".windlass-*"))
