"""The engine's own tools for an agent: each use passes the gates a step passes, and has a scratch of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from windlass.core.approval import Basis
from windlass.engine.agents.permits import listed, offers, verdict
from windlass.engine.code.caller import Permit, ProgramOrigin, callable_names
from windlass.engine.code.tool import CodeTool
from windlass.errors import ApprovalOutdated, Category, Failure, classify
from windlass.plan.model import AGENT, MERGE, Effect
from windlass.ports import Call, ChooseTools, Contact, Permissions, Tool, Toolbox, ToolReturn, ToolSpec, effect_of

__all__ = ["AgentTools"]


class AgentTools:
    """The engine's tools for one agent: for its own use, and for programs that it writes (`code.Caller`)."""

    def __init__(self, tools: Toolbox, call: Call, contact: Contact, permissions: Permissions) -> None:
        self._tools = tools
        self._call = call
        self._contact = contact
        self._permissions = permissions
        self._known = self._at_hand()

    def specs(self, choose: ChooseTools | None = None) -> list[ToolSpec]:
        known = self._known
        if choose is not None:
            chosen = choose({name: self._tools.is_built_in(name) for name in known})
            known = [name for name in known if name in chosen]
        found = ((name, self._tools.get(name)) for name in known)
        return [ToolSpec(name, self._described(tool), tool.schema) for name, tool in found if tool is not None]

    def _described(self, tool: Tool) -> str:
        """Describe a tool for the model; the description of `code` lists the tools that a program can call."""
        if not isinstance(tool, CodeTool):
            return tool.description
        return tool.briefed(self.names(), self._tools)

    def unlisted(self) -> list[str]:
        """List MCP servers whose tools the role names, and which nobody has asked for their tools."""
        patterns = [pattern.partition("(")[0].strip() for pattern in self._permissions.tools or ()]
        missing = [
            one for one in patterns if one.startswith("mcp.") and one not in self._known and self._tools.get(one)
        ]
        return sorted({one.split(".")[1] for one in missing})

    def verdict(self, name: str, input: Any) -> bool | None:
        """Allowed, denied, or None: a person is to be asked."""
        return verdict(self._permissions, name, input)

    def names(self) -> list[str]:
        return callable_names(self._known)

    def tool(self, name: str) -> Tool | None:
        return self._tools.get(name) if name in self._known else None

    def effect(self, name: str, arguments: Mapping[str, Any]) -> Effect:
        """The effect of a use. A shell command of an agent is never repeated, as no author declared that it may be: the
        agent is told that it was cut off, and looks."""
        tool = self._tools.get(name)
        if tool is None:
            return Effect.NONE
        return Effect.ONCE if name == "shell" else effect_of(tool, arguments)

    async def use(self, name: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        """Use a tool. Everything that can go wrong is a Failure for the agent to read, never an exception."""
        tool = self.tool(name)
        if tool is None:
            near = self._tools.nearest(name)
            hint = f"did you mean {near}?" if near in self._known else f"there are: {', '.join(self._known)}"
            return _failed(Category.LOGIC, f"there is no tool {name!r} here; {hint}")
        problems = tool.validate(arguments)
        if problems:
            return _failed(Category.LOGIC, f"{name} cannot take these arguments: {'; '.join(problems)}")
        use = re.sub(r"[^A-Za-z0-9_-]", "_", use_id)[:80]
        outdated: Basis | None = None
        while True:
            permit = await self.allow(name, arguments)
            if permit.denied is not None:
                return _failed(Category.PERMISSION, permit.denied)
            inside = self._call.within(use, ProgramOrigin(self, use), line=tool.is_program, approved=permit.basis)
            try:
                return ToolReturn(await self._contact.use(tool, arguments, inside))
            except ApprovalOutdated as error:
                if outdated == permit.basis:
                    return ToolReturn(None, classify(error))  # it changes and changes back: no question would help
                outdated = permit.basis  # the basis changed since the answer: ask anew
                tool = self.tool(name) or tool
            except (Exception, SystemExit) as error:  # a tool may raise anything; the agent is to read of it
                return ToolReturn(getattr(error, "output", None), classify(error))

    def asks(self, name: str, arguments: Mapping[str, Any]) -> bool:
        if not offers(self._permissions, name, arguments) or self._only_looks(name, arguments):
            return False
        return verdict(self._permissions, name, arguments) is None

    async def allow(self, name: str, arguments: Mapping[str, Any], use: str = "", question: str = "") -> Permit:
        """Check the permissions; ask a person if need be. A use that only reads is not asked about."""
        if not offers(self._permissions, name, arguments):
            return Permit(f"the role may use {name} only for: {', '.join(self._permissions.tools or ())}")
        if not question and self._only_looks(name, arguments):
            return Permit()
        allowed = verdict(self._permissions, name, arguments)
        if allowed is None or (allowed and question):
            folder = self._call.workdir
            return Permit.of(await self._contact.ask(name, dict(arguments), folder, use=use, question=question))
        return Permit(None if allowed else "denied by its role or the settings")

    def _only_looks(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Nothing comes of it by itself; a program's calls are asked about one by one."""
        tool = self._tools.get(name)
        harmless = (tool is not None and tool.is_program) or self.effect(name, arguments) is Effect.NONE
        return harmless and listed(self._permissions, name, arguments) is None

    def _at_hand(self) -> list[str]:
        names = [name for name in self._tools.names() if name not in (AGENT, MERGE)]
        only = self._permissions.tools
        if only is None:
            return names
        patterns = [pattern.partition("(")[0].strip() for pattern in only]  # `shell(git log:*)` is the shell, too
        return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _failed(category: Category, message: str) -> ToolReturn:
    return ToolReturn(None, Failure(category, message))
