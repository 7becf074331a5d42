"""A turn of OpenCode on the warm server beside one by `opencode run`, both real, with a scripted model.

Registered in `__main__` as a part; `.venv/opencode` must be installed (`make dev`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from windlass.core.events import AgentTold

__all__ = ["WarmTurns", "warm_turns"]

BINARY = Path(".venv/opencode/opencode")
ROUNDS = 5


class WarmTurns(NamedTuple):
    warm: float
    """Seconds of the second and later turns on the server, median."""
    alone: float
    """Seconds of a turn by `opencode run`, median."""

    @property
    def ratio(self) -> float:
        return self.alone / self.warm


def warm_turns(folder: Path, rounds: int = ROUNDS) -> WarmTurns | None:
    """None where OpenCode is not installed."""
    return asyncio.run(_measure(folder.absolute(), rounds)) if BINARY.exists() else None


async def _measure(folder: Path, rounds: int) -> WarmTurns:
    from windlass.process import Supervisor
    from windlass.runners import RunnerDeps
    from windlass.runners.opencode.runner import OpenCodeRunner
    from windlass.settings import RuntimeSettings
    from windlass.testing import Reply, ScriptedModel

    shutil.rmtree(folder, ignore_errors=True)
    (folder / "work").mkdir(parents=True)
    async with Supervisor() as supervisor, ScriptedModel([Reply.say("done", repeat=True)]) as model:
        env = _user(folder / "user", model.openai_url)
        settings = RuntimeSettings(path=str(BINARY.absolute()))
        deps = RunnerDeps(supervisor, env, time.time, folder / "ours", settings)
        serving, alone = OpenCodeRunner(deps), OpenCodeRunner(deps, contract="run")
        await _turn(serving, folder)
        await alone.available()
        pairs = [(await _turn(serving, folder), await _turn(alone, folder)) for _ in range(rounds)]
        await serving.close()
    warm, cold = zip(*pairs, strict=True)
    return WarmTurns(statistics.median(warm), statistics.median(cold))


async def _turn(runner: Any, folder: Path) -> float:
    from windlass.ports import AgentRequest, Brief, Permissions

    request = AgentRequest(
        id="bench:turn:1",
        task="go",
        brief=Brief("", "go"),
        workdir=folder / "work",
        scratch=folder / "scratch",
        env={},
        model="scripted/scripted",
        permissions=Permissions("allow"),
    )
    began = time.perf_counter()
    result = await runner.run(request, _Deaf())
    assert result.success, result
    return time.perf_counter() - began


class _Deaf:
    """A host that nothing is asked of and that keeps nothing."""

    def told(self) -> list[AgentTold]:
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def _user(home: Path, url: str) -> dict[str, str]:
    config = home / ".config" / "opencode"
    config.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "sk-scripted"},
        "models": {"scripted": {}},
    }
    model = "scripted/scripted"
    told = {"provider": {"scripted": provider}, "enabled_providers": ["scripted"], "model": model, "small_model": model}
    (config / "opencode.json").write_text(json.dumps(told))
    disabled = ("MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        **{f"XDG_{name}_HOME": str(home / place) for name, place in folders.items()},
        **{f"OPENCODE_DISABLE_{name}": "1" for name in disabled},
    }
