"""What Windlass adds to one agent turn: the same turn called directly and through an execution, one after the other.

Claude Code is called directly through its own SDK, with the binary that Windlass uses; the model API through the loop
of pydantic-ai. Both speak with the same scripted model, which answers at once, so that what is left is overhead.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import windlass
from windlass.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from pydantic_ai import Agent

__all__ = ["Overhead", "turn_overheads"]

ROUNDS = 7
MODEL = "claude-sonnet-4-5"
QUIET = {
    "ANTHROPIC_API_KEY": "none-needed",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}


class Overhead(NamedTuple):
    runtime: str
    direct: float
    """Seconds of a turn called directly, median."""
    added: float
    """Seconds that Windlass adds, median of the rounds' differences."""

    @property
    def ratio(self) -> float:
        return self.added / self.direct


def turn_overheads(folder: Path) -> Iterator[Overhead]:
    """One measurement for each runtime that is here."""
    home = folder.resolve() / "home"
    home.mkdir(parents=True, exist_ok=True)
    with ScriptedModel(lambda _: Reply.say("Done.")) as model:
        os.environ |= QUIET | {
            "ANTHROPIC_BASE_URL": model.url,
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / "claude"),
        }
        for runtime, direct in (("claude-code", _claude_directly), ("cli", _api_directly)):
            yield asyncio.run(_compare(runtime, direct, folder.resolve()))


async def _compare(runtime: str, direct: Callable[[Path], Awaitable[str]], folder: Path) -> Overhead:
    work = folder / runtime
    work.mkdir(parents=True, exist_ok=True)
    step = {"id": "turn", "prompt": "Say that you are done.", "runtime": runtime, "model": _model(runtime)}
    plan = windlass.Plan.model_validate({"name": "turn", "steps": [step]})
    times: list[tuple[float, float]] = []
    async with windlass.open(folder / f"{runtime}-home") as engine:

        async def through_windlass(_work: Path) -> str:
            state = await (await engine.start(plan, workdir=work)).wait()
            assert state.status == "completed", state.steps["turn"].error
            return str(state.steps["turn"].output)

        for _ in range(ROUNDS + 1):
            times.append((await _timed(direct, work), await _timed(through_windlass, work)))
    kept = times[1:]  # the first round imports and warms up
    return Overhead(
        runtime,
        statistics.median(alone for alone, _ in kept),
        statistics.median(ours - alone for alone, ours in kept),
    )


def _model(runtime: str) -> str:
    return MODEL if runtime == "claude-code" else f"anthropic:{MODEL}"


async def _timed(turn: Callable[[Path], Awaitable[str]], work: Path) -> float:
    began = time.perf_counter()
    said = await turn(work)
    took = time.perf_counter() - began
    assert said.strip() == "Done.", said
    return took


async def _claude_directly(work: Path) -> str:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    options = ClaudeAgentOptions(cwd=work, model=MODEL, setting_sources=["user"], system_prompt=_PRESET)
    said = ""
    async for message in query(prompt="Say that you are done.", options=options):
        if isinstance(message, ResultMessage):
            said = message.result or ""
    return said


_PRESET: Any = {"type": "preset", "preset": "claude_code"}


async def _api_directly(_work: Path) -> str:
    async with _agent().run_stream("Say that you are done.") as stream:
        return await stream.get_output()


@cache
def _agent() -> Agent:
    """Made once: each one reads the certificates to trust, which takes as long as the rest of the turn."""
    from pydantic_ai import Agent

    return Agent(f"anthropic:{MODEL}")
