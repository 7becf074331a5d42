"""Callers of a program: the tools that it has, and the approval that they need (G2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.core.approval import Basis
from windlass.core.decide import Policy
from windlass.core.program import CallRecord
from windlass.engine.contact import off_the_clock
from windlass.plan.model import STEP_TOOLS, Effect
from windlass.ports import Contact, PersonAnswer, ProgramError, ProgramLimits, Tool, Toolbox, effect_of

__all__ = ["Caller", "Permit", "ProgramOrigin", "StepCaller", "Tree", "callable_names"]


class Permit(NamedTuple):
    """Permission for a use of a tool, or its refusal."""

    denied: str | None = None
    """Why it is not; None when it is."""
    basis: Basis | None = None
    """The basis of a person's answer; None if nobody was asked."""

    @classmethod
    def of(cls, answer: PersonAnswer) -> Permit:
        if answer.allow:
            return cls(basis=answer.basis)
        return cls(f"a person denied it{f': {answer.note}' if answer.note else ''}")


class Caller(Protocol):
    """A step or an agent, with the tools that its programs use."""

    def names(self) -> list[str]:
        """Tools that it has for its programs."""
        ...

    def tool(self, name: str) -> Tool | None: ...

    def effect(self, name: str, arguments: Mapping[str, Any]) -> Effect: ...

    def asks(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """True if a person is asked before this use."""
        ...

    async def allow(self, name: str, arguments: Mapping[str, Any], use: str, question: str = "") -> Permit: ...


def callable_names(names: list[str]) -> list[str]:
    """The tools that a program can call: no agents, whose work is a step of its own, and no program text."""
    return [name for name in names if name not in STEP_TOOLS]


class StepCaller:
    """A step of a plan: its author wrote the program, so its calls are asked about as steps are."""

    def __init__(self, contact: Contact, policy: Policy, workdir: Path, limit: asyncio.Timeout | None = None) -> None:
        """`limit` is a timeout around the program, besides the step's: it stands still while a person is asked."""
        self._contact, self._policy, self._workdir, self._limit = contact, policy, workdir, limit
        self._tools: Toolbox = contact.tools

    def names(self) -> list[str]:
        return callable_names(self._tools.names())

    def tool(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def effect(self, name: str, arguments: Mapping[str, Any]) -> Effect:
        tool = self._tools.get(name)
        return effect_of(tool, arguments) if tool is not None else Effect.NONE

    def asks(self, name: str, arguments: Mapping[str, Any]) -> bool:
        return self._policy.asks_for(self._contact.step.prepared.approve, name)

    async def allow(self, name: str, arguments: Mapping[str, Any], use: str, question: str = "") -> Permit:
        if not question and not self.asks(name, arguments):
            return Permit()
        with off_the_clock(self._limit):
            asked = await self._contact.ask(name, dict(arguments), self._workdir, use=use, question=question)
            return Permit.of(asked)


class Tree(msgspec.Struct):
    """Limits and locks shared by a program and everything that it calls."""

    limits: ProgramLimits
    wall: asyncio.Timeout | None = None
    folder: str = ""
    """The `workdir` of the step: paths in the arguments and results of calls are from it."""
    calls: int = 0
    cpu: float = 0.0
    log: int = 0
    taken: dict[int, CallRecord] = msgspec.field(default_factory=dict)
    """Results of a way that was left which are spoken for, by `id`."""
    _working: int = 0
    _asking: bool = False
    _changed: asyncio.Condition = msgspec.field(default_factory=asyncio.Condition)

    def left(self) -> ProgramLimits:
        """Limits for a further program."""
        limits = self.limits
        return ProgramLimits(
            limits.memory,
            max(0.01, limits.cpu - self.cpu),
            limits.wall,
            max(0, limits.calls - self.calls),
            limits.output,
            max(0, limits.log - self.log),
        )

    def computed(self, seconds: float) -> None:
        self.cpu += seconds
        if self.cpu > self.limits.cpu:
            raise ProgramError(
                "cpu", f"it used more than {self.limits.cpu:g} s of CPU time, with the programs it called"
            )

    def called(self) -> None:
        self.calls += 1
        if self.calls > self.limits.calls:
            raise ProgramError("calls", f"more than {self.limits.calls} calls, with those of the programs it called")

    def logged(self, text: str) -> None:
        self.log += len(text)
        if self.log > self.limits.log:
            raise ProgramError("log", f"more than {self.limits.log} bytes logged, with the programs it called")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Around a use of a tool: none begins while a person is asked."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._asking)
            self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            await self._tell()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Around a question. Unanswered, the attempt may be stopped: no use of a tool is to be cut off by that."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._asking)
            self._asking = True
            try:
                await self._changed.wait_for(lambda: not self._working)
            except BaseException:
                self._asking = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            self._asking = False
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class ProgramOrigin(msgspec.Struct, frozen=True):
    """The origin of a program; handed on in `Call.origin`."""

    caller: Caller
    path: str = ""
    """The program's name in the step: empty for the step's own, else its call or its use."""
    tree: Tree | None = None
    """None for the first of a tree."""
    chain: tuple[str, ...] = ()
    """Composed tools that are under way around it."""
    granted: frozenset[str] | None = None
    """Tools of the calling program: it has no more. None for the first of a tree."""

    def names(self) -> list[str]:
        """Tools that there are for it."""
        names = self.caller.names()
        return names if self.granted is None else [name for name in names if name in self.granted]
