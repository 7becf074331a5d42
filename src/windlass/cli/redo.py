"""`retry` and `skip` for a failed step, in the same execution (D10); `undo` for a step's file changes."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from windlass.cli.begin import begin
from windlass.cli.command import Group, Option
from windlass.cli.detach import send_off
from windlass.cli.names import ExecutionId, OptionalStepName, StepName
from windlass.cli.run import (
    AcceptChanges,
    Detach,
    KeepPlan,
    ProgressOption,
    WorkdirOption,
    check_plan_choice,
    see_through,
    warn_of_values,
)
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    Yes,
    attended,
    out,
    print_json,
    say,
    suggest,
    who,
    with_engine,
)
from windlass.cli.text import plural
from windlass.cli.view import Progress, view_for
from windlass.core.advice import retry_notes
from windlass.core.state import State, StepState
from windlass.core.view import snapshot
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.errors import UsageError
from windlass.plan.load import Written, parse_input
from windlass.plan.yamlread import read
from windlass.regular import read_text

__all__ = ["register"]

MAX_ARGUMENTS = 16 * 1024 * 1024
"""Characters of `--with-file`."""


def register(app: Group) -> None:
    app.add(retry)
    app.add(skip)
    app.add(undo)
    app.add(verify)


def retry(
    execution: ExecutionId,
    step: StepName,
    given: Annotated[
        list[str] | None,
        Option("--with", metavar="KEY=VALUE", help="Replace an argument; KEY=@FILE reads a file"),
    ] = None,
    given_file: Annotated[
        Path | None, Option("--with-file", metavar="FILE", help="Replace arguments from a YAML or JSON file")
    ] = None,
    runtime: Annotated[
        str | None, Option("--runtime", metavar="NAME", help="Use another runtime for its agent")
    ] = None,
    model: Annotated[str | None, Option("--model", metavar="NAME", help="Use another model for its agent")] = None,
    fresh: Annotated[bool, Option("--fresh", help="Begin a new conversation with its agent")] = False,
    accept_changes: AcceptChanges = False,
    keep_plan: KeepPlan = False,
    workdir: WorkdirOption = None,
    detach: Detach = False,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Run a failed step again, in the same execution.

    An execution that has ended is reopened. Of a foreach, only the failed items run. An agent goes on in its
    conversation, unless it is to run on another runtime.
    """

    async def ask(engine: Engine) -> State:
        found = find_step(await engine.state(execution), step)
        edits = {**_from_file(given_file), **_typed(found, given or [])}
        return await engine.retry(execution, step, edits=edits, runtime=runtime, model=model, fresh=fresh, by=who())

    request = _StepRequest("retry", execution, step, ask, accept_changes, keep_plan, _resolved(workdir), runtime)
    _redo(request, f"{step} will run again", home, progress, detach=detach, yes=yes, as_json=as_json)


def skip(
    execution: ExecutionId,
    step: StepName,
    accept_changes: AcceptChanges = False,
    keep_plan: KeepPlan = False,
    workdir: WorkdirOption = None,
    detach: Detach = False,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Continue without a step, in the same execution.

    An execution that has ended is reopened. Dependents run with a null output.
    """

    async def ask(engine: Engine) -> State:
        return await engine.skip(execution, step, by=who())

    request = _StepRequest("skip", execution, step, ask, accept_changes, keep_plan, _resolved(workdir))
    _redo(request, f"{step} is skipped", home, progress, detach=detach, yes=yes, as_json=as_json)


class _StepRequest(NamedTuple):
    """A request about a step, as it was typed."""

    command: str
    execution: str
    step: str
    ask: Callable[[Engine], Awaitable[State]]
    accept_changes: bool
    keep_plan: bool
    workdir: str | None
    """Another working directory from here on."""
    runtime: str | None = None

    async def put(self, engine: Engine) -> State:
        """Ask it of the execution, unless that could not go on afterwards: then nothing is written."""
        asked = {"kind": self.command, "step": self.step, "runtime": self.runtime}
        await engine.check_redo(self.execution, [asked], **self.how)
        return await self.ask(engine)

    async def notes(self, engine: Engine) -> list[str]:
        """Remarks about what a retry does not do, before it is asked for."""
        if self.command != "retry":
            return []
        state = await engine.state(self.execution)
        return retry_notes(state, find_step(state, self.step))

    @property
    def how(self) -> dict[str, Any]:
        """The choices for the execution that goes on."""
        return {"accept_changes": self.accept_changes, "keep_plan": self.keep_plan, "workdir": self.workdir}


def _resolved(workdir: Path | None) -> str | None:
    return str(workdir.resolve()) if workdir else None


def _redo(
    request: _StepRequest,
    said: str,
    home: str | None,
    progress: Progress,
    *,
    detach: bool,
    yes: bool,
    as_json: bool,
) -> None:
    check_plan_choice(request.accept_changes, request.keep_plan)
    if detach and request.accept_changes:
        raise UsageError("--detach cannot be combined with --accept-changes: leave out one of them")
    if detach and request.workdir:
        raise UsageError("--detach cannot be combined with --workdir: leave out one of them")

    async def work(engine: Engine) -> int:
        notes = await request.notes(engine)
        state = await request.put(engine)
        say(said)
        for note in notes:
            suggest(f"note: {note}")
        if engine.driven(state) or state.status.finished:  # its own process may have ended it since
            if as_json:
                print_json({**snapshot(state), "notes": notes})
            suggest(f"Running in its own process. Follow with: windlass watch {state.id}")
            return 0
        warn_of_values(engine, state, accept_changes=request.accept_changes, workdir=request.workdir)
        if detach:
            return await send_off(engine, state.id, as_json, yes=yes)
        resumed = await begin(engine, engine.resume(state.id, hold=yes or attended(), **request.how))
        return await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json, notes=notes)

    raise CommandEnd(with_engine(work, home, yes=yes))


def _typed(step: StepState, given: list[str]) -> dict[str, Any]:
    """`KEY=VALUE`: text where the step had text, else JSON where it can be read as such."""
    spec = step.spec
    before = {**(step.input if isinstance(step.input, dict) else spec.arguments)}
    before |= {"run": spec.run, "code": spec.code, "prompt": spec.prompt} | (spec.with_ if spec.is_code else {})
    edits: dict[str, Any] = {}
    for text in given:
        name, value = parse_input(text)
        edits[name] = _value(value, before.get(name))
    return edits


def _value(value: Written, before: Any) -> Any:
    if value.verbatim or isinstance(before, str):
        return value.text
    try:
        return json.loads(value.text)
    except ValueError:
        return value.text


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        text = read_text(file, MAX_ARGUMENTS)
    except OSError as error:
        raise UsageError(f"--with-file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--with-file {file} is not UTF-8 text: {error.reason}") from error
    found = read(text, file=str(file), as_json=file.suffix.lower() == ".json").data
    if not isinstance(found, dict):
        raise UsageError(f"--with-file {file} is not an object of arguments", advice=("write it like: key: value",))
    return found


def undo(
    execution: ExecutionId,
    step: StepName,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Undo the file changes of a finished step, unless a file was changed since."""

    async def work(engine: Engine) -> int:
        found = await engine.find(execution)
        changes = await engine.undo(found.id, step, by=who())
        if as_json:
            print_json({"id": found.id, "step": step, "changes": changes})
            return 0
        for change in changes:
            to = f" to {change['to']}" if "to" in change else ""
            out(f"{os.path.join(change.get('folder', ''), change['path'])}  {change['undone']}{to}")
        say(f"{step} is undone: {plural(len(changes), 'path')}")
        for branch in dict.fromkeys(change["branch"] for change in changes if "branch" in change):
            say(f"the commit with the changes stays on {branch}; steps that merge leave it out")
        return 0

    raise CommandEnd(with_engine(work, home))


def verify(
    execution: ExecutionId,
    step: OptionalStepName = None,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Run the checks of agents' work again, without the agents."""

    async def work(engine: Engine) -> int:
        state = await engine.verify((await engine.find(execution)).id, step or "")
        found = {
            name: one.agent
            for name, one in state.steps.items()
            if one.agent is not None and one.agent.checked is not None
            if step is None or step in (name, one.spec.id)
        }
        refuted = [name for name, agent in found.items() if agent.verdict == "refuted"]
        if as_json:
            verdicts = {name: agent.verdict for name, agent in found.items()}
            print_json({"id": state.id, "verdicts": verdicts})
            return 1 if refuted else 0
        for name, agent in found.items():
            assert agent.checked is not None
            out(f"{name}  {agent.verdict}")
            for result in agent.checked.results:
                out(f"  {'passed' if result.passed else 'failed'}: {result.check}")
                for line in () if result.passed else result.output.splitlines()[-20:]:
                    out(f"    {line}")
        return 1 if refuted else 0

    raise CommandEnd(with_engine(work, home))
