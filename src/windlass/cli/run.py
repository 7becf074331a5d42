"""`run`, `resume`, `watch`: executions that one looks at while they go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import click

from windlass.cli.attend import Attendant
from windlass.cli.command import Argument, Group, Option
from windlass.cli.detach import offer_orphans, send_off, stopped_since
from windlass.cli.session import (
    AsJson,
    Home,
    Stop,
    Yes,
    attended,
    exit_code,
    leave_stderr_to_events,
    print_json,
    report_error,
    say,
    suggest,
    who,
    with_engine,
)
from windlass.cli.terminal import write_output
from windlass.cli.text import next_commands, shown, summary
from windlass.cli.view import Progress, View, view_for
from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.core.view import snapshot
from windlass.engine.engine import Engine
from windlass.engine.execution import Execution
from windlass.engine.plans import LoadedPlan
from windlass.errors import UsageError, WindlassError
from windlass.plan.strategies import Strategy
from windlass.runtimes import runtime_names
from windlass.visible import one_line

__all__ = ["register", "see_through"]


def _heeded(progress: Progress) -> Progress:
    if progress is Progress.RAWJSON:
        leave_stderr_to_events()
    return progress


ProgressOption = Annotated[
    Progress,
    Option("--progress", help="How progress is shown on stderr", callback=_heeded),
]
RuntimeOption = Annotated[
    str | None, Option("--runtime", metavar="NAME", help=f"What agents run on: {runtime_names()}")
]
BudgetOption = Annotated[
    float | None, Option("--budget", metavar="USD", min=0, help="What the execution may spend in all, in dollars")
]
BudgetTokens = Annotated[
    int | None, Option("--budget-tokens", metavar="N", min=0, help="The same in tokens read and written")
]
NoWait = Annotated[bool, Option("--no-wait", help="Pause with exit code 6 when a quota is used up")]
Detach = Annotated[bool, Option("--detach", "-d", help="Go on in the background; print the id")]


def register(app: Group) -> None:
    app.add(run)
    app.add(resume)
    app.add(watch)
    app.add(drive, "_drive", hidden=True)


def run(
    plan: Annotated[Path | None, Argument(metavar="PLAN", help="Plan file, YAML or JSON")] = None,
    inputs: Annotated[
        list[str] | None,
        Option("--input", "-i", metavar="KEY=VALUE", help="An input of the plan; KEY=@FILE reads a file"),
    ] = None,
    task: Annotated[str | None, Option("--task", "-t", metavar="TEXT", help="A task, instead of a plan")] = None,
    task_file: Annotated[
        Path | None,
        Option("--task-file", metavar="FILE", help="Tasks: text, or a YAML list; see docs/strategies.md"),
    ] = None,
    strategy: Annotated[
        Strategy | None, Option("--strategy", help="How tasks become a plan (default: by the tasks)")
    ] = None,
    role: Annotated[str | None, Option("--role", metavar="NAME", help="The agent's role; see: agents")] = None,
    chain: Annotated[
        str | None, Option("--chain", metavar="ROLES", help="The roles of strategy multi, with commas between")
    ] = None,
    files: Annotated[
        list[str] | None, Option("--file", "-f", metavar="PATH", help="A file that agents are given")
    ] = None,
    skills: Annotated[list[str] | None, Option("--skill", metavar="NAME", help="A skill that agents are given")] = None,
    runtime: RuntimeOption = None,
    model: Annotated[str | None, Option("--model", metavar="NAME", help="The model of the agents")] = None,
    no_fallback: Annotated[bool, Option("--no-fallback", help="No other runtime takes over when one cannot")] = False,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="TOOL", help="Agents may use it unasked: Bash(git log:*)"),
    ] = None,
    parallel: Annotated[
        int | None, Option("--parallel", "-p", min=1, max=1000, help="Steps at a time, over the plan's own limit")
    ] = None,
    budget: BudgetOption = None,
    budget_tokens: BudgetTokens = None,
    no_wait: NoWait = False,
    detach: Detach = False,
    anyway: Annotated[
        bool, Option("--anyway", help="Start although a program or runtime that it needs is missing")
    ] = False,
    workdir: Annotated[Path | None, Option("--workdir", "-C", metavar="DIR", help="Where the steps work")] = None,
    progress: ProgressOption = Progress.AUTO,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Plain progress with every output line")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Run a plan, or a task for agents, and show its progress."""
    from windlass.cli.task import AgentFlags, plan_of_tasks
    from windlass.plan.load import bind_inputs, parse_input

    if sum(given is not None for given in (plan, task, task_file)) != 1:
        raise UsageError("name one thing to run: a PLAN file, --task TEXT or --task-file FILE")
    of_tasks = {"--strategy": strategy, "--role": role, "--chain": chain, "--file": files, "--skill": skills}
    if plan is not None and (wrong := [name for name, given in of_tasks.items() if given]):
        raise UsageError(f"{wrong[0]} is for --task and --task-file: a plan says so itself")
    flags = AgentFlags(
        runtime, model, budget, budget_tokens, False if no_fallback else None, parallel, tuple(allow or ())
    )

    async def work(engine: Engine) -> int:
        if plan is not None:
            sourced = engine.read(plan, workdir)
        else:
            made, chosen = plan_of_tasks(
                task, task_file, strategy, role=role, chain=chain, files=files or (), skills=skills or ()
            )
            between = ", " if chosen is Strategy.PARALLEL else " → "
            more = "" if len(made.steps) <= 10 else f" and {len(made.steps) - 10} more"
            say(f"strategy {chosen}: {between.join(str(step.agent) for step in made.steps[:10])}{more}")
            sourced = LoadedPlan(made)
        for warning in sourced.warnings:
            say(f"warning: {warning}")
        sourced = flags.apply(sourced)
        given = bind_inputs(sourced.plan, dict(parse_input(text) for text in inputs or ()))
        for warning in await engine.prerequisites(sourced, workdir, anyway=anyway):
            say(f"warning: {warning}")
        await offer_orphans(engine)
        if detach:
            execution = await engine.create(sourced, given, workdir=workdir, anyway=True)
            return await send_off(engine, execution, as_json, yes=yes, no_wait=no_wait)
        started = await engine.start(sourced, given, workdir=workdir, hold=yes or attended(), anyway=True)
        mode = Progress.PLAIN if verbose and progress is Progress.AUTO else progress
        return await see_through(engine, started, view_for(mode), yes=yes, as_json=as_json)

    raise Stop(with_engine(work, home, yes=yes, make=True, **_waiting(no_wait)))


def resume(
    execution: Annotated[str | None, Argument(metavar="ID", help="Execution, or the beginning of its id")] = None,
    every: Annotated[bool, Option("--all", help="Every execution that a dead process left behind")] = False,
    detach: Detach = False,
    accept_changes: Annotated[bool, Option("--accept-changes", help="Go on with the plan file as it is now")] = False,
    keep_plan: Annotated[bool, Option("--keep-plan", help="Go on with the plan as it was")] = False,
    workdir: Annotated[Path | None, Option("--workdir", "-C", metavar="DIR", help="Another working directory")] = None,
    take_over: Annotated[bool, Option("--take-over", help="Even if another process still holds it")] = False,
    again: Annotated[list[str] | None, Option("--again", metavar="STEP", help="Outcome unknown: run it again")] = None,
    done: Annotated[
        list[str] | None,
        Option("--done", metavar="STEP[=JSON]", help="Outcome unknown: it took effect"),
    ] = None,
    fail: Annotated[
        list[str] | None, Option("--fail", metavar="STEP", help="Outcome unknown: count it as failed")
    ] = None,
    budget: BudgetOption = None,
    budget_tokens: BudgetTokens = None,
    no_wait: NoWait = False,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Continue an execution that was paused, interrupted or cut off by a crash."""

    async def work(engine: Engine) -> int:
        decisions = _decisions(engine, again or (), done or (), fail or ())
        more = await _raised(engine, execution, budget, budget_tokens)
        if execution is None:
            return await _resume_orphans(engine, every, progress, yes=yes, as_json=as_json)
        if detach:
            if decisions or workdir or accept_changes or keep_plan or take_over or more:
                raise UsageError("--detach goes on with an execution as it is; resume it here first")
            found = await engine.check(execution)
            return await send_off(engine, found.id, as_json, yes=yes, no_wait=no_wait)
        resumed = await engine.resume(
            execution,
            hold=yes or attended(),
            accept_changes=accept_changes,
            keep_plan=keep_plan,
            workdir=str(workdir.resolve()) if workdir else None,
            take_over=take_over,
            decisions=decisions,
            budget=more,
        )
        return await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json)

    raise Stop(with_engine(work, home, yes=yes, **_waiting(no_wait)))


def watch(
    execution: Annotated[str, Argument(metavar="ID")],
    progress: ProgressOption = Progress.AUTO,
    exit_status: Annotated[bool, Option("--exit-status", help="End with the execution's exit code")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Follow an execution from any terminal until it ends or pauses."""

    async def work(engine: Engine) -> int:
        head = await engine.find(execution)
        await engine.record(head.id)  # a damaged one is refused before anything of it is shown
        with view_for(progress) as view:
            async for entry in engine.follow(head.id):
                view.take(entry)
        state = await engine.state(head.id)
        _report(state, engine.driven(state), as_json)
        return exit_code(state) if exit_status else 0

    try:
        raise Stop(with_engine(work, home))
    except KeyboardInterrupt:
        suggest(f"no longer watching; it goes on. Watch again: windlass watch {execution}")
        raise Stop(130) from None


def drive(
    execution: str,
    since: Annotated[int | None, Option("--since", help="The sequence it had reached")] = None,
    no_wait: NoWait = False,
    yes: Yes = False,
    home: Home = None,
) -> None:
    """What `--detach` starts: drive an execution with nobody watching, waiting for people if need be."""

    async def work(engine: Engine) -> int:
        if since is not None and await stopped_since(engine, execution, since):
            say("it was paused or ended before this driver could begin")
            return 3
        resumed = await engine.resume(execution, hold=True, keep_plan=True)
        return await see_through(engine, resumed, view_for(Progress.PLAIN), yes=yes, as_json=False)

    raise Stop(with_engine(work, home, **_waiting(no_wait)))


async def see_through(engine: Engine, execution: Execution, view: View, *, yes: bool, as_json: bool) -> int:
    """Show an execution of this process until it ends; Ctrl-C interrupts it, twice kills it."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _interrupt, engine, execution, number)
    attendant = Attendant(engine, execution.id, view, yes=yes)
    view.since = execution.since
    with view:
        async for entry in engine.follow(execution.id):
            view.take(entry)
            attendant.take(entry.event, past=entry.seq <= execution.since)
        await attendant.close()
    state = await execution.wait()
    _report(state, False, as_json)
    return exit_code(state)


_interrupts: list[int] = []
_requests: set[asyncio.Task[State]] = set()


def _interrupt(engine: Engine, execution: Execution, number: int) -> None:
    _interrupts.append(number)
    if len(_interrupts) > 1:
        # Asked twice: go at once. The journal is true at any moment, and the warden ends the processes.
        os._exit(130)
    say("")
    say("interrupting (once more to leave at once) …")
    task = asyncio.get_running_loop().create_task(engine.interrupt(execution.id, by=who()))
    _requests.add(task)
    task.add_done_callback(_requests.discard)


def _report(state: State, driven: bool, as_json: bool) -> None:
    if as_json:
        print_json(snapshot(state))
    else:
        for step in _results(state):
            write_output(sys.stdout, f"{step.id}: ", shown(step.output))
        sys.stdout.flush()
    for line in summary(state, driven):
        say(line)
    commands = next_commands(state, driven)
    if commands:
        say("next:")
        for line in commands:
            suggest(f"  {line}")


def _results(state: State) -> list[StepState]:
    """The outputs that nothing else consumed: what the plan was run for."""
    dependents = state.prepared.graph.dependents
    return [
        step
        for step in state.top_level()
        if step.status is StepStatus.COMPLETED and step.output is not None and not dependents[step.id]
    ]


def _waiting(no_wait: bool) -> dict[str, bool]:
    return {"wait_for_quota": False} if no_wait else {}


async def _raised(
    engine: Engine, execution: str | None, usd: float | None, tokens: int | None
) -> list[ev.BudgetAnswered]:
    """`resume --budget`: the limit that it stands before from here on; without such, the execution's own."""
    if execution is None or (usd is None and tokens is None):
        return []
    waiting = [s for s in (await engine.state(execution)).questions.values() if s.waiting_for == "budget"]
    asked = {(s.scope, s.id if s.scope == "step" else "") for s in waiting} or {("execution", "")}
    now, by = engine.clock.now(), who()
    return [
        ev.BudgetAnswered(now, True, by, step, scope, usd, tokens, "resume --budget") for scope, step in sorted(asked)
    ]


def _decisions(
    engine: Engine, again: list[str] | tuple[()], done: list[str] | tuple[()], fail: list[str] | tuple[()]
) -> list[ev.DecisionMade]:
    import json

    now, by = engine.clock.now(), who()
    found = [ev.DecisionMade(now, step, "again", by) for step in again]
    found += [ev.DecisionMade(now, step, "fail", by) for step in fail]
    for text in done:
        step, _, value = text.partition("=")
        try:
            output = json.loads(value) if value else None
        except ValueError as error:
            raise UsageError(f"--done {step}: {value!r} is not JSON: {error}") from error
        found.append(ev.DecisionMade(now, step, "done", by, output))
    return found


async def _resume_orphans(engine: Engine, every: bool, progress: Progress, *, yes: bool, as_json: bool) -> int:
    orphans = await engine.orphans()
    if not orphans:
        say("no execution was left behind")
        return 0
    worst = 0
    for head in orphans:
        if every or yes or (attended() and click.confirm(f"resume {one_line(head.name)} {head.id}?", err=True)):
            try:
                resumed = await engine.resume(head.id, hold=yes or attended())
            except WindlassError as error:  # one that cannot go on must not hold up the others
                worst = max(worst, report_error(error, as_json))
                continue
            worst = max(worst, await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json))
        else:
            suggest(f"left behind: {head.name}  windlass resume {head.id}")
    return worst
