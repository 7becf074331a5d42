"""`run --strategy plan`, `plan draft`, `plan redraft`: plans that an agent drafts and a person agrees to (K9)."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Awaitable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from windlass.cli.begin import begin
from windlass.cli.preview import expected, show_plan
from windlass.cli.run import see_through
from windlass.cli.session import attended, print_json, say, suggest
from windlass.cli.view import Progress, view_for
from windlass.core.budget import money
from windlass.core.forecast.value import Forecast
from windlass.core.state import State
from windlass.engine.engine import Engine
from windlass.engine.execution import Execution
from windlass.engine.plans import LoadedPlan
from windlass.engine.redraft import compare_plans, redraft_task
from windlass.engine.run_request import RunRequest
from windlass.errors import PlanInvalid, UsageError
from windlass.homes.proof import write_whole
from windlass.plan.strategies import Strategy

__all__ = ["draft_of", "draft_plan", "print_draft", "redraft_plan", "run_draft"]

FOLDER = "drafts"
WAITS = 3
"""Exit code: a person has to agree first."""


class Drafted(NamedTuple):
    """A drafted plan, and the execution of the agent that drafted it."""

    state: State
    file: Path


async def draft_plan(
    engine: Engine, beginning: Awaitable[Execution], *, progress: Progress, yes: bool
) -> Drafted | int:
    """Have an agent draft a plan, in an execution that begins or goes on. An exit code if there is no draft."""
    execution = await begin(engine, beginning)
    with redirect_stdout(io.StringIO()):  # the plan is shown by us
        code = await see_through(engine, execution, view_for(progress), yes=yes, as_json=False)
    state = await engine.state(execution.id)
    if code != 0:
        suggest(f"next: windlass plan draft --from {execution.id}")
        return code
    return _saved(engine, state)


async def draft_of(engine: Engine, execution: str, *, progress: Progress, yes: bool) -> Drafted | int:
    """The draft of an earlier execution, which goes on if it is not complete."""
    state = await engine.state(execution)
    step = next(iter(state.top_level()), None)
    if step is None or step.spec.output != "plan":
        raise UsageError(f"execution {state.id} drafts no plan: its step has no `output: plan`")
    if step.output is None:
        resuming = engine.resume(state.id, hold=yes or attended(), keep_plan=True)
        return await draft_plan(engine, resuming, progress=progress, yes=yes)
    return _saved(engine, state)


def _saved(engine: Engine, state: State) -> Drafted:
    """Write the draft to a file of its own, which a person can edit and run; one that was edited stays."""
    file = engine.home / FOLDER / f"{state.id}.yaml"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(file, str(next(iter(state.top_level())).output))
    return Drafted(state, file)


async def print_draft(engine: Engine, drafted: Drafted, *, as_json: bool, command: str = "windlass run") -> int:
    """Print the plan to stdout, and its graph, time, cost and approvals to stderr. `command` runs it."""
    loaded = engine.read(drafted.file, drafted.state.workdir)
    found = await expected(engine, loaded)
    text = drafted.file.read_text(encoding="utf-8")
    if as_json:
        told = {"execution": drafted.state.id, "file": str(drafted.file), "plan": text}
        print_json({**told, "estimate": found.as_estimate()})
        return 0
    _show(engine, loaded, found)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    suggest(f"next: {command} {shlex.quote(str(drafted.file))}")
    return 0


async def redraft_plan(
    engine: Engine, execution: str, request: RunRequest, wish: str, *, progress: Progress, yes: bool, as_json: bool
) -> int:
    """Have an agent draft the rest of an execution anew, keeping the completed steps."""
    origin = await engine.state(execution)
    task = redraft_task(origin, wish)
    asked = replace(request, task=task, strategy=Strategy.PLAN, workdir=origin.workdir)
    drafted = await draft_plan(engine, asked.start(engine), progress=progress, yes=yes)
    if isinstance(drafted, int):
        return drafted
    loaded = engine.read(drafted.file, origin.workdir)
    found = compare_plans(origin, loaded.plan)
    if as_json:
        text = drafted.file.read_text(encoding="utf-8")
        told = {"execution": drafted.state.id, "of": origin.id, "file": str(drafted.file), "plan": text}
        print_json({**told, **found._asdict()})
        return 0
    for names, about in (
        (found.kept, "kept with their results"),
        (found.changed, "written otherwise, but completed: their results are kept, and they do not run again"),
        (found.new, "will run"),
        (found.dropped, "no longer in the plan"),
    ):
        if names:
            say(f"{about}: {', '.join(names)}")
    return await print_draft(engine, drafted, as_json=False, command=f"windlass fork {origin.id} --plan")


async def run_draft(
    engine: Engine, request: RunRequest, drafted: Drafted, *, progress: Progress, yes: bool, as_json: bool
) -> int:
    """Show a drafted plan, and run it when a person agrees, or with `yes` within the budget."""
    spent = drafted.state.cost.usd or 0.0
    left = None if request.budget is None else request.budget - spent
    while True:
        try:
            chosen = replace(
                request,
                plan_file=drafted.file.resolve(),
                budget=left,
                task=None,
                tasks=None,
                tasks_file="",
                strategy=None,
                role=None,
                chain=None,
                files=(),
                skills=(),
                inputs={},
            )
            loaded = chosen.load(engine)
            await engine.check_programs(loaded)
        except PlanInvalid as invalid:
            for problem in invalid.problems:
                say(str(problem))
            if not attended():
                raise
            answer = _asked("It cannot run so. [e]dit it again, [n]o: ")
        else:
            found = await expected(engine, loaded)
            _show(engine, loaded, found)
            answer = _agreed(found, left, yes) or _asked("Run it? [y]es, [e]dit, [n]o: ")
        if answer == "y":
            started = await begin(engine, chosen.start(engine, loaded))
            return await see_through(engine, started, view_for(progress), yes=yes, as_json=as_json)
        if answer != "e":
            say(f"Nothing ran. The plan is in {drafted.file}")
            suggest(f"next: windlass run {shlex.quote(str(drafted.file))}")
            return WAITS
        click.edit(filename=str(drafted.file))


def _agreed(found: Forecast, left: float | None, yes: bool) -> str:
    """`y` or `n` without a question; empty if a person is to be asked."""
    if not yes:
        return "" if attended() else "n"
    if left is None:
        say("--yes agrees to a drafted plan only within a budget: name one with --budget")
        return "n"
    if left <= 0 or (found.usd is not None and found.usd.high > left):
        expected = f"the plan may cost {money(found.usd.high)} (P90)" if found.usd is not None else "nothing is left"
        say(f"--yes agrees only within the budget, of which {money(max(0.0, left))} is left: {expected}")
        return "n"
    return "y"


def _asked(question: str) -> str:
    if not attended():
        return "n"
    answer: str = click.prompt(question, prompt_suffix="", default="n", show_default=False, err=True)
    return answer.strip().lower()[:1]


def _show(engine: Engine, loaded: LoadedPlan, found: Forecast) -> None:
    show_plan(engine, loaded, found, say, {})
    for warning in loaded.warnings:
        say(f"warning: {warning}")
