"""`transcript`: an agent's conversation, as Markdown or JSON, finished or as it goes on (K8)."""

from __future__ import annotations

import shlex
from typing import Annotated

import msgspec

from windlass.cli.command import Group, Option
from windlass.cli.names import AgentStepName, ExecutionId
from windlass.cli.session import AsJsonLines, CommandEnd, Home, out, out_lines, say, with_engine
from windlass.core.transcript import TranscriptEntry, as_markdown
from windlass.engine.engine import Engine
from windlass.errors import UsageError

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(transcript)


def transcript(
    execution: ExecutionId,
    step: AgentStepName = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as it goes on")] = False,
    as_json: AsJsonLines = False,
    home: Home = None,
) -> None:
    """Show an agent's conversation: prompts, replies, calls and results, whole. Markdown, or one JSON object a line."""

    async def work(engine: Engine) -> int:
        empty, system = True, ""
        name = step or await _only_agent(engine, execution)
        if follow:
            async for entry in engine.follow_transcript(execution, name):
                empty, system = False, _show(entry, as_json, system)
        else:
            for entry in await engine.transcript(execution, name):
                empty, system = False, _show(entry, as_json, system)
        if empty:
            say(f"the agent of step {name} has not begun yet")
        return 0

    raise CommandEnd(with_engine(work, home))


async def _only_agent(engine: Engine, execution: str) -> str:
    state = await engine.state(execution)
    agents = [step.id for step in state.steps.values() if step.spec.is_agent and not step.children]
    if len(agents) != 1:
        names = f", {', '.join(agents[:5])}{', …' if len(agents) > 5 else ''}" if agents else ""
        raise UsageError(
            f"execution {state.id} has {len(agents) or 'no'} agents{names}" + (": name one" if agents else ""),
            advice=(f"windlass transcript {state.id} {shlex.quote(agents[0])}",)
            if agents
            else (f"see its output: windlass logs {state.id}",),
        )
    return agents[0]


def _show(entry: TranscriptEntry, as_json: bool, system: str) -> str:
    """Print one entry; returns the system prompt that was shown last."""
    if as_json:
        out(msgspec.json.encode(entry).decode())
    elif block := as_markdown(entry, system):
        out_lines(block)
    return entry.system or system
