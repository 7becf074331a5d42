"""`backup`, and `restore` of a whole home."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    out,
    print_json,
    refuse_postgres,
    remember_home,
    say,
    stores_of,
    suggest,
)

if TYPE_CHECKING:
    from windlass.journal.deepcheck import DeepCheck
    from windlass.ports.triggers import ScheduledPlan

__all__ = ["register", "restore_home"]


def register(app: Group) -> None:
    app.add(backup)


def backup(
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write")],
    artifacts: Annotated[bool, Option("--artifacts", help="Include the files that steps saved")] = False,
    force: Annotated[bool, Option("--force", help="Overwrite FILE")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Write the whole home to one file, while executions run. `restore` makes a home from it."""
    from windlass.clock import SystemClock
    from windlass.homes import find_home
    from windlass.journal.backup import write_backup

    if home:
        remember_home(home)
    refuse_postgres("backup", "write a dump: pg_dump --format=custom --file=FILE URL; the home's files: tar")
    written = write_backup(find_home(home), file, now=SystemClock().now(), artifacts=artifacts, force=force)
    if as_json:
        print_json({"path": str(written.path), "bytes": written.size, **_figures(written.checked)})
    else:
        out(str(written.path))
    say(f"{_counted(written.checked)}, {written.size} bytes")
    _warn(written.checked)
    raise CommandEnd(0)


def restore_home(file: Path, home: str | None, as_json: bool) -> NoReturn:
    """`restore` of a backup: into a home that is not there yet, or has no executions."""
    from windlass.homes import find_home
    from windlass.journal.backup import restore_backup

    if home:
        remember_home(home)
    refuse_postgres("restore of a backup", "restore into a home of its own, then: windlass journal copy FROM TO")
    made = restore_backup(file, find_home(home))
    if as_json:
        aside = str(made.set_aside) if made.set_aside is not None else None
        print_json({"home": str(made.home), "set_aside": aside, **_figures(made.checked)})
    else:
        out(str(made.home))
    say(f"restored {_counted(made.checked)}")
    if made.set_aside is not None:
        say(f"the previous home was moved to {made.set_aside}")
    _warn(made.checked)
    if running := asyncio.run(_running(made.home)):
        counted = "1 execution was" if running == 1 else f"{running} executions were"
        say(f"{counted} running: `windlass serve` in this home, too, resumes those of a server")
        suggest("if the other home goes on: windlass list --status running, then for each: windlass cancel ID")
    if plans := asyncio.run(_scheduled(made.home)):
        counted = "1 plan is" if len(plans) == 1 else f"{len(plans)} plans are"
        say(f"{counted} scheduled in it, and will start from this home, too, by `windlass serve` or a tick")
        suggest("if the other home goes on: windlass schedule list, then for each: windlass schedule remove PLAN")
    suggest("next: windlass list")
    raise CommandEnd(0)


async def _running(home: Path) -> int:
    journal = stores_of(home).journal()
    try:
        return len(await journal.heads(statuses=["running"], limit=0))
    finally:
        await journal.close()


async def _scheduled(home: Path) -> list[ScheduledPlan]:
    store = stores_of(home).triggers()
    try:
        return await store.plans()
    finally:
        await store.close()


def _figures(checked: DeepCheck) -> dict[str, object]:
    faults = [{"where": fault.where, "seq": fault.seq, "reason": fault.reason} for fault in checked.faults]
    return {"executions": checked.executions, "events": checked.events, "faults": faults}


def _counted(checked: DeepCheck) -> str:
    count = "1 execution" if checked.executions == 1 else f"{checked.executions} executions"
    return f"{count}, {checked.events} events"


def _warn(checked: DeepCheck) -> None:
    """Name the executions that were damaged before, and so are in the copy."""
    for fault in checked.faults[:20]:
        place = f"event {fault.seq}: " if fault.seq is not None else ""
        say(f"warning: {fault.where} is damaged: {place}{fault.reason}")
