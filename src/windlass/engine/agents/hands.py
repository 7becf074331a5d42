"""The engine's own tools in an agent's hands: each use passes the gates a step passes, and has a scratch of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from windlass.engine.agents.permits import listed, offers, verdict
from windlass.errors import Category, Failure, classify
from windlass.plan.model import AGENT, Effect
from windlass.ports import Call, Contact, Permissions, Toolbox, ToolReturn, ToolSpec

__all__ = ["Hands"]


class Hands:
    """What one agent may use of the engine's tools."""

    def __init__(self, tools: Toolbox, call: Call, contact: Contact, permissions: Permissions) -> None:
        self._tools = tools
        self._call = call
        self._contact = contact
        self._permissions = permissions
        self._known = self._at_hand()

    def specs(self) -> list[ToolSpec]:
        found = ((name, self._tools.get(name)) for name in self._known)
        return [ToolSpec(name, tool.description, tool.schema) for name, tool in found if tool is not None]

    def effect(self, name: str, arguments: Mapping[str, Any]) -> Effect:
        """What a repetition would do. Nobody wrote down that an agent's command may be repeated, as a plan's author
        can: the agent is told that it was cut off, and looks."""
        tool = self._tools.get(name)
        if tool is None:
            return Effect.NONE
        return Effect.ONCE if name == "shell" else tool.effect(arguments)

    async def use(self, name: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        """Use a tool. Everything that can go wrong is a Failure for the agent to read, never an exception."""
        tool = self._tools.get(name)
        if tool is None or name not in self._known:
            near = self._tools.nearest(name)
            hint = f"did you mean {near}?" if near in self._known else f"there are: {', '.join(self._known)}"
            return _failed(Category.LOGIC, f"there is no tool {name!r} here; {hint}")
        problems = tool.validate(arguments)
        if problems:
            return _failed(Category.LOGIC, f"{name} cannot take these arguments: {'; '.join(problems)}")
        denied = await self._ask(name, arguments)
        if denied is not None:
            return _failed(Category.PERMISSION, denied)
        try:
            return ToolReturn(await tool.execute(arguments, self._nested(use_id)))
        except (Exception, SystemExit) as error:  # a tool may raise anything; the agent is to read of it
            return ToolReturn(getattr(error, "output", None), classify(error))

    async def _ask(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Why it is not allowed, or None. What only looks is not asked about: only a list can deny it."""
        if not offers(self._permissions, name, arguments):
            return f"the role may use {name} only for: {', '.join(self._permissions.tools or ())}"
        if listed(self._permissions, name, arguments) is None and self.effect(name, arguments) is Effect.NONE:
            return None
        allowed = verdict(self._permissions, name, arguments)
        if allowed is None:
            answer = await self._contact.ask(name, dict(arguments))
            return None if answer.allow else f"a person denied it{f': {answer.note}' if answer.note else ''}"
        return None if allowed else "its role or the settings deny it"

    def _nested(self, use_id: str) -> Call:
        outer = self._call
        name = re.sub(r"[^A-Za-z0-9_-]", "_", use_id)[:80]
        return Call(
            execution=outer.execution,
            step=f"{outer.step}.{name}",
            attempt=outer.attempt,
            workdir=outer.workdir,
            folder=outer.folder,
            processes=outer.processes,
            timeout=outer.timeout,
            reduced=outer.reduced,
            env=outer.env,
            output=outer.output,
            grace=outer.grace,
        )

    def _at_hand(self) -> list[str]:
        names = [name for name in self._tools.names() if name != AGENT]
        only = self._permissions.tools
        if only is None:
            return names
        patterns = [pattern.partition("(")[0].strip() for pattern in only]  # `shell(git log:*)` is the shell, too
        return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _failed(category: Category, message: str) -> ToolReturn:
    return ToolReturn(None, Failure(category, message))
