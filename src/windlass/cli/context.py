"""`context`: tokens, window and summaries of an execution's agents, and a summary on request (F1–F3)."""

from __future__ import annotations

from typing import Annotated

from windlass.cli.command import Group, Option
from windlass.cli.names import ExecutionId, OptionalStepName
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, say, suggest, who, with_engine
from windlass.cli.terminal import clip
from windlass.cli.text import summary_line
from windlass.engine.agents.context import StepContext
from windlass.engine.engine import Engine
from windlass.errors import UsageError

__all__ = ["register"]

WIDTH = 160
"""Characters of a pinned fact that are shown; --json has all of it."""


def register(app: Group) -> None:
    app.add(context)


def context(
    execution: ExecutionId,
    step: OptionalStepName = None,
    summarise: Annotated[
        bool, Option("--summarise", help="Summarise the older part before the agent's next call")
    ] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show the tokens, window and summaries of an execution's agents."""
    if summarise and step is None:
        raise UsageError(
            "name the step whose conversation is to be summarised",
            advice=(f"windlass context {execution} STEP --summarise",),
        )

    async def work(engine: Engine) -> int:
        if summarise and step is not None:
            await engine.summarise(execution, step, by=who())
        found = await engine.context(execution, step)
        head = await engine.find(execution)
        if as_json:
            print_json({"execution": head.id, "contexts": [one.plain() for one in found]})
            return 0
        if not found:
            say("No agent of this execution has begun.")
        for one in found:
            for line in _lines(one):
                out(line)
        if summarise and not engine.driven(await engine.state(execution)):
            suggest(f"next: windlass resume {head.id}")
        return 0

    raise CommandEnd(with_engine(work, home))


def _lines(one: StepContext) -> list[str]:
    lines = [f"{one.step}  {one.runtime}{f', {one.model}' if one.model else ''}", f"  context: {_size(one)}"]
    if one.wanted:
        lines.append("  a summary was requested: it is made before the agent's next call")
    lines += [f"  {summary_line(made)}" for made in one.summaries]
    if one.pinned:
        lines.append(f"  pinned: {len(one.pinned)}")
        lines += [f"    - {clip(' '.join(fact.split()), WIDTH)}" for fact in one.pinned]
    return lines


def _size(one: StepContext) -> str:
    tokens = "no reply yet" if one.tokens is None else f"{one.tokens:,}"
    if one.window is None:
        return f"{tokens} tokens; the model's window is not known" if one.tokens is not None else tokens
    share = "" if one.tokens is None else f" ({one.tokens / one.window:.0%})"
    of = f"{tokens} of {one.window:,} tokens{share}" if one.tokens is not None else f"{tokens}; window {one.window:,}"
    return f"{of}; summarised at {one.most:,} ({one.threshold:.0%})"
