"""Commands that tests run, kill, freeze and run again, and what is in their journals afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forks import Forked, Zygote

from windlass.core import events as ev
from windlass.journal.sqlite import SqliteJournal

__all__ = ["Cli", "Ended", "Home"]


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left behind."""

    code: int
    """Its exit code, negative for a signal."""
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs the real command line in processes forked from one that has imported it already."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._count = 0

    def start(self, home: Home, *argv: str, env: Mapping[str, str] | None = None, largest_file: int = 0) -> Started:
        """Start a command and go on."""
        self._count += 1
        output = home.folder / str(self._count)
        told = {**clean_environment(home), **(env or {})}
        arguments = [*argv, "--home", str(home.path)]
        process = self._zygote.start(arguments, told, home.folder, output, largest_file=largest_file)
        return Started(process, output)

    def run(self, home: Home, *argv: str, env: Mapping[str, str] | None = None, largest_file: int = 0) -> Ended:
        """Run a command to its end, whatever that is."""
        return self.start(home, *argv, env=env, largest_file=largest_file).wait()


@dataclass(frozen=True, slots=True)
class Started:
    process: Forked
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> Ended:
        code = self.process.wait()
        return Ended(code, *(self.output.with_suffix(name).read_text() for name in (".out", ".err")))


def clean_environment(home: Home) -> dict[str, str]:
    """Nothing of the user's own settings, and nothing that makes output different from machine to machine."""
    return {"PATH": os.environ["PATH"], "HOME": str(home.folder), "NO_COLOR": "1", "LANG": "C.UTF-8"}


def run_fresh(home: Home, *argv: str, env: Mapping[str, str] | None = None) -> Ended:
    """`python -m windlass …`, from nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "windlass", *argv, "--home", str(home.path)],
        cwd=home.folder,
        env={**clean_environment(home), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Home:
    """A folder that a plan works in, with its home beside it."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "home"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.yaml"

    @property
    def log(self) -> list[tuple[str, int]]:
        """What the steps did: each writes its name and the number of its attempt."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(step, int(attempt)) for step, attempt in map(str.split, lines)]

    def events(self) -> list[ev.Event]:
        """The events of the only execution in the journal; none if there is no execution."""

        async def read() -> list[ev.Event]:
            journal = SqliteJournal(self.path / "windlass.db")
            try:
                heads = await journal.heads()
                assert len(heads) <= 1
                return [entry.event for entry in await journal.read(heads[0].id)] if heads else []
            finally:
                await journal.close()

        return asyncio.run(read()) if (self.path / "windlass.db").exists() else []
