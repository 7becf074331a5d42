"""Gates in front of tools that do what they are told next, for tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from windlass import ToolError
from windlass.engine.gates import Gates
from windlass.engine.gates.terms import TermsOfUse
from windlass.errors import Category
from windlass.plan.model import Effect
from windlass.ports import Call, Meter, Terms
from windlass.process import Supervisor
from windlass.settings import ToolSettings
from windlass.testing import FakeClock
from windlass.tools.built_in import Registry

__all__ = ["Scripted", "World", "down"]


class Scripted:
    """A tool that does what it is told next, and counts."""

    description = "scripted"
    schema: dict[str, Any] = {"type": "object"}

    def __init__(self, name: str, *outcomes: Any, terms: Terms | None = None, effect: Effect = Effect.NONE) -> None:
        self.name, self.terms, self._effect = name, terms or Terms(), effect
        self.outcomes = list(outcomes)
        self.uses = 0

    def effect(self, arguments: Any) -> Effect:
        return self._effect

    def validate(self, arguments: Any) -> list[str]:
        return []

    async def execute(self, arguments: Any, call: Call) -> Any:
        self.uses += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "fine"
        if isinstance(outcome, BaseException):
            raise outcome
        if asyncio.iscoroutine(outcome):
            return await outcome
        return outcome


class World:
    def __init__(self, tmp_path: Path, *tools: Scripted, **settings: ToolSettings) -> None:
        self.clock = FakeClock(1000.0)
        self.gates = Gates(terms=TermsOfUse(settings), clock=self.clock)
        self.registry = Registry(tools)
        self.notes: list[str] = []
        self._tmp = tmp_path
        self.meter = Meter()
        """Of the last use."""
        self.grace = 5.0
        self.contact: Any = None
        """The line to the execution, as the tool's uses have it."""
        self.approved: dict[str, str] | None = None
        """The basis on which the next uses were approved, if they were."""

    async def use(self, name: str, **arguments: Any) -> Any:
        found = self.registry.get(name)
        assert found is not None
        async with Supervisor() as processes:
            call = Call(
                execution="e",
                step="s",
                attempt=1,
                workdir=self._tmp,
                folder=self._tmp,
                processes=processes,
                output=lambda stream, text: self.notes.append(text),
                grace=self.grace,
                contact=self.contact,
                approved=self.approved,
            )
            self.meter = call.meter
            return await self.gates.use(found, arguments, call, self.registry)


def down() -> ToolError:
    return ToolError("no answer", category=Category.TRANSIENT)
