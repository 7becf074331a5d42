"""An engine that does one turn of OpenCode, to be killed by a test: `opencode_engine.py BENCH`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hosts import FakeHost, deps
from opencode_fixtures import ALLOWED, MODEL, opencode_binary, user_environment

from windlass.ports import AgentRequest, Brief
from windlass.runners.opencode.runner import OpenCodeRunner


async def main(base: Path) -> None:
    runner = OpenCodeRunner(deps(path=opencode_binary(), env=user_environment(base / "user"), home=base / "engine"))
    work = base / "work"
    work.mkdir()
    request = AgentRequest(
        id="a:b:1",
        task="go",
        brief=Brief("", "go"),
        workdir=work,
        scratch=base / "scratch",
        env={},
        model=MODEL,
        permissions=ALLOWED,
    )
    await runner.run(request, FakeHost())


asyncio.run(main(Path(sys.argv[1])))
