"""`checkpoint`, `restore`, `fork`, `clean`: keeping, copying and throwing away executions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click

from windlass.cli.backup import restore_home
from windlass.cli.begin import begin
from windlass.cli.command import Argument, Group, Option
from windlass.cli.detach import resume_expired, send_off
from windlass.cli.look import list_line
from windlass.cli.names import ExecutionId
from windlass.cli.run import Detach, ProgressOption, see_through, warn_of_values
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    Yes,
    attended,
    out,
    print_json,
    report_error,
    say,
    suggest,
    with_engine,
)
from windlass.cli.text import plural
from windlass.cli.view import Progress, view_for
from windlass.core.advice import fork_notes
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.resuming import changed_plan
from windlass.errors import NotPermitted, UsageError
from windlass.homes import prepare_home
from windlass.plan.model import parse_duration

__all__ = ["clean_damaged", "register"]


def register(app: Group) -> None:
    app.add(checkpoint)
    app.add(restore)
    app.add(fork)
    app.add(clean)


def checkpoint(execution: ExecutionId, as_json: AsJson = False, home: Home = None) -> None:
    """Write an execution to a portable file and print its path."""

    async def work(engine: Engine) -> int:
        head = await engine.find(execution)
        prepare_home(engine.home)  # a journal in PostgreSQL has executions of other homes
        path = await engine.checkpoint(head.id)
        if as_json:
            print_json({"path": str(path)})
        else:
            out(str(path))
        return 0

    raise CommandEnd(with_engine(work, home))


def restore(
    file: Annotated[Path, Argument(metavar="FILE", help="A checkpoint file, or a backup")],
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Restore an execution from a checkpoint file, or a whole home from a backup."""
    from windlass.journal.backup import is_backup

    if is_backup(file):
        restore_home(file, home, as_json)

    async def work(engine: Engine) -> int:
        execution = await engine.restore(file)
        state = await engine.state(execution)
        if as_json:
            print_json({"id": execution, "status": str(state.status)})
        else:
            out(execution)
        if not state.status.finished:
            suggest(f"next: windlass resume {execution}   # with --workdir DIR if it is to work elsewhere")
        return 0

    raise CommandEnd(with_engine(work, home, make=True))


def fork(
    execution: ExecutionId,
    from_step: Annotated[
        str | None, Option("--from", metavar="STEP", help="Run this step and all after it again")
    ] = None,
    inputs: Annotated[list[str] | None, Option("--input", "-i", metavar="KEY=VALUE", help="Change an input")] = None,
    plan: Annotated[Path | None, Option("--plan", metavar="PLAN", help="Use an edited plan file")] = None,
    fresh: Annotated[bool, Option("--fresh", help="Begin a new conversation with the agent of STEP")] = False,
    detach: Detach = False,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Start a new execution from a step of an earlier one, keeping the results before it.

    An agent at STEP goes on in a copy of its conversation.

    \b
    windlass fork @last --from test
    """
    from windlass.plan.load import bind_inputs, parse_input

    async def work(engine: Engine) -> int:
        origin = await engine.state(execution)
        sourced = engine.read(plan, origin.workdir) if plan is not None else None
        given = dict(parse_input(text) for text in inputs or ())
        chosen = sourced.plan if sourced is not None else origin.plan
        edited = {key: value for key, value in bind_inputs(chosen, given).items() if key in given}
        new = await engine.fork(execution, from_step=from_step, inputs=edited, plan=sourced, fresh=fresh, to_start=True)
        notes = fork_notes(origin, changed_plan(origin), _typed(from_step, inputs, fresh)) if plan is None else []
        if not detach and progress is not Progress.QUIET:
            say(f"execution {new} of {chosen.name}, forked from {origin.id}")
        for note in notes:
            suggest(f"note: {note}")
        warn_of_values(engine, await engine.state(new))
        if detach:
            return await send_off(engine, new, as_json, yes=yes)
        started = await begin(engine, engine.resume(new, hold=yes or attended(), keep_plan=True))
        return await see_through(engine, started, view_for(progress), yes=yes, as_json=as_json, notes=notes)

    raise CommandEnd(with_engine(work, home, yes=yes))


def _typed(from_step: str | None, inputs: list[str] | None, fresh: bool) -> list[str]:
    """The options of a fork, as they are typed."""
    words = [] if from_step is None else ["--from", from_step]
    return [*words, *(word for text in inputs or () for word in ("-i", text)), *(["--fresh"] if fresh else [])]


def clean(
    older_than: Annotated[str, Option("--older-than", metavar="AGE", help="Minimum age, such as 7d or 12h")] = "30d",
    keep: Annotated[int, Option("--keep", min=0, help="Number of newest executions to keep")] = 20,
    dry_run: Annotated[bool, Option("--dry-run", help="List what would be removed, remove nothing")] = False,
    damaged: Annotated[bool, Option("--damaged", help="Remove only executions that cannot be read")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Remove old finished executions with their files. Executions paused for too long are ended or resumed."""
    try:
        age = parse_duration(older_than)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older-than") from error

    async def work(engine: Engine) -> int:
        if damaged:
            return await clean_damaged(engine, yes=yes, dry_run=dry_run, as_json=as_json)
        expired = [] if dry_run else await resume_expired(engine)
        finished = [s for s in ExecutionStatus if s.finished]
        heads = (await engine.executions(finished))[keep:]
        old = [head for head in heads if engine.clock.now() - head.updated_at > age]
        gone = [head.id for head in old]
        freed = 0 if dry_run else await engine.forget(*old)
        if as_json:
            print_json({"removed": gone, "expired": expired, "freed_bytes": freed})
        elif dry_run:
            for head in old:
                out(list_line(head, head.status))
        space = f"; {freed / 1e6:.1f} MB of disk space freed" if freed else ""
        say(f"{'would remove' if dry_run else 'removed'} {plural(len(gone), 'finished execution')}{space}")
        return 0

    raise CommandEnd(with_engine(work, home))


async def clean_damaged(engine: Engine, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Read every execution, and remove the damaged ones after asking. Gives the exit code."""
    async for _state in engine.states(await engine.executions()):
        """Read for damage alone."""
    found = sorted(engine.damaged.values(), key=lambda damage: damage.execution)
    for damage in found:
        say(f"{damage.execution}: event {damage.seq} cannot be read: {damage.reason}")
    if not (dry_run or yes) and found:
        _ask(len(found))
    gone, code = [], 0
    for damage in found:
        try:
            if not dry_run:
                await engine.forget(damage.execution)
            gone.append(damage.execution)
        except UsageError as error:  # it is being driven; the others go all the same
            code = max(code, report_error(error, as_json=False))
    if as_json:
        print_json({"removed": gone, "expired": []})
    say(f"{'would remove' if dry_run else 'removed'} {len(gone)} damaged executions")
    return code


def _ask(count: int) -> None:
    if not attended():
        raise NotPermitted(
            f"{count} damaged executions would be removed for good, with their checkpoint files",
            advice=("keep the checkpoint files that you may want to restore, then: windlass clean --damaged --yes",),
        )
    sys.stderr.flush()
    if not click.confirm(f"Remove {count} damaged executions for good, with their checkpoint files?", err=True):
        raise NotPermitted("nothing was removed")
