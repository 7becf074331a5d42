"""Every command before a home that came with a repository, and `adopt`, as processes (C6, D6)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shipped import TRACE, ship_home
from waiting import PATIENCE

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "steps: [{id: a, run: 'true'}]"
COMMANDS = [
    *("run plan.yaml", "run --detach plan.yaml", "resume ID", "watch ID", "status", "status ID", "list", "logs ID"),
    *("approvals", "pause ID", "interrupt ID", "cancel ID", "approve ID a", "budget", "checkpoint ID", "restore FILE"),
    *("fork ID", "clean", "serve --port 0", "undo ID a", "tools", "tools run files.read", "tools check"),
    *("plan check plan.yaml", "demo", "_drive ID"),
]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FORKS = """
import json, os, sys
import windlass.assembly
from windlass.cli.app import run_app
ended = {}
for command in json.load(sys.stdin):
    child = os.fork()
    if not child:
        said = os.open("said.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv = ["windlass", *command]
        run_app()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended[" ".join(command)] = [code, open("said.txt").read()]
print(json.dumps(ended))
"""
"""Runs each command in a process of its own, with the imports done once for all."""


def test_d6_no_command_uses_a_home_that_came_with_a_repository(project: Project) -> None:
    execution = ship_home(project.home, project.path, expired=True)
    (project.home / "config.toml").write_text('on_pause_expiry = "resume"\n')
    project.plan(PLAN)
    before = content(project.home)
    words = [[{"ID": execution}.get(word, word) for word in command.split()] for command in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", FORKS], input=json.dumps(words), env=project.env, capture_output=True, text=True
    )
    ended = json.loads(done.stdout)
    assert len(ended) == len(COMMANDS)
    for command, (code, said) in ended.items():
        assert code == 4, f"{command}: {said}"
        assert "you did not create it" in said, command
        assert f"windlass adopt {project.home}" in said, command
        assert execution not in said, command
    assert content(project.home) == before
    assert not (project.path / TRACE).exists()


def test_d6_serve_goes_on_with_an_adopted_home_and_not_before(
    project: Project, windlass: Windlass, until: Callable[..., Any]
) -> None:
    execution = ship_home(project.home, project.path)
    windlass("serve", "--port", "0", code=4)
    assert not (project.path / TRACE).exists()
    refused = windlass("adopt", code=4)
    assert f"{execution}  shipped  paused (restart)" in refused.err
    assert f'next: {{"id": "a", "run": "touch {TRACE}"}}' in refused.err
    windlass("list", code=4)
    assert windlass("adopt", "--yes", "--json").json["adopted"] is True
    assert windlass("adopt", "--json").json["adopted"] is False
    assert execution in windlass("list").out
    server = windlass.background("serve", "--port", "0")
    try:
        until((project.path / TRACE).exists, "the server goes on with it")
    finally:
        server.process.terminate()
        server.process.wait(PATIENCE)


def test_d6_adopt_asks_and_takes_no_for_an_answer(project: Project, windlass: Windlass) -> None:
    ship_home(project.home, project.path)
    terminal = windlass.terminal("adopt", project.path)
    terminal.expect("Adopt it?")
    terminal.type("n\n")
    assert terminal.ended().code == 4
    windlass("list", code=4)


def test_d6_adopt_sets_modes_right_and_takes_over_no_token(project: Project, windlass: Windlass) -> None:
    ship_home(project.home, project.path)
    project.home.chmod(0o777)
    (project.home / "server.token").write_text("a token that its sender knows")
    (project.home / "config.toml").write_text('grace = "1s"\n# \x1b[2J')
    windlass("list", code=4)
    ran = windlass("adopt", "--yes", "--json")
    assert "  # \\u001b[2J" in ran.err
    assert project.home.stat().st_mode & 0o777 == 0o700
    assert not (project.home / "server.token").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_d6_a_home_of_another_user_cannot_be_adopted(project: Project, windlass: Windlass) -> None:
    ship_home(project.home, project.path)
    os.chown(project.home, 65534, 65534)
    assert "belongs to another user" in windlass("adopt", "--yes", code=4).err


def test_d6_a_database_with_a_trigger_is_not_adopted(project: Project, windlass: Windlass) -> None:
    ship_home(project.home, project.path)
    db = sqlite3.connect(project.home / "windlass.db")
    db.execute("CREATE TRIGGER more AFTER INSERT ON events BEGIN DELETE FROM events; END")
    db.close()
    assert "has a trigger (more)" in windlass("adopt", "--yes", code=4).err


def test_c6_a_step_cannot_adopt_a_home(project: Project, windlass: Windlass) -> None:
    ship_home(project.path / "clone/.windlass", project.path)
    ran = windlass("run", project.plan("steps: [{id: a, run: windlass adopt --yes clone}]"), code=1)
    assert "--yes has no effect here" in ran.err
    windlass("--home", "clone/.windlass", "list", code=4)
