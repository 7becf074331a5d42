"""A world for the real `claude`: a scripted model, a home of its own, and a way to see what it leaves running.

The binary is the one that the claude-agent-sdk carries; nothing outside the test's folder and loopback is touched.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import deps

from windlass.ports import AgentRequest, Brief, Permissions
from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.runners.claude.runner import ClaudeCodeRunner
from windlass.testing.scripted.conversation import ReplyScript
from windlass.testing.scripted_model import ScriptedModel

__all__ = ["MODEL", "SPEAKS", "VERSION", "Home", "World", "bearing", "claude_world", "program"]

MODEL = "claude-sonnet-4-5"
MARK = "WINDLASS_TEST_MARK"
ALLOW = Permissions(mode="allow")


VERSION = "#!/bin/sh\n[ \"$1\" = --version ] && { echo '2.1.300 (Claude Code)'; exit; }\n"
SPEAKS = f"""#!{sys.executable}
import json, os, signal, sys, time
if sys.argv[1] == "--version":
    print("2.1.300 (Claude Code)")
    sys.exit()
def say(**message): print(json.dumps(message), flush=True)
request = json.loads(sys.stdin.readline())
say(type="control_response", response={{"subtype": "success", "request_id": request["request_id"], "response": {{}}}})
sys.stdin.readline()
"""
"""Answers the SDK's first question and takes the prompt."""


class Home:
    """Where one test's `claude` lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workdir = folder / "work"
        self.scratch = folder / "scratch"
        self.config = folder / "config"
        for path in (self.workdir, self.config, folder / "tmp"):
            path.mkdir(exist_ok=True)

    @property
    def base(self) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"), "LANG": "C.UTF-8"}

    def engine(self, url: str) -> dict[str, str]:
        """An engine's environment, with things in it that are no business of a `claude`."""
        return {
            **self.base,
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "SECRET_OF_THE_ENGINE": "hidden",
        }


@dataclass
class World:
    home: Home
    model: ScriptedModel
    supervisor: Supervisor
    runner: ClaudeCodeRunner
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _asked: int = 0

    def request(self, prompt: str = "do it", **more: Any) -> AgentRequest:
        self._asked += 1
        given: dict[str, Any] = {
            "id": f"run:step:{self._asked}",
            "task": prompt,
            "brief": Brief("You are a tester.", prompt),
            "workdir": self.home.workdir,
            "scratch": self.home.scratch,
            "env": {**self.home.base, MARK: self.mark, "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"},
            "model": MODEL,
            "permissions": ALLOW,
        }
        return AgentRequest(**{**given, **more})

    def left(self) -> list[str]:
        """The processes of this world's runs that live, by their command lines."""
        return [command_line(pid) for pid in bearing(self.mark)]


@asynccontextmanager
async def claude_world(
    folder: Path,
    script: ReplyScript = (),
    *,
    path: str | None = None,
    env: Mapping[str, str] | None = None,
    prices: Prices | None = None,
) -> AsyncIterator[World]:
    home = Home(folder)
    async with ScriptedModel(script) as model, Supervisor() as supervisor:
        engine = {**home.engine(model.url), **(env or {})}
        runner = ClaudeCodeRunner(deps(supervisor, path=path, env=engine, prices=prices))
        yield World(home, model, supervisor, runner)


def program(path: Path, text: str) -> str:
    """A stand-in for a broken `claude`."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def bearing(mark: str) -> list[int]:
    """Every living process with this mark in its environment. A zombie has none."""
    wanted = f"{MARK}={mark}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and wanted in _read(name, "environ")]


def command_line(pid: int) -> str:
    return b" ".join(_read(str(pid), "cmdline")).decode(errors="replace")


def _read(pid: str, what: str) -> list[bytes]:
    try:
        return Path("/proc", pid, what).read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended, or is none of ours
