"""`transcript`: an agent's conversation, as Markdown or JSON, finished or as it goes on (K8)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from windlass.cli.command import Group, Option
from windlass.cli.names import ExecutionId, StepName
from windlass.cli.session import AsJsonLines, CommandEnd, Home, out, out_lines, say, with_engine
from windlass.core.transcript import TranscriptEntry, as_markdown
from windlass.engine.engine import Engine

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(transcript)


def transcript(
    execution: ExecutionId,
    step: StepName,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as it goes on")] = False,
    as_json: AsJsonLines = False,
    home: Home = None,
) -> None:
    """Show an agent's conversation: prompts, replies, calls and results, whole. Markdown, or one JSON object a line."""

    async def work(engine: Engine) -> int:
        empty, system = True, ""
        if follow:
            async for entry in engine.follow_transcript(execution, step):
                empty, system = False, _show(entry, as_json, system)
        else:
            for entry in await engine.transcript(execution, step):
                empty, system = False, _show(entry, as_json, system)
        if empty:
            say(f"the agent of step {step} has not begun yet")
        return 0

    raise CommandEnd(with_engine(work, home))


def _show(entry: TranscriptEntry, as_json: bool, system: str) -> str:
    """Print one entry; returns the system prompt that was shown last."""
    if as_json:
        out(msgspec.json.encode(entry).decode())
    elif block := as_markdown(entry, system):
        out_lines(block)
    return entry.system or system
