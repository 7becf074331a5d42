"""The ways out: the desktop's own notifications, the bell of this terminal, and the message services.

Everything but the bell leaves through `tools.message.once`, whose record is on disk before and after: so a second try,
in this process or the next, finds out what became of the first. A webhook is posted again with the same
`Idempotency-Key` if its outcome is not known; a mail, a chat message or a desktop notification never is.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windlass.errors import Category, ToolError
from windlass.ports import Call, Note, Tool
from windlass.process import Supervisor
from windlass.settings import MessageSettings, NotifyRule
from windlass.tools.message import message_tools
from windlass.tools.message.chat import channel
from windlass.tools.message.once import MessageLog, OutgoingMessage
from windlass.tools.message.services import Services, address_problem
from windlass.tools.message.webhook import target
from windlass.tools.threads import in_thread

__all__ = ["Channels", "desktop_command"]

LONGEST_WAIT = 10.0
"""Seconds that the desktop's program may take."""
_LEVELS = {"failed": "failure", "approval": "warning", "budget": "warning", "quota": "warning", "done": "success"}
_SEES = ("PATH", "HOME", "USER", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
# Text comes through stdin, as JSON in ASCII: nothing of it is ever part of the script.
_TOAST = (
    "$n = [Console]::In.ReadToEnd() | ConvertFrom-Json; "
    "[void][Windows.UI.Notifications.ToastNotificationManager,Windows.UI.Notifications,ContentType=WindowsRuntime]; "
    "$x = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent(1); "
    "$t = $x.GetElementsByTagName('text'); [void]$t.Item(0).AppendChild($x.CreateTextNode($n.title)); "
    "[void]$t.Item(1).AppendChild($x.CreateTextNode($n.text)); "
    "[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier('Windlass')"
    ".Show([Windows.UI.Notifications.ToastNotification]::new($x))"
)


class DesktopCommand(NamedTuple):
    arguments: tuple[str, ...]
    takes_stdin: bool = False
    """Title and text are given as JSON on stdin, not as the last two arguments."""


def desktop_command(env: Mapping[str, str] = os.environ) -> DesktopCommand | None:
    """The program that shows notifications on this machine; None where there is none, or no desktop."""
    path = env.get("PATH")
    if sys.platform == "darwin" and (apple := shutil.which("osascript", path=path)):
        return DesktopCommand((apple, *(word for line in _APPLE for word in ("-e", line)), "--"))
    seen = env.get("DBUS_SESSION_BUS_ADDRESS") or Path(f"/run/user/{os.getuid()}/bus").exists()
    if seen and (program := shutil.which("notify-send", path=path)):
        return DesktopCommand((program, "--app-name=Windlass", "--"))
    if env.get("WSL_DISTRO_NAME") and (shell := shutil.which("powershell.exe", path=path)):
        return DesktopCommand((shell, "-NoProfile", "-NonInteractive", "-Command", _TOAST), takes_stdin=True)
    return None


class Channels:
    """Delivers notes. A ToolError means that the other side has not taken it; `OutcomeUnknown` that nobody knows."""

    def __init__(
        self,
        messages: MessageSettings,
        rules: tuple[NotifyRule, ...],
        home: Path,
        processes: Supervisor,
        now: Callable[[], float],
        env: Mapping[str, str] = os.environ,
    ) -> None:
        # Mail of a rule goes to the rule's recipients, whom agents may not write to for that.
        recipients = tuple(dict.fromkeys(address for rule in rules for address in rule.recipients))
        self._settings = messages.model_copy(update={"recipients": recipients})
        self._home, self._processes, self._now, self._env = home, processes, now, env
        self._book = home / "messages.db"
        self._services = Services(self._settings, env)
        self._tools: dict[str, Tool] = {
            tool.name: tool for tool in message_tools(self._settings, env, now, book=self._book)
        }

    def secrets(self) -> dict[str, str]:
        """Values that must be in no notification, by name."""
        return self._services.secrets()

    def repeats(self, note: Note) -> bool:
        """Tell whether the other side knows a repetition by its key, so that a second try is safe."""
        return self._way(note.to) == "message.webhook"

    async def deliver(self, note: Note, tries: int) -> str:
        """Hand the note over, unless that has been done; returns where it went, in words."""
        if note.to == "bell":
            os.write(sys.stderr.fileno(), b"\a")  # past whatever makes control characters visible
            return "rung"
        way = self._way(note.to)
        # The record takes a later attempt for a repetition that is wanted: only a webhook's is.
        call = self._call(note, tries if way == "message.webhook" else 1)
        if way == "desktop":
            message = OutgoingMessage(MessageLog(self._book), self._now, call, "desktop", [note.title, note.text])
            known = message.known()
            result = known or await message.hand_over(lambda: self._show(note))
        else:
            result = await self._tools[way].execute(self._arguments(way, note), call)
        return _said(way, result)

    async def check(self, rule: NotifyRule) -> str:
        """Say how a rule's messages would leave. Raises ToolError where they could not; sends nothing."""
        if rule.to == "bell":
            return "the terminal of windlass run"
        if rule.to == "desktop":
            return f"desktop: {self._desktop().arguments[0]}"
        way = self._way(rule.to)
        for address in rule.recipients:
            if (problem := address_problem(address)) is not None:
                raise ToolError(f"{address[:80]!r} {problem}", category=Category.CONFIGURATION)
        if way == "message.email":
            self._services.mail_server(self._services.named(rule.to, "smtp"))
            return f"{rule.to}: mail to {', '.join(rule.recipients)}"
        if way == "message.webhook":
            service = self._services.named(rule.to, "url")
            target(service, self._services.url(service))
            if (chat := await self._chat_behind(rule.to)) is not None:
                raise ToolError(
                    f"{rule.to}: this is an address of {chat}, and an http(s) address is taken for a webhook",
                    category=Category.CONFIGURATION,
                    advice=(f"write it in apprise's form: https://appriseit.com/services/{chat.lower()}/",),
                )
            return f"{rule.to}: a webhook"
        return f"{rule.to}: {(await self._channel(rule.to)).kind}"

    def _way(self, to: str) -> str:
        if to == "desktop":
            return to
        if self._settings.services[to].smtp is not None:
            return "message.email"
        url = self._services.url(self._services.named(to, "url"))
        return "message.webhook" if url.lower().startswith(("http://", "https://")) else "message.send"

    async def _channel(self, to: str) -> Any:
        service = self._services.named(to, "url")
        url = self._services.url(service)
        return await in_thread(lambda: channel(service, url))

    async def _chat_behind(self, to: str) -> str | None:
        """The chat service that an http(s) address belongs to; None for any other address."""
        try:
            return str((await self._channel(to)).kind)
        except ToolError:
            return None  # or apprise is not installed

    def _arguments(self, way: str, note: Note) -> dict[str, Any]:
        if way == "message.webhook":
            return {"service": note.to, "data": {**note.data, "text": note.text}}
        words: dict[str, Any] = {"service": note.to, "text": note.text, "literal": True}
        if way == "message.email":
            return {**words, "to": [note.recipient], "subject": note.title}
        return {**words, "title": note.title, "level": _LEVELS.get(note.kind, "info")}

    def _call(self, note: Note, attempt: int) -> Call:
        return Call(
            execution=note.execution or "home",
            step=f"notify {note.key}",
            attempt=attempt,
            workdir=self._home,
            folder=self._home / "executions" / "notify",
            processes=self._processes,
        )

    def _desktop(self) -> DesktopCommand:
        if (command := desktop_command(self._env)) is None:
            raise ToolError(
                "no program here shows desktop notifications, or there is no desktop",
                category=Category.CONFIGURATION,
                advice=("install it: apt install libnotify-bin (notify-send)",),
            )
        return command

    async def _show(self, note: Note) -> dict[str, Any]:
        command = self._desktop()
        given = json.dumps({"title": note.title, "text": note.text}).encode() if command.takes_stdin else b""
        words = () if command.takes_stdin else (note.title, note.text)
        child = await asyncio.create_subprocess_exec(
            *command.arguments,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={name: self._env[name] for name in _SEES if name in self._env},
        )
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                _, said = await child.communicate(given)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            reason = said.decode("utf-8", "replace").strip().partition("\n")[0][:300]
            raise ToolError(f"{command.arguments[0]} failed: {reason}", category=Category.TRANSIENT)
        return {"kind": "desktop"}


def _said(way: str, result: Mapping[str, Any]) -> str:
    again = ", sent before" if result.get("repeated") else ""
    match way:
        case "message.email":
            return f"{result['code']} {result['response']}{again}"
        case "message.webhook":
            return f"HTTP {result['status']}{again}"
        case "message.send":
            return f"{result['kind']}{again}"
        case _:
            return f"shown{again}"
