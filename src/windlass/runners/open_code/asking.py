"""The desk where an agent's questions are answered while its events go on.

The policy's rules decide first, as subagents do not inherit them; what they leave open goes to the host. Each question
has a task of its own: a person may take long, and other things happen meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from windlass.ports import Host
from windlass.runners.open_code.permissions import Rule, decide
from windlass.runners.open_code.server import Server

__all__ = ["Desk"]

OF_ITS_OWN = ("external_directory", "doom_loop")
"""Questions that are not about the use of a tool itself, but about how it is used."""


class Desk:
    def __init__(self, server: Server, directory: str, host: Host, rules: Sequence[Rule]) -> None:
        self._server, self._directory, self._host, self._rules = server, directory, host, rules
        self._uses: dict[str, tuple[str, Any]] = {}
        self._seen: set[Any] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.adjustments: list[str] = []

    def saw(self, part: Mapping[str, Any]) -> None:
        """A part that may be the use of a tool: a question about it will name it only by its call."""
        if part.get("type") == "tool":
            state = part.get("state") or {}
            self._uses[str(part.get("callID"))] = (str(part.get("tool")), state.get("input"))

    def asked(self, told: Mapping[str, Any]) -> None:
        """A question; it may be told again after a broken stream, and is answered once."""
        if told.get("id") not in self._seen:
            self._seen.add(told.get("id"))
            self._begin(self._answer(told))

    def question(self, told: Mapping[str, Any]) -> None:
        """The agent asks a person at OpenCode's screen, where nobody is."""
        self._begin(self._send(f"/question/{told.get('id')}/reject", None))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, told: Mapping[str, Any]) -> None:
        permission = str(told.get("permission"))
        patterns = [str(pattern) for pattern in told.get("patterns") or ()]
        tool, input = self._about(permission, patterns, told)
        decision, note = decide(self._rules, permission, patterns), "the policy of this step denies it"
        if decision == "ask":
            answer = await self._host.ask(tool, input)
            decision, note = "allow" if answer.allow else "deny", answer.note or "a person denied it"
        if decision == "allow":
            body = {"reply": "once"}
        else:
            self.adjustments.append(f"{tool} was denied")
            # With a message the agent is told and goes on; without one OpenCode would end the turn.
            body = {"reply": "reject", "message": note}
        await self._send(f"/permission/{told.get('id')}/reply", body)

    def _about(self, permission: str, patterns: list[str], told: Mapping[str, Any]) -> tuple[str, Any]:
        call = str((told.get("tool") or {}).get("callID"))
        tool, input = self._uses.get(call, (permission, None))
        if permission in OF_ITS_OWN or input is None:
            return permission, {"patterns": patterns, **(told.get("metadata") or {}), "tool": tool}
        return tool, input

    async def _send(self, path: str, body: Any) -> None:
        # An answer that comes too late (404) concerns nobody any more; a server that is gone ends the turn elsewhere.
        await self._server.call("POST", path, directory=self._directory, body=body)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
