"""Bytecodes per step: what Python itself executes for one, the same on every machine with this version of Python.

    python -m benchmarks.bytecodes [--record]

Counted in a second and without valgrind, so that `make check` holds each change against `bytecodes.json`. Work in C,
such as encoding and SQLite, is not in it: `benchmarks.instructions` counts that, too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import windlass
from benchmarks.instructions import KINDS, leave_out_the_clock
from benchmarks.ours import increment

__all__ = ["RECORD", "VERSION", "count_bytecodes"]

RECORD = Path(__file__).with_name("bytecodes.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Each version has bytecodes of its own, and figures of its own in the record."""


class _Count:
    """Counts the bytecodes of the thread that it was started in."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, frame: FrameType, event: str, _about: Any) -> _Count:
        if event == "opcode":
            self.total += 1
        else:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self


def count_bytecodes() -> dict[str, int]:
    """Bytecodes of one step of each kind. To be called in a process of its own: it leaves out what the clock does."""
    leave_out_the_clock()
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(_count(Path(home)))


async def _count(home: Path) -> dict[str, int]:
    found = {}
    async with windlass.open(home, tools=[increment]) as engine:
        for kind, (scenario, steps, _text) in KINDS.items():
            await scenario(engine)  # the first round imports and warms up
            count = _Count()
            sys.settrace(count)
            try:
                await scenario(engine)
            finally:
                sys.settrace(None)
            found[kind] = count.total // steps
    return found


if __name__ == "__main__":
    counted = count_bytecodes()
    print(json.dumps(counted))
    if "--record" in sys.argv:
        whole = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**whole, VERSION: counted}, indent=1) + "\n", encoding="utf-8")
