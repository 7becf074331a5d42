"""A real OpenCode for tests, with a home of its own, that talks to a scripted model.

`Bench` is one runner and its user: a fresh HOME, settings whose only provider is the scripted model at a fixed port,
and requests in folders of their own. Servers take seconds to start, so a module's tests share one bench, and each test
serves its own script at that port.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from begun_programs import without_forks
from hosts import FakeHost, deps
from ports import KeptPort

from windlass.ports import AgentRequest, Brief, Permissions
from windlass.process import Supervisor
from windlass.runners.opencode.runner import OpenCodeRunner
from windlass.testing import Reply, ScriptedModel

__all__ = [
    "ALLOWED",
    "MODEL",
    "PRICED",
    "SEEING",
    "Bench",
    "needs_opencode",
    "opencode_binary",
    "prepare_user",
    "settings",
    "user_environment",
]

MODEL = "scripted/scripted"
SEEING = "scripted/seeing"
"""A model that takes images."""
PRICED = "scripted/priced"
"""A model whose price is in OpenCode's settings: dollars for a million tokens in and out."""
PRICE = {"input": 1000, "output": 2000}
ENGINE_HAS = {"BANK_PASSWORD": "hidden", "GROQ_API_KEY": "named", "OPENCODE_SERVER_PASSWORD": "theirs"}
"""What stands in the engine's environment, too. OpenCode is to have the second of them alone."""
STEP_HAS = {"EXTRA": "asked for"}
"""What a step's own environment has."""
WINDOW = {"context": 1_000_000, "output": 32_000}
IMAGES_TOO = {"input": ["text", "image"], "output": ["text"]}
ALLOWED = Permissions(mode="allow")
HERE = Path(__file__).resolve().parents[2]


def opencode_binary() -> str | None:
    """The program under test: WINDLASS_TEST_OPENCODE, or what `make dev` has installed, whose answers are kept."""
    if told := os.environ.get("WINDLASS_TEST_OPENCODE"):
        return told
    installed = HERE / ".venv" / "opencode" / "opencode"
    return str(Path(__file__).with_name("opencode")) if installed.exists() else None


needs_opencode = pytest.mark.skipif(opencode_binary() is None, reason="no OpenCode: make dev installs it")


def settings(base_url: str, **more: Any) -> dict[str, Any]:
    """Settings with one provider that needs no network, and nothing else."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": base_url, "apiKey": "sk-scripted"},
        "models": {
            "scripted": {"name": "Scripted", "limit": WINDOW},
            "seeing": {"name": "Seeing", "limit": WINDOW, "attachment": True, "modalities": IMAGES_TOO},
            "priced": {"name": "Priced", "limit": WINDOW, "cost": PRICE},
        },
    }
    return {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"scripted": provider},
        "enabled_providers": ["scripted"],
        "model": MODEL,
        "small_model": MODEL,
        **more,
    }


def prepare_user(user: Path) -> None:
    """Make the folders of a user. OpenCode's package of plugins seems to be there: else every start asks npm for it."""
    for name in (".config/opencode/node_modules", ".local/share", ".local/state", ".cache", "tmp"):
        (user / name).mkdir(parents=True, exist_ok=True)
    needs = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (user / ".config/opencode/package.json").write_text(json.dumps(needs))
    (user / ".config/opencode/package-lock.json").write_text(json.dumps({"packages": {"": needs}}))


def user_environment(user: Path) -> dict[str, str]:
    """The environment of a user who has nothing but a home, and is not asked for any download."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "XDG_CONFIG_HOME": str(user / ".config"),
        "XDG_DATA_HOME": str(user / ".local/share"),
        "XDG_STATE_HOME": str(user / ".local/state"),
        "XDG_CACHE_HOME": str(user / ".cache"),
        "TMPDIR": str(user / "tmp"),
        "LANG": "C.UTF-8",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


class Bench:
    """One runner with a user of its own."""

    def __init__(
        self, base: Path, *, binary: str | None = None, supervisor: Supervisor | None = None, **how: Any
    ) -> None:
        self.base = base
        self.user = base / "user"
        self._kept = KeptPort()
        self.port = self._kept.number
        prepare_user(self.user)
        self.configure()
        self.supervisor = supervisor or Supervisor()
        self._how = {"path": binary or opencode_binary(), **how}
        self.runner = self.another_runner()
        self._count = 0

    @property
    def env(self) -> dict[str, str]:
        return {**user_environment(self.user), **ENGINE_HAS}

    def configure(self, **more: Any) -> None:
        """The user's own settings."""
        text = json.dumps(settings(f"http://127.0.0.1:{self.port}/v1", **more))
        (self.user / ".config/opencode/opencode.json").write_text(text)

    def another_runner(self, **how: Any) -> OpenCodeRunner:
        words: dict[str, Any] = {"env": self.env, "home": self.base / "ours", **self._how, **how}
        own = {name: words.pop(name) for name in ("contract", "retries") if name in words}
        return OpenCodeRunner(deps(self.supervisor, **words), **own)

    def runner_beside(self, **how: Any) -> OpenCodeRunner:
        """Another runner that works on the servers of the first one: a start takes seconds."""
        made = self.another_runner(**how)
        made._pool = self.runner._pool
        return made

    def model(self, *script: Reply) -> ScriptedModel:
        return ScriptedModel(script, port=self.port)

    def request(self, prompt: str, *, workdir: Path | None = None, system: str = "", **how: Any) -> AgentRequest:
        self._count += 1
        folder = workdir or self.folder()
        words: dict[str, Any] = {"model": MODEL, "permissions": ALLOWED, "env": STEP_HAS, **how}
        return AgentRequest(
            id=f"execution:step:{self._count}",
            task=prompt,
            brief=Brief(system, prompt),
            workdir=folder,
            scratch=self.base / "scratch" / str(self._count),
            **words,
        )

    def folder(self, files: Mapping[str, str] | None = None) -> Path:
        """A new folder to work in."""
        self._count += 1
        folder = self.base / f"work-{self._count}"
        folder.mkdir()
        for name, text in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    async def warm(self) -> None:
        """Have the server started, which takes long on a busy machine."""
        async with self.model(Reply.say("warm")):
            result = await self.runner.run(self.request("warm up"), FakeHost())
        assert result.success, result

    def processes(self, mark: str) -> set[int]:
        """Living processes of this bench's user whose command line has this text in it."""
        found = set()
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):  # it has ended; it is no process
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                ours = f"HOME={self.user}".encode() in (entry / "environ").read_bytes().split(b"\0")
                if mark in command and ours and state not in "ZX":
                    found.add(int(entry.name))
        return found

    @property
    def servers(self) -> set[int]:
        return without_forks(self.processes(" serve --hostname 127.0.0.1"))

    async def close(self) -> None:
        await self.runner.close()
        await self.supervisor.close()
        self._kept.close()
        shutil.rmtree(self.user / ".cache", ignore_errors=True)
