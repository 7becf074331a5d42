"""`doctor`: checks the parts that Windlass needs or can use, with advice where one is missing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from windlass.cli.command import Group, Option
from windlass.cli.install_advice import fitting_install
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, refuse_postgres, stores_of
from windlass.homes import HomeJudgement, has_checkpoints
from windlass.homes.journal_url import find_journal

__all__ = ["register"]

MOST_TROUBLES = 5
"""Notifications that did not arrive, named one by one."""
_LIST_NOTES = "see them: windlass notify list"
MOST_FAULTS = 1000
"""Faults of the deep check that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    detail: str
    mend: str = ""
    optional: bool = False
    """Nothing is wrong if it is missing."""

    @property
    def mark(self) -> str:
        return "✓" if self.ok else "–" if self.optional else "✗"


def register(app: Group) -> None:
    app.add(doctor)


def doctor(
    deep: Annotated[bool, Option("--deep", help="Read everything in the home and check it for damage")] = False,
    fix: Annotated[bool, Option("--fix", help="Ask, run the commands that fix what is found, and check again")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --fix: fix what is wrong without asking")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Check this machine and this home; exit code 1 if something is wrong."""
    findings = _findings(deep, home)
    if fix:
        from windlass.cli.doctor_fix import fix_findings

        if fix_findings(findings, yes):
            raise CommandEnd(_check_again(deep, as_json, home))
    fine = all(finding.ok or finding.optional for finding in findings)
    if as_json:
        print_json({"ok": fine, "checks": [asdict(f) for f in findings]})
    else:
        for finding in findings:
            out(f"{finding.mark} {finding.name}: {fitting_install(finding.detail)}")
            if finding.mend:
                out(f"    → {fitting_install(finding.mend)}")
    raise CommandEnd(0 if fine else 1)


def _check_again(deep: bool, as_json: bool, home: str | None) -> int:
    """Check in a new process, which sees packages that were installed since this one began."""
    flags = [*(["--deep"] if deep else []), *(["--json"] if as_json else []), *(["--home", home] if home else [])]
    main = "from windlass.cli.entry import main; main()"
    return subprocess.run([sys.executable, "-c", main, "doctor", *flags], check=False).returncode


def _findings(deep: bool, home: str | None) -> list[Finding]:
    from windlass.homes import locate

    judgement = locate(home)
    folder = judgement.home
    deeply = _deep(folder) if deep and not judgement.reason else []  # first: before anybody opens the database
    findings = [_python(), _sqlite(), _home(judgement), _space(folder)]
    if not judgement.reason:  # else nothing in it is believed
        findings += [_journal(folder), _settings(folder)]
        findings += [*_traces(folder), *asyncio.run(_notifications(folder))]
    findings += [_containment(), *_layers(), _shell(), asyncio.run(_sandbox())]
    findings += asyncio.run(_runtimes(folder if not judgement.reason else None))
    return findings + deeply


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", True, f"{version} at {sys.executable}")


def _sqlite() -> Finding:
    new_enough = sqlite3.sqlite_version_info >= (3, 31)
    mend = "" if new_enough else "use a Python built with SQLite 3.31 or newer"
    return Finding("sqlite", new_enough, sqlite3.sqlite_version, mend)


def _home(judgement: HomeJudgement) -> Finding:
    folder = judgement.home
    if judgement.reason:
        return Finding("home", False, f"{folder} is not used: {judgement.reason}", "; ".join(judgement.advice))
    if not folder.exists():
        parent = next(p for p in folder.parents if p.exists())
        writable = os.access(parent, os.W_OK)
        mend = "" if writable else f"choose another: windlass --home DIR …, or chmod u+w {parent}"
        return Finding("home", writable, f"{folder} (created on the first run)", mend)
    writable = os.access(folder, os.W_OK)
    private = folder.stat().st_mode & 0o077 == 0
    if not writable:
        from windlass.journal.database import COPY_HOME, on_read_only_disk

        if on_read_only_disk(folder / "windlass.db"):
            return Finding("home", False, f"{folder} is on a read-only disk", COPY_HOME)
        return Finding("home", False, f"{folder} cannot be written", f"chmod u+w {folder}")
    mend = "" if private else f"other users of this machine can read it: chmod 700 {folder}"
    return Finding("home", True, str(folder), mend)


def _journal(folder: Path) -> Finding:
    from windlass.errors import WindlassError
    from windlass.journal.database import translate
    from windlass.journal.schema import open_database

    try:
        if (url := find_journal()) is not None:
            return Finding("journal", True, f"{url}, {asyncio.run(_count(folder))} executions")
    except WindlassError as error:
        return Finding("journal", False, error.message, "; ".join(error.advice))
    path = folder / "windlass.db"
    without_executions = Finding("journal", True, f"{path}, 0 executions" if path.exists() else "none yet")
    if has_checkpoints(folder):
        told = f"{path} has no executions, and there are checkpoint files of some: it was deleted, emptied or replaced"
        mend = "put it back, or restore a backup; `windlass doctor --deep` names what can be restored without one"
        without_executions = Finding("journal", False, told, mend)
    if not path.exists():
        return without_executions
    try:
        with translate(path), closing(open_database(path)) as db:
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            count = db.execute("SELECT count(*) FROM executions").fetchone()[0]
    except WindlassError as error:
        return Finding("journal", False, error.message, "; ".join(error.advice))
    if verdict != "ok":
        return Finding("journal", False, f"damaged: {verdict}", "windlass restore FILE in a new home")
    return Finding("journal", True, f"{path}, {count} executions") if count else without_executions


async def _count(folder: Path) -> int:
    journal = stores_of(folder).journal()
    try:
        return sum((await journal.counts()).values())
    finally:
        await journal.close()


def _deep(folder: Path) -> list[Finding]:
    """Read everything in the home; each fault is a finding of its own."""
    from windlass.errors import WindlassError
    from windlass.journal.deepcheck import check_home

    try:
        refuse_postgres(
            "doctor --deep", "check the tables themselves, as a superuser: pg_amcheck --install-missing DATABASE"
        )
        checked = check_home(folder)
    except WindlassError as error:
        return [Finding("deep check", False, error.message, "; ".join(error.advice))]
    read = f"{checked.executions} executions, {checked.events} events, {checked.checkpoints} checkpoint files"
    if not checked.faults:
        return [Finding("deep check", True, f"{read}, no damage")]
    mend = "damaged executions: windlass restore FILE, or windlass clean --damaged; anything else: restore a backup"
    found = [Finding("deep check", False, f"{read}; {len(checked.faults)} faults", mend)]
    for where, reason, seq in checked.faults[:MOST_FAULTS]:
        found.append(Finding(where, False, reason if seq is None else f"event {seq}: {reason}"))
    return found


def _space(folder: Path) -> Finding:
    place = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(place).free
    ok = free > 200 * 1024 * 1024
    mend = "" if ok else "free some space, or remove old executions: windlass clean"
    return Finding("disk", ok, f"{free / 1024**3:.1f} GiB free", mend)


def _settings(folder: Path) -> Finding:
    from windlass.errors import WindlassError
    from windlass.homes import user_folder
    from windlass.settings import load_settings

    try:
        load_settings(folder)
    except WindlassError as error:
        return Finding("settings", False, error.message, "correct the file named above")
    files = [path / "config.toml" for path in (folder, user_folder())]
    found = ", ".join(str(file) for file in files if file.exists())
    return Finding("settings", True, found or f"no file, so the defaults hold; yours would be {files[1]}")


def _traces(folder: Path) -> list[Finding]:
    """Ask the endpoint for traces, where there is one. Executions run all the same if it does not answer."""
    from windlass.assembly import trace_problem
    from windlass.errors import WindlassError
    from windlass.settings import load_settings

    try:
        settings = load_settings(folder)
    except WindlassError:  # told of already
        return []
    problem, endpoint = trace_problem(settings), settings.telemetry.endpoint
    if problem is None:
        return []
    if problem:
        mend = "start it, or correct `telemetry` in your settings; executions run without it, and their spans are lost"
        return [Finding("traces", False, f"{endpoint} cannot be used: {problem}", mend)]
    return [Finding("traces", True, f"{endpoint} answers")]


LATELY = 7 * 86400.0
"""Seconds for which notifications that did not arrive are reported."""


async def _notifications(folder: Path) -> list[Finding]:
    """Check the rules for notifications, if there are any, and what became of the last notifications."""
    from windlass.clock import SystemClock
    from windlass.errors import ToolError, WindlassError
    from windlass.settings import load_settings

    try:
        settings = load_settings(folder)
        if not settings.notify:
            return []
        from windlass.cli.notify import entries_of
        from windlass.notify.channels import Channels
        from windlass.notify.notifier import troubles_of
        from windlass.process import Supervisor

        clock, found = SystemClock(), list[Finding]()
        async with Supervisor() as processes:
            channels = Channels(settings.messages, settings.notify, folder, processes, clock.now)
            for number, rule in enumerate(settings.notify, 1):
                name = f"notify {number}"
                try:
                    found.append(Finding(name, True, f"{await channels.check(rule)}, on {', '.join(rule.on)}"))
                except ToolError as error:
                    found.append(Finding(name, False, str(error), "; ".join(error.failure.advice)))
        troubles = list(troubles_of(await entries_of(folder, clock.now() - LATELY)))
        found += [Finding("notification", False, trouble, optional=True) for trouble in troubles[:MOST_TROUBLES]]
        if len(troubles) > MOST_TROUBLES:
            found.append(Finding("notifications", False, f"{len(troubles)} did not arrive", _LIST_NOTES, optional=True))
    except WindlassError:
        return []  # told of already: the settings or the journal cannot be read
    return found


def _containment() -> Finding:
    from windlass.process import containment

    found = containment()
    return Finding("processes", True, f"{found.mechanism}. {found.limits}")


def _layers() -> list[Finding]:
    """Report further layers around a step's processes; a missing one is no fault."""
    from windlass.process import layers

    return [Finding(layer.name, layer.active, layer.detail, optional=True) for layer in layers()[1:]]


async def _sandbox() -> Finding:
    """Start a worker for real; compiled code is thrown away unless the cache exists already."""
    from windlass.assembly import cache_folder
    from windlass.process import Supervisor
    from windlass.sandbox.programs import WasmSandbox

    with tempfile.TemporaryDirectory() as aside:
        cache = cache_folder()
        async with Supervisor() as supervisor:
            sandbox = WasmSandbox(supervisor, cache if cache.is_dir() else Path(aside))
            health = await sandbox.health()
            await sandbox.close()
    return Finding("sandbox", health.ok, health.detail, health.advice, optional=True)


async def _runtimes(folder: Path | None) -> list[Finding]:
    """Check each runtime for agents by running its program. One that the settings name is needed."""
    from windlass.assembly.agents import runtimes
    from windlass.errors import WindlassError
    from windlass.process import Supervisor
    from windlass.settings import Settings, load_settings

    try:
        settings = load_settings(folder) if folder is not None else Settings()
    except WindlassError:  # told of already
        settings = Settings()
    found: list[Finding] = []
    # Looking makes no home: what the runtimes keep while they are asked is thrown away.
    with tempfile.TemporaryDirectory() as aside:
        async with Supervisor() as supervisor:
            known = runtimes(settings, Path(aside), supervisor)
            for name in known:
                health = await known[name].available()
                optional = settings.runtime != name
                ready = health.ok and not health.unset
                found.append(Finding(f"runtime {name}", ready, health.detail, health.advice, optional))
            await known.close()
    return found


def _shell() -> Finding:
    path = shutil.which("sh")
    mend = "" if path else "install a POSIX shell, or use `run: [program, argument]` only"
    return Finding("shell", path is not None, path or "no sh on the PATH", mend)
