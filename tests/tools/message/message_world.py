"""A short way to use the message tools; the servers that they write to are in `message_servers.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from message_servers import Mail, MailServer, Request, WebServer, certificate

from windlass.errors import Failure, ToolError
from windlass.ports import Call, Tool
from windlass.settings import MessageSettings
from windlass.tools.message import message_tools

__all__ = ["Mail", "MailServer", "Request", "WebServer", "World", "certificate"]

NOW = 1_700_000_000.0


class World:
    """A working directory, settings, an environment and the book; and the tools made from them."""

    def __init__(self, base: Path) -> None:
        self.work = base / "work"
        self.work.mkdir()
        self.book = base / "home" / "messages.db"
        self.env: dict[str, str] = {}
        self.services: dict[str, Any] = {}
        self.recipients = ("ana@example.com", "*@team.test")
        self.more: dict[str, Any] = {}
        self.said: list[str] = []
        self.now: Callable[[], float] = lambda: NOW

    def mail(self, server: MailServer, **more: Any) -> None:
        told = {"smtp": f"localhost:{server.port}", "sender": "Wind Lass <w@example.com>", "security": "none"}
        self.services["mail"] = {**told, **more}

    def tools(self) -> dict[str, Tool]:
        told = {"services": self.services, "recipients": self.recipients, **self.more}
        made = message_tools(MessageSettings.model_validate(told), self.env, self.now, book=self.book)
        return {tool.name: tool for tool in made}

    def call(self, step: str = "s", attempt: int = 1) -> Call:
        return Call(
            execution="x1",
            step=step,
            attempt=attempt,
            workdir=self.work,
            folder=self.work.parent / "state",
            processes=None,  # type: ignore[arg-type]  # messages start none
            output=lambda stream, text: self.said.append(text),
        )

    async def use(self, tool: str, *, step: str = "s", attempt: int = 1, **arguments: Any) -> Any:
        return await self.tools()[tool].execute(arguments, self.call(step, attempt))

    async def email(self, *, step: str = "s", attempt: int = 1, **arguments: Any) -> Any:
        told = {"to": "ana@example.com", "subject": "Hello", "text": "Good morning", **arguments}
        return await self.use("message.email", step=step, attempt=attempt, **told)

    async def failing(self, tool: str, **arguments: Any) -> Failure:
        try:
            result = await (self.email(**arguments) if tool == "message.email" else self.use(tool, **arguments))
        except ToolError as error:
            return error.failure
        raise AssertionError(f"it did not fail: {result}")
