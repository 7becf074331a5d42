"""Executions that go on in the background: a driver process of their own, and those that one left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from windlass.cli.session import out, print_json, say, suggest
from windlass.core import events as ev
from windlass.engine.engine import Engine
from windlass.errors import WindlassError
from windlass.homes import prepare_home

__all__ = ["drive_elsewhere", "offer_orphans", "resume_expired", "send_off", "start_driver", "stopped_since"]

LOOK_AGAIN = 0.02
"""Seconds between two looks at a driver that is starting."""


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
    """Start a process of its own that drives the execution and outlives this one. Gives its log once it has begun."""
    prepare_home(engine.home)  # a journal in PostgreSQL has executions of other homes
    folder = engine.home / "executions" / execution
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / "driver.log"
    since = (await engine.state(execution)).seq
    # -P: a folder named `windlass` where one happens to stand is not us.
    command = [sys.executable, "-P", "-m", "windlass", "_drive", execution, "--home", str(engine.home)]
    command += ["--since", str(since), *(["--yes"] if yes else []), *(["--no-wait"] if no_wait else [])]
    said_before = log.stat().st_size if log.exists() else 0
    driver = _leave_running(command, log)
    if not await _begins(engine, execution, since, driver):
        said = log.read_bytes()[said_before:].decode(errors="replace").strip()
        raise WindlassError(
            f"execution {execution} is saved, but its process did not start" + (f": {said}" if said else ""),
            advice=(f"windlass resume {execution}", f"see its log: {log}"),
        )
    return log


def _leave_running(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def _begins(engine: Engine, execution: str, since: int, driver: subprocess.Popen[bytes]) -> bool:
    """Wait for the first event that the driver writes: an execution that nothing drives is not called a running one."""
    while True:
        ended = driver.poll() is not None
        if await engine.journal.read(execution, since):
            return True
        if ended:
            return False
        await asyncio.sleep(LOOK_AGAIN)


async def resume_expired(engine: Engine) -> list[str]:
    """End or resume executions paused for too long, and say so (D3). Gives their ids."""
    expired = await engine.sweep()
    for execution, what in expired:
        if what != "resume":
            say(f"{execution} reached its pause limit and was cancelled")
            continue
        try:
            await start_driver(engine, execution)
        except WindlassError as error:
            say(f"{execution} reached its pause limit, but: {error.message}")
        else:
            suggest(f"{execution} reached its pause limit and is running again: windlass watch {execution}")
    return [execution for execution, _ in expired]


async def offer_orphans(engine: Engine) -> None:
    """Report executions that were lost with the journal (D9), and those that a dead process left behind, after those
    that were paused for too long (D3, D6)."""
    if loss := await engine.journal_loss():
        say(f"warning: {loss}")
    await resume_expired(engine)
    for head in await engine.orphans():
        suggest(f"{head.name} was cut off when its process died: windlass resume {head.id}")


async def stopped_since(engine: Engine, execution: str, since: int) -> bool:
    """Tell if the execution was paused or ended while its driver was still starting."""
    entries = await engine.journal.read(execution, since)
    return any(isinstance(entry.event, ev.ExecutionPaused | ev.ExecutionFinished) for entry in entries)
