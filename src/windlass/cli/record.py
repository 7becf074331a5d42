"""`logs`: every event of an execution, and `approvals`: the questions of all executions."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import Annotated, Any

from windlass.cli.command import Group, Option
from windlass.cli.names import ExecutionId
from windlass.cli.session import (
    AsJson,
    AsJsonLines,
    CommandEnd,
    Home,
    as_typed,
    out,
    out_lines,
    print_json,
    say,
    suggest,
    with_engine,
)
from windlass.cli.terminal import write_output
from windlass.cli.text import closing_command, describe, has_expired, next_commands
from windlass.cli.used_text import in_brief
from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.preview import asked_change, rests_on
from windlass.errors import Damaged
from windlass.ports import AskedQuestion, Entry

__all__ = ["register"]

MOST_VERIFIED = 100
"""Executions whose questions are listed that are looked through for damage."""


def register(app: Group) -> None:
    app.add(logs)
    app.add(approvals)


def logs(
    execution: ExecutionId,
    step: Annotated[str | None, Option("--step", help="Only this step")] = None,
    prompt: Annotated[bool, Option("--prompt", help="Only the full prompts of agents")] = False,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow new events as they happen")] = False,
    as_json: AsJsonLines = False,
    home: Home = None,
) -> None:
    """Show an execution's events, with the output of its steps."""

    async def work(engine: Engine) -> int:
        head = await engine.find(execution)
        state: State | None = None
        if prompt:
            return await _prompts(engine, head.id, step, as_json)
        if follow:
            async for entry in engine.follow(head.id):
                state = _log(entry.event, entry.seq, state, step, as_json)
        else:
            for entry in await _up_to_damage(engine, head.id):
                state = _log(entry.event, entry.seq, state, step, as_json)
            if head.id in engine.damaged:
                raise engine.damaged[head.id]
        if state is not None and step is not None:
            find_step(state, step)
        return 0

    raise CommandEnd(with_engine(work, home))


async def _up_to_damage(engine: Engine, execution: str) -> list[Entry]:
    """Its entries; of a damaged one, those before the damage."""
    try:
        return (await engine.record(execution))[1]
    except Damaged as damage:
        return await engine.journal.read(execution, limit=damage.seq - 1) if damage.seq > 1 else []


async def _prompts(engine: Engine, execution: str, step: str | None, as_json: bool) -> int:
    """Print the exact prompts of each agent."""
    if step is not None:
        find_step(await engine.state(execution), step)
    events = [entry.event for entry in await engine.journal.read(execution)]
    told = [e for e in events if isinstance(e, ev.AgentBegan) and (step is None or _about(e.step, step))]
    if not told:
        say("no agent has started yet")
    for event in told:
        if as_json:
            out(ev.encode(event).decode())
            continue
        more = f", continues session {event.session}" if event.session else ""
        out(f"# {event.step} attempt {event.attempt}: {event.role} on {event.runtime}{more}")
        out_lines(f"## system\n{event.system}\n\n## prompt\n{event.prompt}\n")
        for note in event.notes:
            out_lines(f"## note\n{note}\n")
    return 0


def _about(step: str, wanted: str) -> bool:
    return step == wanted or step.partition("[")[0] == wanted


def _log(event: ev.Event, seq: int, state: State | None, step: str | None, as_json: bool) -> State:
    if state is None:
        state = fold([event])
    else:
        state.apply(event)
    about = getattr(event, "step", None)
    if step is not None and about is not None and not _about(about, step):
        return state
    if step is not None and about is None:
        return state
    if as_json:
        out(f'{{"seq":{seq},{ev.encode(event).decode()[1:]}')
        return state
    clock = datetime.fromtimestamp(event.at).isoformat(" ", timespec="milliseconds")
    if isinstance(event, ev.OutputWritten):
        for line in event.text.splitlines():
            write_output(sys.stdout, f"{clock}   {event.step} | ", line)
    elif (text := describe(event, state)) is not None:
        out(f"{clock} {text}{in_brief(getattr(event, 'used', None))}")
    return state


def approvals(as_json: AsJson = False, home: Home = None) -> None:
    """List the steps that are waiting for approval."""

    async def work(engine: Engine) -> int:
        found = await engine.open_questions(verify=MOST_VERIFIED)
        for damage in engine.damaged.values():
            suggest(f"warning: {damage.message}; its questions cannot be shown (windlass status {damage.execution})")
        forecasts = await engine.forecast_views(one.execution for one, _asked in found)
        if as_json:
            print_json([_question(one, asked) | {"forecast": forecasts.get(one.execution)} for one, asked in found])
        elif not found:
            say("nothing is waiting for approval")
        else:
            for one, asked in found:
                step = one.question.step
                expires = "expired" if (expired := has_expired(asked)) else "expires"
                out(f"{one.plan}: {step} asks to use {asked.tool}, {expires} {iso(asked.expires_at)}")
                print_json(asked.input)
                if change := asked_change(asked, one.question.workdir):
                    out_lines(change.rstrip("\n"))
                if about := rests_on(asked.basis):
                    out(f"  with: {about}")
                if asked.question:
                    out(f"  {asked.question}")
                if (forecast := forecasts.get(one.execution)) is not None and forecast["text"]:
                    out(f"  forecast: {forecast['text']}")
                word = shlex.quote(step)
                answer = f"windlass approve {one.execution} {word}   # or with --deny"
                out(as_typed(f"  {closing_command(one.execution, word) if expired else answer}"))
        if not as_json:
            await _tell_decisions(engine)
        return 0

    raise CommandEnd(with_engine(work, home))


async def _tell_decisions(engine: Engine) -> None:
    """Tell of steps that wait for a person, but for no approval: their outcome is unknown, or a budget is used up."""
    async for state in engine.states(await engine.executions(["running", "paused"], MOST_VERIFIED)):
        asking = [step for step in state.questions.values() if step.waiting_for != "approval"]
        for step in asking:
            say(f"{state.plan.name}: {step.id} waits for a decision, not for approval: {step.question}")
        for line in next_commands(state, engine.driven(state)) if asking else ():
            suggest(f"  {line}")


def _question(one: AskedQuestion, asked: ev.ApprovalAsked) -> dict[str, Any]:
    return {
        "execution": one.execution,
        "plan": one.plan,
        "step": one.question.step,
        "kind": "approval",
        **({"text": asked.question} if asked.question else {}),
        "tool": asked.tool,
        "input": asked.input,
        "digest": asked.digest,
        **({"basis": asked.basis} if asked.basis else {}),
        "expires_at": iso(asked.expires_at),
        "diff": asked_change(asked, one.question.workdir),
    }
