"""`doctor`, and homes that cannot be used: a clear error, exit code 1, nothing touched (C5, D2)."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from windlass.cli import doctor_fix
from windlass.cli.doctor import Finding
from windlass.homes import mark_home_as_ours
from windlass.journal.database import meaning

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "steps: [{id: a, run: 'true'}]"


def checks(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in told["checks"]}


def test_i1_doctor_says_what_is_present(project: Project, windlass: Windlass) -> None:
    told = windlass("doctor", "--json").json
    assert told["ok"] is True
    assert set(checks(told)) >= {"python", "sqlite", "home", "journal", "disk", "settings", "processes", "shell"}
    assert not project.home.exists(), "looking makes no home"
    windlass("run", project.plan(PLAN))
    ran = windlass("doctor")
    assert f"✓ journal: {project.home / 'windlass.db'}, 1 execution" in ran.out
    assert "✗" not in ran.out
    assert "✓ settings: no file, so the defaults hold; yours would be " in ran.out
    project.user_file("config.toml", "")
    settings = checks(windlass("doctor", "--json").json)["settings"]["detail"]
    assert settings.endswith("config.toml")
    assert str(project.home) not in settings, "it has none"


def test_g1_doctor_starts_a_worker_of_the_sandbox_and_leaves_nothing_behind(
    project: Project, windlass: Windlass
) -> None:
    told = checks(windlass("doctor", "--json").json)["sandbox"]
    assert (told["ok"], told["mend"]) == (True, "")
    assert told["detail"].startswith("programs are held by WebAssembly, ")
    assert "seccomp" in told["detail"]
    assert [path for path in project.user.rglob("*.cwasm")] == []
    assert not project.home.exists()


def test_g1_doctor_names_the_command_that_brings_a_missing_sandbox(project: Project, windlass: Windlass) -> None:
    # Python looks here first, and what it finds is none.
    project.file("aside/sitecustomize.py", "import sys\nsys.modules['wasmtime'] = None\n")
    told = checks(windlass("doctor", "--json", PYTHONPATH=str(project.path / "aside")).json)["sandbox"]
    assert (told["ok"], told["optional"], told["mend"]) == (False, True, "pip install 'windlass[code]'")
    assert "✗" not in windlass("doctor", PYTHONPATH=str(project.path / "aside")).out


def _file(project: Project) -> None:
    project.home.write_text("not a folder")


def _make_own(project: Project) -> None:
    project.home.mkdir()
    mark_home_as_ours(project.home, project.env)


def _shipped(project: Project) -> None:
    from windlass.journal.schema import open_database

    project.home.mkdir()
    open_database(project.home / "windlass.db").close()


def _foreign(project: Project) -> None:
    _make_own(project)
    db = sqlite3.connect(project.home / "windlass.db")
    db.execute("CREATE TABLE recipes (name TEXT)")
    db.commit()
    db.close()


def _letter(project: Project) -> None:
    _make_own(project)
    (project.home / "windlass.db").write_text("dear grandmother\n" * 100)


def _damaged(project: Project) -> None:
    from windlass.journal.schema import open_database

    _make_own(project)
    path = project.home / "windlass.db"
    open_database(path).close()
    content = bytearray(path.read_bytes())
    content[2048:] = b"\x5a" * (len(content) - 2048)
    path.write_bytes(content)


def _settings(project: Project) -> None:
    project.file(".windlass/config.toml", "gracee = 5\n")


def _not_toml(project: Project) -> None:
    project.file(".windlass/config.toml", "grace = \n")


@pytest.mark.parametrize(
    ("break_it", "check", "said", "code"),
    [
        (_file, "home", "not a folder", 4),
        (_shipped, "home", "you did not create it", 4),
        (_foreign, "journal", "another program", 1),
        (_letter, "journal", "not a database", 1),
        (_damaged, "journal", "damaged", 1),
        (_settings, "settings", "did you mean `grace`", 2),
        (_not_toml, "settings", "config.toml", 2),
    ],
)
def test_c5_a_broken_home_is_found_by_doctor_and_told_by_run_and_left_as_it_is(
    project: Project, windlass: Windlass, break_it: Any, check: str, said: str, code: int
) -> None:
    break_it(project)
    before = _contents(project.home)
    ran = windlass("doctor", "--json", code=1)
    found = checks(ran.json)[check]
    assert found["ok"] is False
    assert said in found["detail"]
    assert found["mend"], "the way to mend it is told"
    assert [name for name, other in checks(ran.json).items() if not (other["ok"] or other["optional"])] == [check]
    told = windlass("run", project.plan(PLAN), "--json", code=code)
    assert told.json["error"]["message"]
    assert str(project.home) in told.err
    looked = windlass("list", code=0 if check == "settings" else code)  # a list needs no settings
    assert looked.out == ""
    after = _contents(project.home)
    assert {name: after[name] for name in before} == before, "byte for byte"


def _contents(home: Path) -> dict[str, bytes]:
    if home.is_file():
        return {".": home.read_bytes()}
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.fixture
def read_only(project: Project, windlass: Windlass) -> Iterator[str]:
    """A home with an execution in it, on a file system that has become read-only."""
    windlass("run", project.plan(PLAN))
    home = str(project.home)
    bind = ["mount", "--bind", home, home]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("a read-only mount needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        yield home
    finally:
        subprocess.run(["umount", "-l", home], check=True)


def test_d2_a_read_only_home_is_told_and_doctor_names_it(project: Project, windlass: Windlass, read_only: str) -> None:
    for command in (["run", "plan.yaml"], ["list"]):
        ran = windlass(*command, code=1)
        assert "read-only" in ran.err
        assert "→" in ran.err, "and what to do about it"
    found = checks(windlass("doctor", "--json", code=1).json)
    assert found["home"]["ok"] is False


def test_c5_the_advice_for_a_home_on_a_read_only_disk_works(
    project: Project, windlass: Windlass, read_only: str
) -> None:
    advice = "copy the home to a disk that can be written, and name the copy: windlass --home DIR …"
    assert advice in windlass("list", code=1).err
    assert checks(windlass("doctor", "--json", code=1).json)["home"]["mend"] == advice
    shutil.copytree(read_only, project.path / "copy")
    assert "completed" in windlass("--home", "copy", "list").out


@pytest.mark.parametrize("lose", [Path.unlink, lambda journal: os.truncate(journal, 0)], ids=["deleted", "emptied"])
def test_d9_a_journal_that_was_deleted_or_emptied_at_rest_is_told(
    project: Project, windlass: Windlass, lose: Callable[[Path], None]
) -> None:
    windlass("run", project.plan(PLAN))
    (lost,) = (project.home / "executions").glob("*.json")
    lose(project.home / "windlass.db")
    for _ in range(2):  # the first look makes a new one
        found = checks(windlass("doctor", "--json", code=1).json)["journal"]
        assert (found["ok"], "checkpoint files" in found["detail"]) == (False, True)
        for listed in ((), ("--json",)):
            assert "the journal has lost them: windlass doctor" in windlass("list", *listed).err
        assert "has lost its executions" in windlass("schedule", "list", "--json").err
    assert "has lost its executions" in windlass("run", "plan.yaml", "--detach").err
    windlass("restore", lost)
    assert "completed" in windlass("list").out
    windlass("doctor")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "free space on the disk of "),
        (sqlite3.OperationalError("database or disk is full"), "free space on the disk of "),
        (sqlite3.OperationalError("disk I/O error"), "check the disk, and `ulimit -f`; "),
    ],
)
def test_c5_advice_about_a_disk_asks_for_a_resume_only_where_something_was_cut_off(
    tmp_path: Path, error: Exception, cause: str
) -> None:
    (advice,) = meaning(error, tmp_path / "windlass.db").advice
    assert advice.startswith(cause)
    assert advice.endswith("; an execution that was cut off: windlass resume ID")


def test_i1_doctor_fix_runs_the_command_for_what_is_wrong_and_checks_again(
    project: Project, windlass: Windlass
) -> None:
    """A home that others can read is made private; a sandbox that is only missing is left alone."""
    windlass("run", project.plan(PLAN))
    project.home.chmod(0o755)
    fixed = windlass("doctor", "--fix", "--yes")
    assert f"running: chmod 700 {project.home}" in fixed.err
    assert "pip install" not in fixed.err
    assert project.home.stat().st_mode & 0o777 == 0o700
    assert "other users" not in fixed.out
    assert f"✓ home: {project.home}\n" in fixed.out


def test_i1_doctor_fix_runs_nothing_unasked(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan(PLAN))
    project.home.chmod(0o755)
    assert "to run them unasked: --fix --yes" in windlass("doctor", "--fix", code=2).err
    assert project.home.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("mend", "command"),
    [
        ("pip install 'windlass[code]'", [sys.executable, "-m", "pip", "install", "windlass[code]"]),
        ("pip install 'windlass[agents]' or npm i -g x", [sys.executable, "-m", "pip", "install", "windlass[agents]"]),
        ("npm i -g @google/gemini-cli", ["npm", "i", "-g", "@google/gemini-cli"]),
        ("other users can read it: chmod 700 /a b; rm -rf c", ["chmod", "700", "/a b; rm -rf c"]),
    ],
)
def test_i1_doctor_fix_takes_commands_from_its_findings_as_words(
    mend: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(doctor_fix.shutil, "which", lambda program: program)
    monkeypatch.setattr(
        doctor_fix.subprocess, "run", lambda words, **_: ran.append([*words]) or SimpleNamespace(returncode=0)
    )
    wrong = [Finding("a", False, "", mend), Finding("b", False, "", mend), Finding("c", False, "", "think again")]
    assert doctor_fix.fix_findings(wrong, yes=True) == 1, "each once, and no advice for people"
    assert ran == [command]
    assert doctor_fix.fix_findings([Finding("a", False, "", mend, optional=True)], yes=True) == 0
