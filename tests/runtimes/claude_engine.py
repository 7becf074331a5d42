"""An engine in a process of its own that runs one turn, for a test that kills it. Arguments: folder, address."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from claude_fixtures import ALLOW, MARK, MODEL, Home
from hosts import FakeHost, deps

from windlass.ports import AgentRequest, Brief
from windlass.process import Supervisor
from windlass.runners.claude.runner import ClaudeCodeRunner


async def main(folder: Path, url: str) -> None:
    home = Home(folder)
    async with Supervisor() as supervisor:
        runner = ClaudeCodeRunner(deps(supervisor, env=home.engine(url)))
        request = AgentRequest(
            id="run:step:1",
            task="wait",
            brief=Brief("", "wait"),
            workdir=home.workdir,
            scratch=home.scratch,
            env={**home.base, MARK: os.environ[MARK]},
            model=MODEL,
            permissions=ALLOW,
        )
        await runner.run(request, Journal(folder))


class Journal(FakeHost):
    """Keeps the session's name, as an engine's journal does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def session(self, session: str) -> None:
        (self._folder / "session").write_text(session)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
