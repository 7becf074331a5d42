"""Asks the person at the terminal for approvals, while the execution goes on."""

from __future__ import annotations

import asyncio
import json
import sys

from windlass.cli.session import attended, say, who
from windlass.cli.view import View
from windlass.core import events as ev
from windlass.engine.engine import Engine

__all__ = ["Attendant"]


class Attendant:
    """Answers requests for approval: with `yes` by itself, else by asking, else not at all."""

    def __init__(self, engine: Engine, execution: str, view: View, *, yes: bool) -> None:
        self._engine = engine
        self._execution = execution
        self._view = view
        self._yes = yes
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    def take(self, event: ev.Event) -> None:
        if isinstance(event, ev.ExecutionReplanned):
            # Whatever was open is asked anew, if it still is to be asked.
            for step in list(self._asking):
                self._asking.pop(step).cancel()
        elif isinstance(event, ev.ApprovalAsked) and (self._yes or attended()):
            task = asyncio.get_running_loop().create_task(self._ask(event))
            self._asking[event.step] = task
        elif isinstance(event, ev.ApprovalAnswered | ev.StepFailed) and event.step in self._asking:
            # Answered elsewhere, or too late: take the question off the screen.
            self._asking.pop(event.step).cancel()

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def _ask(self, asked: ev.ApprovalAsked) -> None:
        allow, note = True, "--yes"
        if not self._yes:
            async with self._one_at_a_time:
                with self._view.aside():
                    say(f"\nStep {asked.step} asks to run {asked.tool} with exactly:")
                    say(json.dumps(asked.input, indent=2, ensure_ascii=False))
                    sys.stderr.write("Allow it? [y]es, [n]o, anything else to decide later: ")
                    sys.stderr.flush()
                    answer = (await _line()).strip().lower()
            if answer not in ("y", "yes", "n", "no"):
                await self._engine.pause(self._execution, by=who())
                return
            allow, note = answer.startswith("y"), ""
        await self._engine.approve(self._execution, asked.step, allow=allow, by=who(), note=note, digest=asked.digest)


async def _line() -> str:
    """A line from the terminal, without blocking the loop and without a thread that cannot be stopped."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
