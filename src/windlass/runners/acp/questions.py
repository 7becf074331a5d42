"""Answer an agent's requests for permission: by the rules of the step, or by a person through the host.

An answer is bound to the exact input, and asked for the same again the agent has it at once. So the input has what is
to be done and nothing that differs from try to try, such as the ids of calls.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any

from windlass.ports import AgentRequest, Host
from windlass.runners.acp.updates import UpdateListener, text_of, tool_kind

__all__ = ["PermissionQuestions", "shown_input"]

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}
SHELLS = ("-c", "-lc")


class PermissionQuestions:
    def __init__(self, request: AgentRequest, host: Host, listener: UpdateListener) -> None:
        self._request, self._host, self._listener = request, host, listener
        self._over = asyncio.Event()
        self.denials: list[str] = []
        """Uses that were denied and why, for an agent that stops there."""
        self.adjustments: list[str] = []

    def cancel(self) -> None:
        """The turn ends: open questions are answered with that, as the protocol wants it."""
        self._over.set()

    async def answer(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of `session/request_permission`."""
        call = params.get("toolCall")
        known = self._listener.known(call) if isinstance(call, Mapping) else {}
        deciding = asyncio.create_task(self._decided(known))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({deciding, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            deciding.cancel()
            await asyncio.gather(deciding, over, return_exceptions=True)
        if deciding.cancelled() or self._over.is_set():
            return CANCELLED
        allowed, note = deciding.result()
        option = _option(params.get("options"), "allow_once" if allowed else "reject_once")
        if not allowed:
            title = str(known.get("title") or tool_kind(known))
            self.denials.append(f"{title}: {note}")
            self.adjustments.append(f"{tool_kind(known)} was denied")
        if option is None:
            return CANCELLED
        return {"outcome": {"outcome": "selected", "optionId": option}}

    async def _decided(self, call: Mapping[str, Any]) -> tuple[bool, str]:
        if self._listener.ours(call) is not None:
            return True, ""  # the engine's own gates are before it
        tool, only = tool_kind(call), self._request.permissions.tools
        if only is not None and tool not in {name.partition("(")[0] for name in only}:
            return False, "this role does not have it"
        try:
            answer = await self._host.ask(tool, shown_input(call, str(self._request.workdir)))
        except Exception as error:  # a question that cannot be put is no yes
            return False, f"no person could be asked: {error}"
        return answer.allow, answer.note or "it was denied"


def shown_input(call: Mapping[str, Any], workdir: str) -> dict[str, Any]:
    """The use that the agent wants, as a person is asked about it and as permission rules read it."""
    title, raw = str(call.get("title") or ""), call.get("rawInput")
    if tool_kind(call) == "execute":
        command = raw.get("command") if isinstance(raw, Mapping) else None
        shown = {"command": _command(command) or title}
        folder = raw.get("cwd") if isinstance(raw, Mapping) else None
        return {**shown, "cwd": folder} if isinstance(folder, str) and folder != workdir else shown
    changes = [one for one in call.get("content") or () if isinstance(one, Mapping) and one.get("type") == "diff"]
    paths = [str(one.get("path")) for one in (*changes, *(call.get("locations") or ())) if isinstance(one, Mapping)]
    found: dict[str, Any] = {"path": paths[0]} if paths else {}
    found["title"] = title
    if len(set(paths)) > 1:
        found["paths"] = list(dict.fromkeys(paths))
    if changes:
        found["changes"] = [{name: one.get(name) for name in ("path", "oldText", "newText")} for one in changes]
    elif text := text_of(call.get("content")):
        found["details"] = text
    return found


def _command(command: Any) -> str:
    if isinstance(command, list) and len(command) == 3 and command[1] in SHELLS:
        return str(command[2])
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def _option(options: Any, wanted: str) -> str | None:
    """The option of this kind: never one that is remembered, which would decide more than was asked."""
    for option in options if isinstance(options, list) else ():
        if isinstance(option, Mapping) and option.get("kind") == wanted:
            return str(option.get("optionId"))
    return None
