"""The browser tools of one engine, in a folder, and a short way to use them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from loopback import reply
from process_probes import command_line, stat

from windlass.errors import Failure, ToolError
from windlass.ports import Call, Tool
from windlass.process import Supervisor
from windlass.settings import BrowserSettings, NetworkSettings
from windlass.tools.browser import BrowserTools
from windlass.tools.browser.chromium import NAMES

__all__ = ["SHARED", "Web", "browsers", "drivers", "find_chromium", "page"]

SHARED = pytest.mark.asyncio(loop_scope="session")
"""For a test with the fixture `shared`: on the loop of the session, as the browser is."""


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def page(body: str, status: int = 200, **headers: str) -> bytes:
    return reply(
        f"<!doctype html><title>A title</title><body>{body}</body>", status, content_type="text/html", **headers
    )


def _running(words: str, also: str = "") -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if words in (line := command_line(pid)) and also in line]


def browsers(folder: Path) -> list[int]:
    """Every process of a browser whose profile is in the folder."""
    return _running(f"--user-data-dir={folder}")


def drivers(parent: int) -> list[int]:
    """playwright's drivers that a process has started."""
    found = _running("playwright", "run-driver")
    return [pid for pid in found if stat(pid)[1:2] == [str(parent)]]


class Web:
    def __init__(
        self,
        folder: Path,
        temporary: Path,
        private: tuple[str, ...],
        *,
        lists: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.folder, self.temporary = folder, temporary
        self.supervisor = Supervisor()
        taken = {name: more.pop(name) for name in ("path", "pages", "timeout") if name in more}
        self.made = BrowserTools(
            BrowserSettings(**taken),
            NetworkSettings(private=private, **(lists or {})),
            self.supervisor,
            {"PATH": os.environ["PATH"]},
            **more,
        )
        self.tools: dict[str, Tool] = {tool.name: tool for tool in self.made.tools()}
        self.env: dict[str, str] = {}
        self.said: list[str] = []

    def call(self, execution: str = "e-1") -> Call:
        (self.folder / "work").mkdir(exist_ok=True)
        return Call(
            execution=execution,
            step="a",
            attempt=1,
            workdir=self.folder / "work",
            folder=self.folder / "home" / "executions" / execution,
            processes=self.supervisor,
            env=self.env,
            output=lambda stream, text: self.said.append(text),
        )

    async def use(self, tool: str, execution: str = "e-1", /, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = await self.tools[f"browser.{tool}"].execute(arguments, self.call(execution))
        return result

    async def failure(self, tool: str, execution: str = "e-1", /, **arguments: Any) -> Failure:
        with pytest.raises(ToolError) as caught:
            await self.use(tool, execution, **arguments)
        return caught.value.failure

    async def text(self, execution: str = "e-1", /, **arguments: Any) -> str:
        return str((await self.use("text", execution, **arguments))["text"])

    def file(self, result: Mapping[str, Any]) -> Path:
        return self.folder / "home" / str(result["path"])

    async def close(self) -> None:
        await self.made.close()
        await self.supervisor.close()
