"""The receivers of notifications in tests, and the rules that lead there."""

from __future__ import annotations

import json
import sqlite3
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

from message_servers import MailServer, Request, WebServer

__all__ = ["Receivers"]

if TYPE_CHECKING:
    from conftest import Project

DESK = """
#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word" >> "$HOME/desk"; done
printf '\\1' >> "$HOME/desk"
"""


class Receivers:
    """Where notifications go: mail, a webhook, a chat (apprise's JSON), a desktop; and the settings that say so."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.mail, self.web = MailServer(), WebServer()
        self.settings = ""

    def rules(self, *rules: dict[str, Any], **more: Any) -> None:
        """Write the user's settings: these rules, and the services `post`, `hook` and `chat`."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
        for rule in rules:
            told = {"recipients": ["ana@example.com"]} if rule["to"] == "post" else {}
            lines += ["[[notify]]", *(f"{name} = {json.dumps(value)}" for name, value in {**told, **rule}.items())]
        lines += [
            "[messages.services.post]",
            f'smtp = "localhost:{self.mail.port}"',
            'sender = "Windlass <w@example.com>"',
            'security = "none"',
            "[messages.services.hook]",
            f'url = "http://localhost:{self.web.port}/hook"',
            "[messages.services.chat]",
            f'url = "json://localhost:{self.web.port}/chat"',
        ]
        self.settings = "\n".join(lines) + "\n"
        self.project.user_file("config.toml", self.settings)

    def add(self, text: str) -> None:
        self.settings += text
        self.project.user_file("config.toml", self.settings)

    def desktop(self) -> dict[str, str]:
        """Put a program for desktop notifications in place; gives the environment that finds it."""
        program = self.project.user / "bin" / "notify-send"
        program.parent.mkdir()
        program.write_text(DESK.lstrip())
        program.chmod(0o755)
        return {"PATH": f"{program.parent}:{self.project.env['PATH']}", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/none"}

    @property
    def mails(self) -> list[EmailMessage]:
        return [mail.parsed for mail in self.mail.mails]

    @property
    def posted(self) -> list[Request]:
        return [one for one in self.web.requests if one.path == "/hook"]

    @property
    def hooks(self) -> list[dict[str, Any]]:
        """What was posted to the webhook."""
        return [json.loads(one.body) for one in self.posted]

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.web.requests if one.path == "/chat"]

    @property
    def desk(self) -> list[list[str]]:
        """The arguments of each notification on the desktop."""
        file = self.project.user / "desk"
        shown = file.read_text().split("\1") if file.exists() else []
        return [one.split("\0")[:-1] for one in shown if one]

    def outbox(self) -> list[tuple[str, str, str]]:
        """Kind, place and status of each note, oldest first."""
        db = sqlite3.connect(self.project.home / "windlass.db", timeout=30)
        try:
            return db.execute("SELECT kind, destination, status FROM notes ORDER BY number").fetchall()
        finally:
            db.close()

    def executions(self, kind: str) -> list[str]:
        """The executions that have a note of that kind."""
        db = sqlite3.connect(self.project.home / "windlass.db", timeout=30)
        try:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone() is None:
                return []
            return [name for (name,) in db.execute("SELECT execution FROM notes WHERE kind = ?", (kind,))]
        finally:
            db.close()

    def bring_forward(self) -> None:
        """Make notes that are due later due now."""
        db = sqlite3.connect(self.project.home / "windlass.db", timeout=30)
        with db:
            db.execute("UPDATE notes SET due = at WHERE status = 'waiting'")
        db.close()
