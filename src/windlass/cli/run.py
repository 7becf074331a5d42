"""`run`, `resume`, `watch`: executions that one looks at while they go on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click

from windlass.cli.attend import ApprovalPrompt
from windlass.cli.begin import begin
from windlass.cli.command import Argument, Group, Option
from windlass.cli.detach import offer_orphans, send_off, stopped_since
from windlass.cli.names import ExecutionId, OptionalExecutionId
from windlass.cli.session import (
    STDIN,
    AsJson,
    CommandEnd,
    Home,
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
from windlass.core.questions import limits_asked_about
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.core.view import snapshot
from windlass.engine.engine import Engine
from windlass.engine.execution import Execution
from windlass.errors import JournalError, UsageError, WindlassError
from windlass.plan.model import MOST_PARALLEL, Plan
from windlass.plan.strategies import Strategy
from windlass.regular import read_text
from windlass.runtimes import runtime_names
from windlass.visible import one_line

__all__ = ["check_plan_choice", "register", "see_through"]


def _heeded(progress: Progress) -> Progress:
    if progress is Progress.RAWJSON:
        leave_stderr_to_events()
    return progress


ProgressOption = Annotated[
    Progress,
    Option("--progress", help="Progress on stderr", callback=_heeded),
]
RuntimeOption = Annotated[
    str | None, Option("--runtime", metavar="NAME", help=f"Runtime of the agents: {runtime_names()}")
]
BudgetOption = Annotated[
    float | None, Option("--budget", metavar="USD", min=0, help="Maximum spending of the execution, in dollars")
]
BudgetTokens = Annotated[
    int | None, Option("--budget-tokens", metavar="N", min=0, help="Maximum tokens read and written")
]
NoWait = Annotated[bool, Option("--no-wait", help="Pause with exit code 6 when a quota is used up")]
AcceptChanges = Annotated[bool, Option("--accept-changes", help="Continue with the plan file as it is now")]
KeepPlan = Annotated[bool, Option("--keep-plan", help="Continue with the plan as it was started")]
WorkdirOption = Annotated[Path | None, Option("--workdir", "-C", metavar="DIR", help="Use another working directory")]
Detach = Annotated[bool, Option("--detach", "-d", help="Run in the background; print the id")]


MAX_TASK_FILE = 4 * 1024 * 1024


class OnOverrun(StrEnum):
    ASK = "ask"
    """A person is asked for more."""
    PROCEED = "proceed"
    """It continues with a warning."""


def register(app: Group) -> None:
    app.add(run)
    app.add(resume)
    app.add(watch)
    app.add(drive, "_drive", hidden=True)


def run(
    plan: Annotated[Path | None, Argument(metavar="PLAN", help="Plan file, YAML or JSON; - reads stdin")] = None,
    inputs: Annotated[
        list[str] | None,
        Option("--input", "-i", metavar="KEY=VALUE", help="An input of the plan; KEY=@FILE reads a file, @- stdin"),
    ] = None,
    task: Annotated[str | None, Option("--task", "-t", metavar="TEXT", help="A task, instead of a plan")] = None,
    task_file: Annotated[
        Path | None,
        Option(
            "--task-file",
            metavar="FILE",
            help="Tasks: text (- reads stdin), or a YAML list; see: docs strategies",
        ),
    ] = None,
    strategy: Annotated[
        Strategy | None,
        Option("--strategy", help="Strategy that turns tasks into a plan (default: chosen from the tasks)"),
    ] = None,
    role: Annotated[str | None, Option("--role", metavar="NAME", help="The agent's role; see: agents")] = None,
    chain: Annotated[
        str | None, Option("--chain", metavar="ROLES", help="Roles of the strategy multi, comma-separated")
    ] = None,
    files: Annotated[list[str] | None, Option("--file", "-f", metavar="PATH", help="File to give to agents")] = None,
    skills: Annotated[list[str] | None, Option("--skill", metavar="NAME", help="Skill to give to agents")] = None,
    runtime: RuntimeOption = None,
    model: Annotated[str | None, Option("--model", metavar="NAME", help="Model of the agents")] = None,
    no_fallback: Annotated[
        bool, Option("--no-fallback", help="Do not switch to another runtime when one fails")
    ] = False,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="TOOL", help="Let agents use this tool without asking: Bash(git log:*)"),
    ] = None,
    parallel: Annotated[
        int | None,
        Option(
            "--parallel", "-p", min=1, max=MOST_PARALLEL, help="Maximum steps at a time, instead of the plan's limit"
        ),
    ] = None,
    budget: BudgetOption = None,
    budget_tokens: BudgetTokens = None,
    on_overrun: Annotated[
        OnOverrun | None, Option("--on-overrun", help="Action at a budget limit (default: from settings)")
    ] = None,
    no_wait: NoWait = False,
    detach: Detach = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check it and show what would run, and run nothing")] = False,
    anyway: Annotated[bool, Option("--anyway", help="Start even if a program or runtime it needs is missing")] = False,
    workdir: Annotated[
        Path | None, Option("--workdir", "-C", metavar="DIR", help="Working directory of the steps")
    ] = None,
    progress: ProgressOption = Progress.AUTO,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Plain progress with every output line")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Run a plan, or a task for agents, and show its progress.

    \b
    windlass run plan.yaml -i version=1.4.2
    windlass run plan.yaml --dry-run
    windlass run --task "Make the tests pass." --runtime claude-code --budget 2
    """
    from windlass.engine.run_request import RunRequest
    from windlass.plan.load import bind_inputs, parse_input

    if sum(given is not None for given in (plan, task, task_file)) != 1:
        raise UsageError("name one thing to run: a PLAN file, --task TEXT or --task-file FILE")
    _read_stdin_once(plan, task_file, inputs or ())
    if dry_run and (detach or strategy is Strategy.PLAN):
        raise UsageError("--dry-run runs nothing: it goes with neither --detach nor --strategy plan")
    of_tasks = {"--strategy": strategy, "--role": role, "--chain": chain, "--file": files, "--skill": skills}
    if plan is not None and (wrong := [name for name, given in of_tasks.items() if given]):
        raise UsageError(f"{wrong[0]} works only with --task and --task-file: set it in the plan instead")
    if task is not None and not task.strip():
        raise UsageError("--task is empty: describe the task")
    members = [name.strip() for name in chain.split(",") if name.strip()] if chain else None
    if members and strategy not in (None, Strategy.MULTI):
        raise UsageError(f"--chain works only with the strategy multi, not with {strategy}")
    of_file = plan if plan != STDIN else None
    request = RunRequest(
        plan_file=Path.cwd() / of_file if of_file is not None and workdir is not None else of_file,
        plan_text=_stdin_text() if plan == STDIN else None,
        plan_name="stdin",
        task=task,
        tasks=_tasks_in(task_file) if task_file is not None else None,
        tasks_file="stdin" if task_file == STDIN else str(task_file or ""),
        strategy=strategy,
        role=role,
        chain=members,
        files=files or (),
        skills=skills or (),
        runtime=runtime,
        model=model,
        fallback=False if no_fallback else None,
        parallel=parallel,
        allow=allow or (),
        budget=budget,
        budget_tokens=budget_tokens,
        on_overrun=on_overrun.value if on_overrun is not None else "",
        workdir=workdir,
        hold=yes or attended(),
        anyway=True,  # prerequisites are checked before, and told of
    )

    async def work(engine: Engine) -> int:
        loaded = request.load(engine)
        if plan is None:
            say(_strategy_line(request.chosen_strategy(), loaded.plan))
        for warning in loaded.warnings:
            say(f"warning: {warning}")
        given = bind_inputs(loaded.plan, dict(parse_input(text) for text in inputs or ()))
        for warning in await engine.prerequisites(loaded, workdir, anyway=anyway or dry_run):
            say(f"warning: {warning}")
        if dry_run:
            from windlass.cli.preview import dry_run as show

            return await show(engine, loaded, given, as_json=as_json)
        await offer_orphans(engine)
        bound = replace(request, inputs=given)
        if strategy is Strategy.PLAN:
            from windlass.cli.draft import draft_plan, run_draft

            if detach:
                raise UsageError("a drafted plan needs your approval before it runs: use `windlass plan draft`")
            drafted = await draft_plan(engine, bound.start(engine, loaded), progress=progress, yes=yes)
            if isinstance(drafted, int):
                return drafted
            return await run_draft(engine, bound, drafted, progress=progress, yes=yes, as_json=as_json)
        if detach:
            return await send_off(engine, await bound.create(engine, loaded), as_json, yes=yes, no_wait=no_wait)
        started = await begin(engine, bound.start(engine, loaded))
        mode = Progress.PLAIN if verbose and progress is Progress.AUTO else progress
        return await see_through(engine, started, view_for(mode), yes=yes, as_json=as_json)

    raise CommandEnd(with_engine(work, home, yes=yes, make=not dry_run, **_waiting(no_wait)))


def _stdin_text() -> str:
    from windlass.cli.stdin import stdin_text  # few commands read it

    return stdin_text()


def _read_stdin_once(plan: Path | None, task_file: Path | None, inputs: Sequence[str]) -> None:
    of_stdin = [plan == STDIN, task_file == STDIN, *(text.endswith("=@-") for text in inputs)]
    if sum(of_stdin) > 1:
        raise UsageError("only one of them can be read from stdin: the plan, the tasks or an input")


def _strategy_line(chosen: Strategy, plan: Plan) -> str:
    between = ", " if chosen is Strategy.PARALLEL else " → "
    more = "" if len(plan.steps) <= 10 else f" and {len(plan.steps) - 10} more"
    return f"strategy {chosen}: {between.join(str(step.agent) for step in plan.steps[:10])}{more}"


def _tasks_in(file: Path) -> Any:
    """Read a file of tasks: text, or YAML or JSON data by its name."""
    from windlass.plan.yamlread import read

    if file == STDIN:
        return _stdin_text()
    try:
        text = read_text(file, MAX_TASK_FILE)
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return text
    return read(text, file=str(file), as_json=file.suffix.lower() == ".json").data


def resume(
    execution: OptionalExecutionId = None,
    every: Annotated[bool, Option("--all", help="All executions that a crash cut off")] = False,
    detach: Detach = False,
    accept_changes: AcceptChanges = False,
    keep_plan: KeepPlan = False,
    workdir: WorkdirOption = None,
    take_over: Annotated[bool, Option("--take-over", help="Take over even if another process holds it")] = False,
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
    """Continue an execution that was paused, interrupted or cut off by a crash.

    \b
    windlass resume @last
    windlass resume --all      # all that a crash cut off
    """
    check_plan_choice(accept_changes, keep_plan)

    async def work(engine: Engine) -> int:
        decisions = _decisions(engine, again or (), done or (), fail or ())
        more = await _raised(engine, execution, budget, budget_tokens)
        if execution is None:
            return await _resume_orphans(engine, every, progress, yes=yes, as_json=as_json)
        if detach:
            if decisions or workdir or accept_changes or keep_plan or take_over or more:
                raise UsageError("--detach cannot be combined with other changes: resume without --detach first")
            found = await engine.check(execution)
            warn_of_values(engine, found)
            return await send_off(engine, found.id, as_json, yes=yes, no_wait=no_wait)
        folder = str(workdir.resolve()) if workdir else None
        state = await engine.state(execution)
        if not state.status.finished and (take_over or not engine.driven(state)):
            warn_of_values(engine, state, accept_changes=accept_changes, workdir=folder)
        resuming = engine.resume(
            execution,
            hold=yes or attended(),
            accept_changes=accept_changes,
            keep_plan=keep_plan,
            workdir=folder,
            take_over=take_over,
            decisions=decisions,
            budget=more,
        )
        resumed = await begin(engine, resuming)
        return await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json)

    raise CommandEnd(with_engine(work, home, yes=yes, **_waiting(no_wait)))


def warn_of_values(engine: Engine, state: State, *, accept_changes: bool = False, workdir: str | None = None) -> None:
    """Warn of variables without which a step that is still to run would fail here (D5)."""
    from windlass.engine.resuming import changed_plan

    changed = changed_plan(state) if accept_changes else ""
    plan = engine.read(changed, workdir or state.workdir).plan if changed else None
    for warning in engine.missing_values(state, plan):
        say(f"warning: {warning}")


def check_plan_choice(accept_changes: bool, keep_plan: bool) -> None:
    if accept_changes and keep_plan:
        raise UsageError("choose one of --accept-changes and --keep-plan")


def watch(
    execution: ExecutionId,
    progress: ProgressOption = Progress.AUTO,
    exit_status: Annotated[bool, Option("--exit-status", help="Exit with the execution's exit code")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Follow an execution from any terminal until it ends or pauses."""

    async def work(engine: Engine) -> int:
        # Ended by another program it leaves the terminal as Ctrl-C does: the live view hides the cursor.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
        head = await engine.find(execution)
        await engine.record(head.id)  # a damaged one is refused before anything of it is shown
        with view_for(progress) as view, _foretelling(engine, head.id, view):
            async for entry in engine.follow(head.id):
                view.take(entry)
        state = await engine.state(head.id)
        _report(state, engine.driven(state), as_json, await engine.stale(state))
        return exit_code(state) if exit_status else 0

    try:
        raise CommandEnd(with_engine(work, home))
    except KeyboardInterrupt:
        suggest(f"No longer watching; the execution continues. Watch again: windlass watch {execution}")
        raise CommandEnd(130) from None


def drive(
    execution: str,
    since: Annotated[int | None, Option("--since", help="The sequence it had reached")] = None,
    no_wait: NoWait = False,
    yes: Yes = False,
    home: Home = None,
) -> None:
    """Drive an execution for `--detach`, with nobody watching; wait for people if need be."""

    async def work(engine: Engine) -> int:
        if since is not None and await stopped_since(engine, execution, since):
            say("it was paused or ended before this process could start")
            return 3
        resumed = await begin(engine, engine.resume(execution, hold=True, keep_plan=True))
        return await see_through(engine, resumed, view_for(Progress.PLAIN), yes=yes, as_json=False)

    raise CommandEnd(with_engine(work, home, **_waiting(no_wait)))


async def see_through(
    engine: Engine, execution: Execution, view: View, *, yes: bool, as_json: bool, notes: Sequence[str] | None = None
) -> int:
    """Show an execution that this process has begun until it ends. `notes` are remarks for its JSON."""
    attendant = ApprovalPrompt(engine, execution.id, view, yes=yes)
    view.since = execution.since
    with view, _foretelling(engine, execution.id, view):
        async for entry in engine.follow(execution.id):
            view.take(entry)
            attendant.take(entry.event, past=entry.seq <= execution.since)
        await attendant.close()
    state = await execution.wait()
    _report(state, False, as_json, await engine.stale(state), notes)
    if view.first is not None and state.status is ExecutionStatus.COMPLETED:
        from windlass.cli.forecast_text import surprise

        if text := surprise(view.first, state):
            say(text)
    return exit_code(state)


@contextmanager
def _foretelling(engine: Engine, execution: str, view: View) -> Iterator[None]:
    """Give the view the newest forecast every second, whichever process makes them."""

    async def look() -> None:
        while True:
            await asyncio.sleep(1.0)
            with suppress(JournalError):  # the file may be locked for a while
                found = await engine.forecasts(execution)
                if execution in found:
                    view.foretell(found[execution])

    if not view.foretells:
        yield
        return
    task = asyncio.get_running_loop().create_task(look())
    try:
        yield
    finally:
        task.cancel()


def _report(state: State, driven: bool, as_json: bool, stale: Set[str], notes: Sequence[str] | None = None) -> None:
    try:
        if as_json:
            print_json(snapshot(state, stale=stale) | ({"notes": list(notes)} if notes is not None else {}))
        else:
            for step in _results(state):
                write_output(sys.stdout, f"{step.id}: ", shown(step.output))
            sys.stdout.flush()
    finally:  # also when the result cannot be written
        for line in summary(state, driven, stale):
            say(line)
        if commands := next_commands(state, driven):
            say("next:")
            for line in commands:
                suggest(f"  {line}")


def _results(state: State) -> list[StepState]:
    """Completed steps with something to show that no other step depends on: the results of the plan."""
    dependents = state.prepared.graph.dependents
    return [
        step
        for step in state.top_level()
        if step.status is StepStatus.COMPLETED and step.output is not None and not dependents[step.id]
        if shown(step.output) and not _is_outdated(state, step)
    ]


def _is_outdated(state: State, step: StepState) -> bool:
    """True if its `when` is false by now: it ran because of a failure that a retry has mended since."""
    if not isinstance(step.spec.when, str):
        return False
    from windlass.core.scope import scope_of
    from windlass.plan.template import TemplateProblem

    try:
        return not state.prepared.condition(step.spec, scope_of(state, step))
    except TemplateProblem:
        return False


def _waiting(no_wait: bool) -> dict[str, bool]:
    return {"wait_for_quota": False} if no_wait else {}


async def _raised(
    engine: Engine, execution: str | None, usd: float | None, tokens: int | None
) -> list[ev.BudgetAnswered]:
    """`resume --budget`: the limit that it stands before from here on; without such, the execution's own."""
    if execution is None or (usd is None and tokens is None):
        return []
    asked = limits_asked_about(await engine.state(execution))
    now, by = engine.clock.now(), who()
    return [ev.BudgetAnswered(now, True, by, step, scope, usd, tokens, "resume --budget") for scope, step in asked]


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
    decided: dict[str, ev.DecisionMade] = {}
    for made in found:
        first = decided.setdefault(made.step, made)
        if first.choice != made.choice:
            raise UsageError(f"choose one of --again, --done and --fail for {made.step}")
        if first.output != made.output:
            raise UsageError(f"--done {made.step} is given twice, with different outputs: give one")
    return list(decided.values())


async def _resume_orphans(engine: Engine, every: bool, progress: Progress, *, yes: bool, as_json: bool) -> int:
    orphans = await engine.orphans()
    if not orphans:
        say("nothing to resume")
        return 0
    worst = 0
    for head in orphans:
        if every or yes or (attended() and click.confirm(f"resume {one_line(head.name)} {head.id}?", err=True)):
            try:
                warn_of_values(engine, await engine.state(head.id))
                resumed = await begin(engine, engine.resume(head.id, hold=yes or attended()))
            except WindlassError as error:  # one that cannot go on must not hold up the others
                worst = max(worst, report_error(error, as_json))
                continue
            worst = max(worst, await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json))
        else:
            suggest(f"{one_line(head.name)} was cut off; continue it with: windlass resume {head.id}")
    return worst
