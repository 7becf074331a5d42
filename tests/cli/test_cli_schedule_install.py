"""`schedule install`: the system calls `schedule tick` once a minute, and what is written can be run (L1)."""

from __future__ import annotations

import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from due_plans import schedule_due_plan
from waiting import wait_until

from windlass.cli.schedule_install import SchedulerKind, TickCommand, scheduler_here, texts_of
from windlass.errors import UsageError

if TYPE_CHECKING:
    from conftest import Project, Windlass

CRONTAB = """#!/bin/sh
# The user's table, in a file, as crontab keeps it.
case "$1" in
  -l) cat "$HOME/table" 2>/dev/null || { echo "no crontab" >&2; exit 1; } ;;
  -) cat > "$HOME/table" ;;
esac
"""


def stand_in(project: Project, name: str, text: str) -> dict[str, str]:
    """A program of the system that this machine may not have; gives the PATH that leads to it."""
    folder = project.user / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{project.env['PATH']}"}


def test_l1_a_line_of_cron_is_added_once_and_starts_what_is_due(project: Project, windlass: Windlass) -> None:
    env = stand_in(project, "crontab", CRONTAB)
    (project.user / "table").write_text("0 1 * * * mine\n")
    schedule_due_plan(project, windlass)
    for _ in range(2):
        windlass("schedule", "install", "--with", "cron", **env)
    mine, line = (project.user / "table").read_text().splitlines()
    assert mine == "0 1 * * * mine"
    times, command = line[:10], line[10:].replace("\\%", "%")
    assert times == "* * * * * "
    subprocess.run(
        ["sh", "-c", command], cwd="/", env={"HOME": project.env["HOME"], "PATH": "/usr/bin:/bin"}, check=True
    )
    wait_until(lambda: project.lines("ran.txt") == ["ran"], "cron's command has started it")
    windlass("schedule", "install", "--with", "cron", "--remove", **env)
    assert (project.user / "table").read_text() == "0 1 * * * mine\n"


def test_l1_variables_that_a_timer_lacks_are_named_with_the_place_for_them(
    project: Project, windlass: Windlass
) -> None:
    env = stand_in(project, "crontab", CRONTAB)
    plan = """
    env: {SHARED: {from: SHARED_TOKEN}}
    triggers: [{id: night, cron: "0 3 * * *"}]
    steps: [{id: a, run: "true", env: {TOKEN: {from: SITE_TOKEN}, PLACE: {from: HOME}}}]
    """
    added = windlass("schedule", "add", project.plan(plan), SITE_TOKEN="x")
    assert "give it SITE_TOKEN, SHARED_TOKEN: windlass docs triggers\n" in added.err
    warning = "warning: scheduled plans have values from variables that cron does not have: "
    for words in (["--print"], []):
        told = windlass("schedule", "install", "--with", "cron", *words, SITE_TOKEN="x", **env).err
        assert f"{warning}SITE_TOKEN, SHARED_TOKEN\n" in told
        assert "  → write NAME=VALUE above the line of Windlass: crontab -e\n" in told
    table = project.user / "table"
    table.write_text(f"SITE_TOKEN = x\n{table.read_text()}")
    assert f"{warning}SHARED_TOKEN\n" in windlass("schedule", "install", "--with", "cron", **env).err
    assert table.read_text().startswith("SITE_TOKEN = x\n"), "it stands above the line of Windlass"


def test_l1_a_systemd_timer_is_written_enabled_and_taken_back(project: Project, windlass: Windlass) -> None:
    env = stand_in(project, "systemctl", '#!/bin/sh\necho "$@" >> "$HOME/called"\n')
    windlass("schedule", "install", "--with", "systemd", **env)
    folder = project.user / ".config" / "systemd" / "user"
    service, timer = sorted(folder.iterdir())
    assert f'"--home" "{project.home}"' in service.read_text()
    assert "OnCalendar=minutely" in timer.read_text()
    windlass("schedule", "install", "--with", "systemd", "--remove", **env)
    assert list(folder.iterdir()) == []
    assert (project.user / "called").read_text().splitlines() == [
        "--user daemon-reload",
        f"--user enable --now {timer.name}",
        f"--user disable --now {timer.name}",
        "--user daemon-reload",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_l1_systemd_reads_the_units_as_they_are_meant(tmp_path: Path) -> None:
    home = tmp_path / 'a "b" %c $d'
    texts = texts_of(SchedulerKind.SYSTEMD, TickCommand.of_home(home), {"HOME": str(tmp_path)})
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)}
    words = ["systemd-analyze", "verify", "--user", "--man=no", *map(str, texts)]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if "Failed to initialize manager" in ran.stderr:
        pytest.skip("systemd cannot check units on this machine")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_l1_the_texts_name_the_home_whatever_is_in_its_name(tmp_path: Path) -> None:
    command = TickCommand.of_home(tmp_path / "a b%c$d")
    (line,) = texts_of(SchedulerKind.CRON, command, {}).values()
    assert shlex.split(line.replace("\\%", "%"), comments=True)[-3] == str(tmp_path / "a b%c$d")
    (file, text), *_ = texts_of(SchedulerKind.LAUNCHD, command, {"HOME": "/home/ana"}).items()
    assert file == Path(f"/home/ana/Library/LaunchAgents/{command.name}.plist")
    told = plistlib.loads(text.encode())
    assert told["ProgramArguments"] == list(command.words)
    assert told["StartInterval"] == 60
    with pytest.raises(UsageError, match="line break"):
        TickCommand.of_home(tmp_path / "a\nb")


def test_l1_the_kind_is_the_one_that_this_machine_has(tmp_path: Path) -> None:
    assert scheduler_here({}) is SchedulerKind.CRON
    (tmp_path / "systemd").mkdir()
    found = scheduler_here({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert found is (SchedulerKind.SYSTEMD if shutil.which("systemctl") else SchedulerKind.CRON)


def test_l1_what_cannot_be_installed_says_what_to_do(project: Project, windlass: Windlass) -> None:
    nothing = {"PATH": str(project.user)}
    assert (
        "there is no program crontab here" in windlass("schedule", "install", "--with", "cron", code=2, **nothing).err
    )
    failing = stand_in(project, "systemctl", "#!/bin/sh\necho no bus >&2\nexit 1\n")
    told = windlass("schedule", "install", "--with", "systemd", code=2, **failing).err
    assert "systemctl --user daemon-reload failed: no bus" in told
    told = windlass("schedule", "install", code=2, WINDLASS_JOURNAL="postgresql://ana:secret@host/db").err
    assert "may hold a password" in told
    assert "schedule tick --home" in windlass("schedule", "install", "--with", "cron", "--print").out
