"""Other processes of a home, and short ways to what happened."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import PATIENCE

from windlass.core import events as ev

if TYPE_CHECKING:
    from conftest import Project

__all__ = ["Other", "notes", "other"]

HERE = Path(__file__).parent


class Other:
    """A process that uses the tool `scripted` when it is told to: see `hostile_process`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())

    async def hear(self, *, within: float = PATIENCE) -> dict[str, Any]:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), within)
        assert line, "it ended"
        told: dict[str, Any] = json.loads(line)
        return told

    async def use(self, how: str = "") -> dict[str, Any]:
        """Use the tool and hear what comes first; with `how`, end it so, and hear how it was done."""
        self.tell("use")
        told = await self.hear()
        if how and told["event"] == "using":
            self.tell("end", how)
            told = await self.hear()
        return told


@asynccontextmanager
async def other(project: Project) -> AsyncIterator[Other]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "hostile_process.py"),
        env=project.env,
        cwd=project.path,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    made = Other(process)
    try:
        assert (await made.hear())["event"] == "ready"
        yield made
    finally:
        process.kill()
        await process.wait()


def notes(project: Project, execution: str) -> str:
    """What the user was told beside the output of its steps."""
    written = [event for event in project.events(execution) if isinstance(event, ev.OutputWritten)]
    return "".join(event.text for event in written if event.stream == "note")
