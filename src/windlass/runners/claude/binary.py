"""Find the `claude` to run and check that it works.

The user's setting comes first, then `claude` on PATH, then the one that the claude-agent-sdk wheel carries; a setting
that does not work is an error and never passed over. Nothing of the SDK is imported to find it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from windlass.ports import Health
from windlass.process import Exit, Process, ProcessLost, SpawnError, Supervisor
from windlass.runners.claude.command import probing
from windlass.runtimes import CLAUDE_CODE

__all__ = ["GIVES_DATA", "ON_PATH", "VERBATIM", "Binaries", "Binary"]

MINIMUM = (2, 0, 0)
"""Older ones do not speak the protocol of the SDK."""
ON_PATH = "on PATH"
VERBATIM = (2, 1, 248)
"""Older ones expand @paths and slash commands in every prompt, also in generated text."""
GIVES_DATA = (2, 1, 0)
"""Older ones may not know `--json-schema`."""

_NEEDS_SDK = "pip install 'windlass[agents]'"

PATIENCE = 60.0
"""Seconds for `claude --version`. It takes 0.1; a cold disk and a busy machine take longer."""
_MOST = 64 * 1024
_VERSION = re.compile(r"\s*(\d+)\.(\d+)\.(\d+)\S*\s+\(Claude Code\)")


class Binary(NamedTuple):
    path: str
    origin: str
    """The place where it was found, in a person's words."""
    version: tuple[int, int, int]

    @property
    def label(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def detail(self) -> str:
        return f"claude {self.label} at {self.path} ({self.origin})"


class Binaries:
    """Finds the binary and remembers its version until the file changes."""

    def __init__(self, supervisor: Supervisor, path: str | None, env: Mapping[str, str]) -> None:
        self._supervisor, self._path, self._env = supervisor, path, env
        self._known: dict[tuple[str, int, int], tuple[int, int, int]] = {}

    def installed(self) -> Health:
        """Check that there is a binary, without starting it."""
        located = self._located()
        return located if isinstance(located, Health) else Health(True, located[0])

    def _located(self) -> tuple[str, str] | Health:
        package = importlib.util.find_spec("claude_agent_sdk")
        if package is None:
            return Health(False, "the Python package claude-agent-sdk is not installed", _NEEDS_SDK)
        return self._locate(list(package.submodule_search_locations or ()))

    async def find(self) -> Binary | Health:
        """The binary to use, or why there is none."""
        located = self._located()
        if isinstance(located, Health):
            return located
        path, origin = located
        try:
            status = os.stat(path)
        except OSError as error:
            return Health(False, f"{path} ({origin}) cannot be looked at: {error.strerror}", CLAUDE_CODE.install)
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._known:
            version = await self._ask(path, origin)
            if isinstance(version, Health):
                return version
            self._known[key] = version
        binary = Binary(path, origin, self._known[key])
        if binary.version < MINIMUM:
            needed = ".".join(map(str, MINIMUM))
            return Health(False, f"{binary.detail} is too old: {needed} or later is needed", "claude update")
        return binary

    async def logged_in(self, binary: Binary) -> bool:
        """Ask the program if it is logged in; True for older ones, which cannot say."""
        said = await self._said(binary.path, binary.origin, "auth", "status", "--json")
        if isinstance(said, Health):
            return True
        try:
            return bool(json.loads(said[0])["loggedIn"])
        except (ValueError, LookupError, TypeError):
            return True

    def _locate(self, package: list[str]) -> tuple[str, str] | Health:
        if self._path is not None:
            path = os.path.expanduser(self._path)
            found = shutil.which(path, path=self._env.get("PATH"))
            if found is None:
                detail = f"the settings name {self._path} as claude, which is not an executable program"
                return Health(False, detail, "correct the path in the settings, or remove it to use the one on PATH")
            return os.path.abspath(found), "from the settings"
        if found := shutil.which("claude", path=self._env.get("PATH", os.defpath)):
            return os.path.abspath(found), ON_PATH
        for folder in package:
            bundled = os.path.join(folder, "_bundled", "claude")
            if os.access(bundled, os.X_OK):
                return bundled, "carried by claude-agent-sdk"
        return Health(
            False, "there is no claude: not on PATH, and none came with claude-agent-sdk", CLAUDE_CODE.install
        )

    async def _ask(self, path: str, origin: str) -> tuple[int, int, int] | Health:
        said = await self._said(path, origin, "--version")
        if isinstance(said, Health):
            return said
        text, ended = said
        if match := _VERSION.match(text):
            major, minor, patch = (int(number) for number in match.groups())
            return major, minor, patch
        return Health(False, _strange(f"{path} ({origin})", text, ended), f"try it: {path} --version")

    async def _said(self, path: str, origin: str, *arguments: str) -> tuple[str, Exit] | Health:
        """Run the binary and return its output and exit, or why it cannot run."""
        where, command = f"{path} ({origin})", " ".join(arguments)
        process: Process | None = None
        try:
            process = await self._supervisor.spawn([path, *arguments], cwd="/", env=probing(self._env))
            async with asyncio.timeout(PATIENCE):
                said = await _beginning(process.stdout)
                if len(said) > _MOST:
                    await process.stop(grace=0)
                ended = await process.wait()
        except SpawnError as error:
            return Health(False, error.message, "; ".join(error.advice) or CLAUDE_CODE.install)
        except TimeoutError:
            return Health(False, f"{where} says nothing to {command} for {PATIENCE:g} s", f"try it: {path} {command}")
        except ProcessLost as error:
            return Health(False, f"{where}: {error.message}", f"try it: {path} {command}")
        finally:
            if process is not None:
                await process.stop(grace=0)  # returns at once if it has ended
        return said.decode("utf-8", errors="replace"), ended


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """All of the output, or a little more than `_MOST` of it."""
    said = b""
    while len(said) <= _MOST and (chunk := await stream.read(_MOST)):
        said += chunk
    return said


def _strange(where: str, text: str, ended: Exit) -> str:
    how = f"was ended by signal {ended.signal}" if ended.code is None else f"ended with exit code {ended.code}"
    first = text.strip().splitlines()[0][:80] if text.strip() else ""
    if ended.killed:
        return f"{where} is no Claude Code: it floods its output, beginning with {first!r}"
    return f"{where} is not a working Claude Code: --version printed {first!r} and {how}"
