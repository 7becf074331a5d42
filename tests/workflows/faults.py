"""What goes wrong around a plan, dealt out by a seed: before a tool begins, or at the server that it speaks to.

One use of a tool in ten fails. Where a server deals out its own faults, half of them are its.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from windlass import ToolError
from windlass.engine.gates import Gates
from windlass.ports import Call, Tool, Toolbox

__all__ = ["Faults", "FaultyGates"]

BY_A_SERVER = ("http.", "search", "message.", "mcp.", "browser.", "agent")


class Faults:
    """What goes wrong, by a seed; without one, nothing does."""

    def __init__(self, seed: int | None = None) -> None:
        self.uses = self.dealt = 0
        self.deal(seed)

    def deal(self, seed: int | None) -> None:
        """From now on by this seed."""
        self.forced = ""
        """What goes wrong at the next server that is asked, whatever chance says."""
        self._random = random.Random(seed)
        self._any = seed is not None

    def strikes(self, share: float = 0.05) -> bool:
        struck = bool(self.forced) or (self._any and self._random.random() < share)
        self.dealt += struck
        return struck

    def strikes_use(self, tool: str) -> bool:
        self.uses += 1
        return not self.forced and self.strikes(0.05 if tool.startswith(BY_A_SERVER) else 0.1)

    def one_of(self, *ways: str) -> str:
        """Which of these ways to fail it is."""
        forced, self.forced = self.forced, ""
        return forced or self._random.choice(ways)


class _Struck:
    """A tool that fails before it begins, and is all that it was otherwise."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        raise ToolError(f"{self._tool.name}: the line was bad just now", category="transient")


class FaultyGates(Gates):
    def strike(self, gates: Gates, faults: Faults, spoil: Callable[[], None]) -> FaultyGates:
        """These, in the place of an engine's own. `spoil` is told that the next use of an MCP server is to fail."""
        self.__dict__.update(gates.__dict__)
        self._faults, self._spoil = faults, spoil
        return self

    async def _use(self, tool: Tool, arguments: Mapping[str, Any], call: Call, tools: Toolbox | None) -> Any:
        # A program is a use of nothing but the sandbox: its calls of tools pass here one by one.
        struck = not tool.is_program and self._faults.strikes_use(tool.name)
        if tool.name.startswith("mcp.") and not struck and self._faults.strikes():
            self._spoil()
        return await super()._use(_Struck(tool) if struck else tool, arguments, call, tools)  # type: ignore[arg-type]
