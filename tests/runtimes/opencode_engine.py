"""An engine that does one turn of OpenCode, to be killed by a test: `opencode_engine.py BENCH`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from hosts import FakeHost
from opencode_fixtures import ALLOWED, MODEL, opencode_binary, user_environment

from windlass.ports import AgentRequest, Brief
from windlass.process import Supervisor
from windlass.runners.opencode import OpenCodeRunner


async def main(base: Path) -> None:
    runner = OpenCodeRunner(
        Supervisor(), path=opencode_binary(), env=user_environment(base / "user"), now=time.time, home=base / "engine"
    )
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
