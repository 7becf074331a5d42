"""Find the installed OpenCode and its contract, by asking the program itself, never by a guess (A3).

Three are known: `serve` (a server that is kept warm), `run` (a process for each turn, JSON events on stdout), and
`legacy` (the older program: `-p … -f json -q`). The answer is kept for as long as the file stays the same.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from windlass.ports import Health
from windlass.process import ProcessLost, SpawnError, Supervisor
from windlass.runtimes import OPEN_CODE

__all__ = ["Contract", "OpenCodeProgram", "Probe"]

Contract = Literal["serve", "run", "legacy"]

PATIENCE = 60.0
"""Seconds in which a program must say its version. It takes one; a busy machine takes longer."""
MOST = 1 << 20
"""Bytes of its answer that are looked at."""
VERSION = re.compile(
    r"^\s*(?:opencode\s+)?(?:version\s+)?v?(\d+\.\d+[\w.+-]*|unknown|dev|local)\s*$", re.IGNORECASE | re.MULTILINE
)
SIGNS: Mapping[Contract, tuple[str, ...]] = {
    "serve": (r"^\s*opencode serve\b",),
    "run": (r"^\s*opencode run\b",),
    "legacy": (r"(^|\s)-p, --prompt\b", r"(^|\s)-f, --output-format\b", r"(^|\s)-q, --quiet\b"),
}
"""Patterns in the help of a program that speaks a contract, the best contract first."""


class OpenCodeProgram(NamedTuple):
    path: str
    version: str
    contract: Contract


class Probe:
    """Looks for the program, and asks it."""

    def __init__(
        self, supervisor: Supervisor, path: str | None, env: Mapping[str, str], cwd: Path, forced: Contract | None
    ) -> None:
        self._supervisor, self._path, self._env, self._cwd = supervisor, path, env, cwd
        self._forced = forced
        self._lock = asyncio.Lock()
        self._known: dict[tuple[str, int, int], OpenCodeProgram | Health] = {}

    def installed(self) -> Health:
        """Check that there is a program, without starting it."""
        path = self._located()
        if path is None:
            return Health(False, "opencode is not on PATH", OPEN_CODE.install)
        return Health(True, path) if os.path.exists(path) else Health(False, f"{path}: no such file", OPEN_CODE.install)

    def _located(self) -> str | None:
        return self._path or shutil.which("opencode", path=self._env.get("PATH", os.defpath))

    async def program(self) -> OpenCodeProgram | Health:
        """Return the program to use, or the problem with it."""
        path = self._located()
        if path is None:
            return Health(False, "opencode is not on PATH", OPEN_CODE.install)
        try:
            stat = os.stat(path)
        except OSError as error:
            return Health(False, f"{path}: {(error.strerror or str(error)).lower()}", OPEN_CODE.install)
        key = (path, stat.st_mtime_ns, stat.st_size)
        async with self._lock:
            if key not in self._known:
                self._known[key] = await self._ask(path)
            return self._known[key]

    async def _ask(self, path: str) -> OpenCodeProgram | Health:
        said = await self._said(path, "--version")
        if isinstance(said, Health):
            return said
        version = VERSION.search(said)
        if version is None:
            return Health(False, f"{path} is not OpenCode: --version printed {_quoted(said)}", OPEN_CODE.install)
        help = await self._said(path, "--help")
        if isinstance(help, Health):
            return help
        spoken = [name for name, signs in SIGNS.items() if all(re.search(sign, help, re.MULTILINE) for sign in signs)]
        if not spoken:
            return Health(
                False, f"{path} ({version[1]}) speaks no contract that we know: {_quoted(help)}", OPEN_CODE.install
            )
        if self._forced is not None and self._forced not in spoken:
            return Health(
                False, f"{path} ({version[1]}) has no `{self._forced}`, only {', '.join(spoken)}", OPEN_CODE.install
            )
        return OpenCodeProgram(path, version[1], self._forced or spoken[0])

    async def _said(self, path: str, argument: str) -> str | Health:
        try:
            process = await self._supervisor.spawn([path, argument], cwd=str(self._cwd), env=self._env)
        except SpawnError as error:
            return Health(False, error.message, error.advice[0] if error.advice else OPEN_CODE.install)
        try:
            async with asyncio.timeout(PATIENCE):
                out, err = await asyncio.gather(_some(process.stdout), _some(process.stderr))
                end = await process.wait()
        except TimeoutError:
            return Health(False, f"{path} {argument} did not answer within {PATIENCE:g} s", OPEN_CODE.install)
        except ProcessLost as error:
            return Health(False, error.message)
        finally:
            await asyncio.shield(process.stop(0))
        said = f"{out}\n{err}"
        if end.code != 0:
            how = f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
            return Health(False, f"{path} {argument} ended with {how}: {_quoted(said)}", OPEN_CODE.install)
        return said


async def _some(reader: asyncio.StreamReader) -> str:
    """Read the output up to a limit; the rest is read and dropped, so that a full pipe does not block the program."""
    kept = b""
    while piece := await reader.read(65536):
        kept = (kept + piece)[:MOST]
    return kept.decode(errors="replace")


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 120 else f"{line[:119]}…") if line else "nothing"
