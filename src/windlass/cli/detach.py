"""Executions that go on in the background: a driver process of their own, and those that one left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from windlass.cli.session import out, print_json, say, suggest
from windlass.core import events as ev
from windlass.engine.engine import Engine

__all__ = ["drive_elsewhere", "offer_orphans", "send_off", "start_driver", "stopped_since"]


async def send_off(engine: Engine, execution: str, as_json: bool, *, yes: bool = False, no_wait: bool = False) -> int:
    """Continue it in the background, and say so."""
    log = await drive_elsewhere(engine, execution, yes=yes, no_wait=no_wait)
    try:
        if as_json:
            print_json({"id": execution, "log": log})
        else:
            out(execution)
            sys.stdout.flush()
    finally:  # also when the id cannot be written: nothing else names it
        suggest(f"Running in the background. Follow with: windlass watch {execution}")
    return 0


async def drive_elsewhere(engine: Engine, execution: str, *, yes: bool = False, no_wait: bool = False) -> str:
    """Let another process drive it: one of its own, whose log is given, or the workers of a cluster."""
    if engine.settings.temporal is None:
        return str(await start_driver(engine, execution, yes=yes, no_wait=no_wait))
    await engine.resume(execution, hold=yes)
    return ""


async def start_driver(engine: Engine, execution: str, *, yes: bool = False, no_wait: bool = False) -> Path:
    """Start a process of its own that drives the execution and outlives this one. Gives its log."""
    folder = engine.home / "executions" / execution
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / "driver.log"
    since = (await engine.state(execution)).seq
    # -P: a folder named `windlass` where one happens to stand is not us.
    command = [sys.executable, "-P", "-m", "windlass", "_drive", execution, "--home", str(engine.home)]
    command += ["--since", str(since), *(["--yes"] if yes else []), *(["--no-wait"] if no_wait else [])]
    _leave_running(command, log)
    return log


def _leave_running(command: list[str], log: Path) -> None:
    with log.open("ab") as output:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def offer_orphans(engine: Engine) -> None:
    """Resume or cancel executions paused for too long, and report those that a dead process left behind (D3, D6)."""
    for execution, what in await engine.sweep():
        if what == "resume":
            await start_driver(engine, execution)
            suggest(f"{execution} reached its pause limit and is running again: windlass watch {execution}")
        else:
            say(f"{execution} reached its pause limit and was cancelled")
    for head in await engine.orphans():
        suggest(f"{head.name} was cut off when its process died: windlass resume {head.id}")


async def stopped_since(engine: Engine, execution: str, since: int) -> bool:
    """Tell if the execution was paused or ended while its driver was still starting."""
    entries = await engine.journal.read(execution, since)
    return any(isinstance(entry.event, ev.ExecutionPaused | ev.ExecutionFinished) for entry in entries)
