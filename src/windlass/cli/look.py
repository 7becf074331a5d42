"""`status`, `list`, `logs`, `approvals`: reading, never changing."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from windlass.cli.session import AsJson, Home, Stop, as_typed, out, out_lines, print_json, say, suggest, with_engine
from windlass.cli.terminal import write_output
from windlass.cli.text import MARKS, clip, describe, items_text, next_commands, shown, summary, time_text
from windlass.cli.tool_check import gate_lines
from windlass.cli.used_text import in_brief, used_text
from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.resources import summed
from windlass.core.state import State, fold
from windlass.core.transitions import ExecutionStatus
from windlass.core.view import progress, snapshot
from windlass.engine.damage import DAMAGED, damaged_view
from windlass.engine.engine import Engine
from windlass.engine.gates.view import standing
from windlass.engine.lookup import find_step
from windlass.engine.preview import difference, rests_on
from windlass.errors import Damaged, UsageError
from windlass.ports import AskedQuestion, Entry, Head

__all__ = ["register"]

MOST_VERIFIED = 100
"""Executions whose questions are listed that are looked through for damage."""

MOST_READ = 100
"""A list of more executions than that shows the damage that is known, and reads none of them to find out."""


def register(app: typer.Typer) -> None:
    app.command()(status)
    app.command("list")(list_executions)
    app.command()(logs)
    app.command()(approvals)


def status(
    execution: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """How an execution stands; without ID, all that are not finished."""

    async def work(engine: Engine) -> int:
        if execution is None:
            await _show_list(engine, ["pending", "running", "paused"], 0, as_json)
            for line in () if as_json else gate_lines(engine):
                out(line)
            return 0
        try:
            state = await engine.state(execution)
        except Damaged as damage:
            if not as_json:
                raise
            print_json(damaged_view(await engine.find(execution), damage))
            return damage.exit_code
        if as_json:
            print_json(standing(state, engine.performer.gates))
            return 0
        driven = engine.driven(state)
        for line in summary(state, driven):
            out(line)
        out(f"{progress(state):.0f}%  in {state.workdir}")
        if used := used_text(summed(step.used for step in state.steps.values())):
            out(used)
        for step in state.top_level():
            undone = " (undone)" if step.undone else ""
            more = f"{undone}{items_text(step)}{time_text(step)}{_remark(step)}"
            out(f"  {MARKS[step.status]} {step.id}  {step.status}{more}")
        for line in () if state.status.finished else gate_lines(engine):
            out(line)
        for line in next_commands(state, driven):
            out(as_typed(f"next: {line}"))
        return 0

    raise Stop(with_engine(work, home))


def _remark(step: Any) -> str:
    if step.output is not None and step.status == "completed":
        return f"  {clip(shown(step.output), 80)}"
    if step.error is not None:
        return f"  {clip(step.error.message, 80)}"
    return f"  {step.skipped_because}" if step.skipped_because else ""


def list_executions(
    statuses: Annotated[
        list[str] | None, typer.Option("--status", "-s", help="Only those; may be given several times")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0 for all")] = 20,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """The executions of this home, newest first."""
    known = [str(s) for s in ExecutionStatus]
    for given in statuses or ():
        if given not in known:
            raise UsageError(f"{given!r} is not a status; there are {', '.join(known)}")

    async def work(engine: Engine) -> int:
        await _show_list(engine, statuses or [], limit, as_json)
        return 0

    raise Stop(with_engine(work, home))


async def _show_list(engine: Engine, statuses: list[str], limit: int, as_json: bool) -> None:
    heads = await engine.executions(statuses, limit)
    if as_json:
        print_json([await _head_view(engine, head) for head in heads])
        return
    if not heads:
        say("no executions" if not statuses else f"no executions that are {' or '.join(statuses)}")
    if len(heads) <= MOST_READ:
        async for _state in engine.states(heads):
            """Read for damage alone."""
    for head in heads:
        when = datetime.fromtimestamp(head.created_at).strftime("%Y-%m-%d %H:%M")
        remark = f" ({head.detail})" if head.detail else ""
        if head.status in ("running", "pending") and not engine.journal.alive(head.driver):
            remark = as_typed(f" (its process is gone: windlass resume {head.id})")
        damage = engine.damaged.get(head.id)
        if damage is not None:
            remark = f" (was {head.status}; event {damage.seq}: {clip(damage.reason, 80)})"
        out(f"{head.id}  {when}  {DAMAGED if damage else head.status:<9}  {head.name}{remark}")
    if any(head.id in engine.damaged for head in heads):
        suggest(
            "damaged executions: bring one back with windlass restore FILE, or remove them: windlass clean --damaged"
        )


_BRIEFLY = ("id", "status", "attempts", "duration_s", "items")


async def _head_view(engine: Engine, head: Head) -> dict[str, Any]:
    """The same object as `status ID --json`, without the steps' contents."""
    try:
        state, _entries = await engine.record(head.id)
    except Damaged as damage:
        return {**damaged_view(head, damage), "driven": engine.driven(head)}
    view = snapshot(state)
    view["steps"] = [{key: step[key] for key in _BRIEFLY if key in step} for step in view["steps"]]
    view["driven"] = engine.driven(head)
    return view


def logs(
    execution: Annotated[str, typer.Argument(metavar="ID")],
    step: Annotated[str | None, typer.Option("--step", help="Only this step")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Only what agents were told, word for word")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it goes on")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Everything that happened, from the journal, with the steps' output."""

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

    raise Stop(with_engine(work, home))


async def _up_to_damage(engine: Engine, execution: str) -> list[Entry]:
    """Its entries; of a damaged one, those before the damage."""
    try:
        return (await engine.record(execution))[1]
    except Damaged as damage:
        return await engine.journal.read(execution, limit=damage.seq - 1) if damage.seq > 1 else []


async def _prompts(engine: Engine, execution: str, step: str | None, as_json: bool) -> int:
    """What was sent to each agent, exactly."""
    if step is not None:
        find_step(await engine.state(execution), step)
    events = [entry.event for entry in await engine.journal.read(execution)]
    told = [e for e in events if isinstance(e, ev.AgentBegan) and (step is None or _about(e.step, step))]
    if not told:
        say("no agent was told anything yet")
    for event in told:
        if as_json:
            out(ev.encode(event).decode())
            continue
        more = f", goes on with session {event.session}" if event.session else ""
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
    """What waits for a person's answer."""

    async def work(engine: Engine) -> int:
        found = await engine.open_questions(verify=MOST_VERIFIED)
        for damage in engine.damaged.values():
            suggest(f"warning: {damage.message}; its questions cannot be shown (windlass status {damage.execution})")
        if as_json:
            print_json([_question(question, asked) for question, asked in found])
        elif not found:
            say("nothing waits for approval")
        else:
            for one, asked in found:
                step = one.question.step
                out(f"{one.plan}: {step} asks for {asked.tool} until {iso(asked.expires_at)}")
                print_json(asked.input)
                if change := difference(asked.input, one.question.workdir, asked.basis):
                    out_lines(change.rstrip("\n"))
                if about := rests_on(asked.basis):
                    out(f"  with: {about}")
                if asked.question:
                    out(f"  {asked.question}")
                out(as_typed(f"  windlass approve {one.execution} {shlex.quote(step)}   # or with --deny"))
        return 0

    raise Stop(with_engine(work, home))


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
        "diff": difference(asked.input, one.question.workdir, asked.basis),
    }
