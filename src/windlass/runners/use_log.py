"""The uses of tools that were begun, in a file that survives the process (`tool-uses.jsonl` in the step's scratch).

Claude Code and OpenCode keep their conversations themselves, so the uses that were under way when the process was
stopped are kept here. A line is written and fsynced before such a use begins and after it has ended. One that has no
end when the file is read again was cut off: the next attempt is told of it, whichever runtime it runs on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windlass.core.call_summary import call_summary
from windlass.plan.model import Effect
from windlass.runners.toolbox import UNKNOWN_OUTCOME

__all__ = ["InterruptedUse", "UseLog"]

FILE = "tool-uses.jsonl"


class InterruptedUse(NamedTuple):
    """A use that was begun and whose end nobody saw."""

    use: str
    tool: str
    line: str
    """Its arguments in one line."""
    once: bool
    digest: str
    told: bool = False
    """An agent was told of it."""

    def __str__(self) -> str:
        again = "it was cut off; call it again with the same arguments, which is safe"
        return f"{self.tool} {self.line}".rstrip() + f": {UNKNOWN_OUTCOME if self.once else again}"


class UseLog:
    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.cut_off = _read(self._path)
        """Uses of earlier attempts that were cut off."""
        self._writing = asyncio.Lock()

    def take_over(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the id of a cut-off use that this one repeats: a program then repeats none of its calls."""
        digest = _digest(tool, arguments)
        found = next((one for one in self.cut_off if one.digest == digest and not one.once), None)
        if found is None:
            return None
        self.cut_off.remove(found)
        return found.use

    async def begin(self, use: str, tool: str, arguments: Mapping[str, Any], effect: Effect) -> None:
        digest, once = _digest(tool, arguments), effect is Effect.ONCE
        await self._add({"begun": use, "tool": tool, "line": call_summary(arguments), "once": once, "digest": digest})

    async def end(self, use: str) -> None:
        await self._add({"ended": use})

    async def told(self) -> None:
        """An agent was told of the uses that were cut off before this attempt."""
        for one in self.cut_off:
            if not one.told:
                await self._add({"told": one.use})

    async def _add(self, record: Mapping[str, Any]) -> None:
        async with self._writing:
            await asyncio.shield(asyncio.to_thread(_append, self._path, json.dumps(record).encode() + b"\n"))


def _digest(tool: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> list[InterruptedUse]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found: dict[str, InterruptedUse] = {}
    for line in lines:
        try:
            record = json.loads(line)
            if "begun" in record:
                use, tool, gisted = (str(record[key]) for key in ("begun", "tool", "line"))
                found[use] = InterruptedUse(use, tool, gisted, bool(record["once"]), str(record["digest"]))
            elif "told" in record:
                found[record["told"]] = found[record["told"]]._replace(told=True)
            else:
                found.pop(record["ended"], None)
        except (ValueError, TypeError, LookupError):
            continue  # cut off in the middle: its use had not begun
    return list(found.values())


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = not path.exists()
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
    try:
        # After a line that a crash cut off, the next begins on a line of its own.
        if (size := os.fstat(descriptor).st_size) and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
