"""Composed tools as tools: each runs its program with the grants that it names and its caller has (G3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.core.decide import Policy
from windlass.engine.code.caller import ProgramOrigin, StepCaller
from windlass.engine.code.failures import failure_of
from windlass.engine.code.grounds import program_basis
from windlass.engine.code.running import ProgramDeps, run_program
from windlass.engine.code.tool import limits_of
from windlass.errors import Category, Failure, ToolError
from windlass.plan.model import Effect
from windlass.plan.program import granted_tools
from windlass.ports import Call, ComposedStore, ComposedTool, ProgramError, Tool, Toolbox

__all__ = ["Composed", "ComposedTools"]

FRESH = 0.25
"""Seconds for which the list of the store is reused."""
DEEPEST = 8
"""Composed tools that may be under way inside each other."""


class Composed(Tool):
    """One composed tool behind the `Tool` port."""

    composed: ComposedTool
    is_program = True

    def __init__(self, composed: ComposedTool, desk: ProgramDeps, policy: Policy, shelf: ComposedStore) -> None:
        self.composed, self.desk, self.policy, self.shelf = composed, desk, policy, shelf
        self.name = composed.name
        self.description = composed.description or f"The composed tool {composed.name}."
        self.schema, self.returns = dict(composed.schema), composed.returns

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """As with every program: its calls are on record, each by itself."""
        return Effect.REPEATABLE

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """Its own program, and those of the composed tools that it may call."""
        return program_basis([self], tools)

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        failed = True
        try:
            value = await self._run(arguments, call)
            failed = False
            return value
        finally:
            await asyncio.shield(
                asyncio.to_thread(self.shelf.used, self.composed, self.desk.clock.now(), failed=failed)
            )

    async def _run(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if call.contact is None:
            raise ToolError("a composed tool runs only inside an execution", category=Category.LOGIC)
        spec = call.contact.step.spec
        origin = (
            call.origin
            if isinstance(call.origin, ProgramOrigin)
            else ProgramOrigin(StepCaller(call.contact, self.policy, call.workdir))
        )
        self._bounded(origin)
        grants = self.composed.grants
        if origin.tree is None and spec.tool == self.name and spec.grants is not None:
            grants = granted_tools(spec.grants, granted_tools(grants, origin.names()))
        own = spec.limits if spec.tool == self.name else None
        value = await run_program(
            self.desk,
            call,
            msgspec.structs.replace(origin, chain=(*origin.chain, self.name)),
            self.composed.source,
            {"args": dict(arguments)},
            grants=grants,
            limits=limits_of(own.model_dump(exclude_none=True) if own is not None else None),
        )
        if self.returns is None:
            return value
        from windlass.schemas import misfits

        if wrong := misfits(self.returns, value, part="key"):
            message = f"{self.name} returned a result that does not match its `returns` schema: {'; '.join(wrong)}"
            raise ToolError.of(Failure(Category.LOGIC, message, kind="marshal"))
        return value

    def _bounded(self, origin: ProgramOrigin) -> None:
        if self.name in origin.chain:
            path = " → ".join((*origin.chain, self.name))
            raise ToolError.of(failure_of(ProgramError("depth", f"a composed tool cannot call itself: {path}")))
        if len(origin.chain) >= DEEPEST:
            message = f"more than {DEEPEST} composed tools inside each other: {' → '.join(origin.chain)}"
            raise ToolError.of(failure_of(ProgramError("depth", message)))


class ComposedTools:
    """The composed tools that there are at the moment, for the registry."""

    def __init__(self, shelf: ComposedStore, desk: ProgramDeps, policy: Policy) -> None:
        self._shelf, self._desk, self._policy = shelf, desk, policy
        self._seen: list[Composed] = []
        self._seen_at = float("-inf")
        self._stamp: object = None

    def __call__(self) -> list[Composed]:
        # The registry asks for each name, so the list is reused; an edit of a file in place shows after a moment.
        stamp = self._shelf.stamp()
        if stamp != self._stamp or time.monotonic() - self._seen_at > FRESH:
            self._seen = [Composed(kept, self._desk, self._policy, self._shelf) for kept in self._shelf.all()]
            self._seen_at, self._stamp = time.monotonic(), stamp
        return self._seen
