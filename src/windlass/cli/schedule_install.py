"""`schedule install`: have the system call `windlass schedule tick` once a minute, by systemd, launchd or cron (L1).

Each kind has its texts, which are made of the command alone, and the programs that make the system read them.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from windlass.errors import UsageError

__all__ = [
    "EVERY_TIMER_HAS",
    "SchedulerKind",
    "TickCommand",
    "install_ticks",
    "missing_in_timer",
    "place_of_variables",
    "remove_ticks",
    "scheduler_here",
    "texts_of",
]


EVERY_TIMER_HAS = frozenset({"PATH", "HOME", "LOGNAME", "SHELL"})
"""Variables that need no place of their own."""


class SchedulerKind(StrEnum):
    SYSTEMD = "systemd"
    LAUNCHD = "launchd"
    CRON = "cron"


class TickCommand(NamedTuple):
    """The command that is called once a minute."""

    words: tuple[str, ...]
    path: str
    """The PATH of the steps: a timer has a short one of its own."""
    name: str
    """Its name for the system, one for each home."""

    @classmethod
    def of_home(cls, home: Path, env: Mapping[str, str] = os.environ) -> TickCommand:
        # -P: a folder named `windlass` where one happens to stand is not us.
        words = (sys.executable, "-P", "-m", "windlass", "schedule", "tick", "--home", str(home))
        name = f"windlass-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}"
        made = cls(words, env.get("PATH", os.defpath), name)
        if any("\n" in word for word in (*made.words, made.path)):
            raise UsageError("a path with a line break in it cannot stand in a timer")
        return made


def scheduler_here(env: Mapping[str, str] = os.environ) -> SchedulerKind:
    """The kind that this machine has: launchd on macOS, systemd where it runs for the user, else cron."""
    if sys.platform == "darwin":
        return SchedulerKind.LAUNCHD
    running = Path(env.get("XDG_RUNTIME_DIR") or "/nonexistent") / "systemd"
    return SchedulerKind.SYSTEMD if running.is_dir() and shutil.which("systemctl") else SchedulerKind.CRON


def texts_of(kind: SchedulerKind, command: TickCommand, env: Mapping[str, str] = os.environ) -> dict[Path, str]:
    """The files of a kind; of cron it is the one line that is added to the user's table."""
    home = Path(env.get("HOME") or Path.home())
    match kind:
        case SchedulerKind.SYSTEMD:
            folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"
            return {
                folder / f"{command.name}.service": _service(command),
                folder / f"{command.name}.timer": _TIMER,
            }
        case SchedulerKind.LAUNCHD:
            return {home / "Library" / "LaunchAgents" / f"{command.name}.plist": _agent(command)}
        case SchedulerKind.CRON:
            return {Path("crontab"): _cron_line(command)}


def missing_in_timer(kind: SchedulerKind, names: list[str]) -> list[str]:
    """Variables that the timer of a kind lacks now."""
    if not names:
        return []
    if kind is SchedulerKind.LAUNCHD:
        there = {name for name in names if _ask_system("launchctl", "getenv", name)}
    else:
        asked = ("crontab", "-l") if kind is SchedulerKind.CRON else ("systemctl", "--user", "show-environment")
        there = {line.partition("=")[0].strip(" \"'") for line in _ask_system(*asked).splitlines() if "=" in line}
    return [name for name in names if name not in there | EVERY_TIMER_HAS]


def place_of_variables(kind: SchedulerKind) -> str:
    """The place from which the timer of a kind takes variables."""
    match kind:
        case SchedulerKind.SYSTEMD:
            file = "~/.config/environment.d/windlass.conf"
            return f"write NAME=VALUE to {file}, readable by you alone, then: systemctl --user daemon-reload"
        case SchedulerKind.LAUNCHD:
            return "after each login: launchctl setenv NAME VALUE"
        case SchedulerKind.CRON:
            return "write NAME=VALUE above the line of Windlass: crontab -e"


def install_ticks(kind: SchedulerKind, command: TickCommand, env: Mapping[str, str] = os.environ) -> None:
    """Write the texts of a kind, and have the system read them. Done again, it changes nothing."""
    texts = texts_of(kind, command, env)
    if kind is SchedulerKind.CRON:
        _write_table([*_others(command), *texts.values()])
        return
    for file, text in texts.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {error.strerror}",
                advice=("print it, and save it yourself: windlass schedule install --print",),
            ) from error
    if kind is SchedulerKind.SYSTEMD:
        _call("systemctl", "--user", "daemon-reload")
        _call("systemctl", "--user", "enable", "--now", f"{command.name}.timer")
    else:
        (file,) = texts
        _call("launchctl", "unload", str(file), may_fail=True)
        _call("launchctl", "load", "-w", str(file))


def remove_ticks(kind: SchedulerKind, command: TickCommand, env: Mapping[str, str] = os.environ) -> None:
    """Take back what `install_ticks` did; nothing if it did nothing."""
    if kind is SchedulerKind.CRON:
        _write_table(_others(command))
        return
    files = list(texts_of(kind, command, env))
    if kind is SchedulerKind.SYSTEMD:
        _call("systemctl", "--user", "disable", "--now", f"{command.name}.timer", may_fail=True)
    else:
        _call("launchctl", "unload", "-w", str(files[0]), may_fail=True)
    for file in files:
        file.unlink(missing_ok=True)
    if kind is SchedulerKind.SYSTEMD:
        _call("systemctl", "--user", "daemon-reload")


_TIMER = """\
[Unit]
Description=Once a minute: start the plans of Windlass that are due

[Timer]
OnCalendar=minutely
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def _service(command: TickCommand) -> str:
    # KillMode=process: the executions that it has started go on after it.
    return f"""\
[Unit]
Description=Start the plans of Windlass that are due

[Service]
Type=oneshot
KillMode=process
Environment={_systemd_text(f"PATH={command.path}")}
ExecStart={" ".join(_systemd_word(word) for word in command.words)}
"""


def _systemd_word(word: str) -> str:
    """One word of a command in a unit file."""
    return _systemd_text(word).replace("$", "$$")


def _systemd_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _agent(command: TickCommand) -> str:
    told = {
        "Label": command.name,
        "ProgramArguments": list(command.words),
        "EnvironmentVariables": {"PATH": command.path},
        "StartInterval": 60,
        "AbandonProcessGroup": True,  # the executions that it has started go on after it
    }
    return plistlib.dumps(told).decode()


def _cron_line(command: TickCommand) -> str:
    line = shlex.join(["env", f"PATH={command.path}", *command.words])
    return f"* * * * * {line.replace('%', chr(92) + '%')} >/dev/null 2>&1 {_mark(command)}"


def _mark(command: TickCommand) -> str:
    return f"# {command.name}"


def _others(command: TickCommand) -> list[str]:
    """The lines of the user's table without ours."""
    listed = _call("crontab", "-l", may_fail=True)  # it fails where there is no table yet
    return [line for line in listed.splitlines() if not line.endswith(_mark(command))]


def _write_table(lines: list[str]) -> None:
    _call("crontab", "-", given="".join(f"{line}\n" for line in lines))


def _ask_system(*words: str) -> str:
    """Output of a program of the system; empty where it is not there or fails."""
    return _call(*words, may_fail=True) if shutil.which(words[0]) is not None else ""


def _call(*words: str, given: str = "", may_fail: bool = False) -> str:
    """Call a program of the system; gives what it printed."""
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"there is no program {words[0]} here",
            advice=(
                "choose another: windlass schedule install --with systemd|launchd|cron",
                "or let `windlass serve` run",
            ),
        )
    ran = subprocess.run(words, input=given, capture_output=True, text=True, check=False, timeout=60)
    if ran.returncode and not may_fail:
        raise UsageError(f"{shlex.join(words)} failed: {ran.stderr.strip() or f'exit code {ran.returncode}'}")
    return ran.stdout if not ran.returncode else ""
