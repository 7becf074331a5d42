"""Which homes are used: about thirty forms of a folder that looks like one, before the one gate (C6, D6)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from shipped import ship_home
from waiting import PATIENCE

import windlass
from windlass.errors import NotPermitted, WindlassError
from windlass.homes import find_home, locate, mark_home_as_ours, prepare_home, user_folder

if TYPE_CHECKING:
    from conftest import Project

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
Form = Callable[["Project"], None]


def own(project: Project) -> None:
    """A home of the user's own, with a journal."""
    prepare_home(project.home)
    ship_home(project.home, project.path)


def shipped(project: Project) -> None:
    ship_home(project.home, project.path)


def config_only(project: Project) -> None:
    project.home.mkdir()
    (project.home / "config.toml").write_text("grace = 1\n")


def gates_only(project: Project) -> None:
    project.home.mkdir()
    (project.home / "gates.db").write_bytes(b"")


def executions_only(project: Project) -> None:
    (project.home / "executions").mkdir(parents=True)


def world_writable(project: Project) -> None:
    own(project)
    project.home.chmod(0o777)


def world_writable_database(project: Project) -> None:
    own(project)
    (project.home / "windlass.db").chmod(0o666)


def group_writable_parent(project: Project) -> None:
    own(project)
    os.chown(project.path, -1, 12345)
    project.path.chmod(0o775)


def world_writable_parent(project: Project) -> None:
    project.path.chmod(0o777)  # and no home in it yet


def linked_out(project: Project) -> None:
    other = project.path.parent / "other"
    prepare_home(other)
    project.home.symlink_to(other)


def linked_to_shipped(project: Project) -> None:
    ship_home(project.path / "state", project.path)
    project.home.symlink_to("state")


def linked_database(project: Project) -> None:
    prepare_home(project.home)
    ship_home(project.path / "elsewhere", project.path)
    (project.home / "windlass.db").symlink_to("../elsewhere/windlass.db")


def linked_config(project: Project) -> None:
    prepare_home(project.home)
    (project.home / "config.toml").symlink_to("/etc/hostname")


def hard_linked_database(project: Project) -> None:
    own(project)
    os.link(project.home / "windlass.db", project.path / "copy.db")


def fifo_database(project: Project) -> None:
    prepare_home(project.home)
    os.mkfifo(project.home / "windlass.db")


def fifo_proof(project: Project) -> None:
    shipped(project)
    os.mkfifo(project.home / "home.json")


def folder_as_proof(project: Project) -> None:
    shipped(project)
    (project.home / "home.json").mkdir()


def linked_proof(project: Project) -> None:
    own(project)
    (project.home / "home.json").rename(project.path / "home.json")
    (project.home / "home.json").symlink_to("../home.json")


def proof_of_another_key(project: Project) -> None:
    shipped(project)
    mark_home_as_ours(project.home, {"HOME": str(project.path.parent / "mallory")})
    prepare_home(project.path.parent / "mine")  # so that this user has a key, too


def proof_without_a_key(project: Project) -> None:
    shipped(project)
    mark_home_as_ours(project.home, {"HOME": str(project.path.parent / "mallory")})


def edited_id(project: Project) -> None:
    own(project)
    told = json.loads((project.home / "home.json").read_text())
    (project.home / "home.json").write_text(json.dumps({**told, "id": "0" * 32}))


def truncated_proof(project: Project) -> None:
    own(project)
    os.truncate(project.home / "home.json", 40)


def empty_proof(project: Project) -> None:
    own(project)
    os.truncate(project.home / "home.json", 0)


def shortened_signature(project: Project) -> None:
    own(project)
    told = json.loads((project.home / "home.json").read_text())
    (project.home / "home.json").write_text(json.dumps({**told, "proof": told["proof"][:8]}))


def strange_proof(project: Project) -> None:
    shipped(project)
    (project.home / "home.json").write_text("[" * 4000)


def file_as_home(project: Project) -> None:
    project.home.write_text("not a folder")


def readable_key(project: Project) -> None:
    own(project)
    (user_folder() / "home.key").chmod(0o644)


def empty_key(project: Project) -> None:
    own(project)
    os.truncate(user_folder() / "home.key", 0)


def damaged_key(project: Project) -> None:
    own(project)
    (user_folder() / "home.key").write_text("x" * 64)


def folder_as_key(project: Project) -> None:
    own(project)
    (user_folder() / "home.key").unlink()
    (user_folder() / "home.key").mkdir(mode=0o700)


def linked_key(project: Project) -> None:
    own(project)
    (user_folder() / "home.key").rename(project.user / "key")
    (user_folder() / "home.key").symlink_to(project.user / "key")


def open_key_folder(project: Project) -> None:
    own(project)
    user_folder().chmod(0o777)


def given_away(project: Project) -> None:
    own(project)
    os.chown(project.home, NOBODY, NOBODY)


def given_away_database(project: Project) -> None:
    own(project)
    os.chown(project.home / "windlass.db", NOBODY, NOBODY)


def given_away_parent(project: Project) -> None:
    own(project)
    os.chown(project.path, NOBODY, NOBODY)


def given_away_key(project: Project) -> None:
    own(project)
    os.chown(user_folder() / "home.key", NOBODY, NOBODY)


FORMS = [
    pytest.param(shipped, "you did not create it, and it contains windlass.db", id="shipped in a clone"),
    pytest.param(config_only, "it contains config.toml", id="settings alone"),
    pytest.param(gates_only, "it contains gates.db", id="kept answers alone"),
    pytest.param(executions_only, "it contains executions", id="executions alone"),
    pytest.param(world_writable, "can be written by every user", id="home that everybody writes to"),
    pytest.param(world_writable_database, "windlass.db can be written by every user", id="database, too"),
    pytest.param(group_writable_parent, "can be written by its group", id="folder above, by a group", marks=as_root),
    pytest.param(world_writable_parent, "can be written by every user", id="folder above, by everybody"),
    pytest.param(linked_out, "it is a link to", id="link out of its folder"),
    pytest.param(linked_to_shipped, "you did not create it", id="link to a shipped one"),
    pytest.param(linked_database, "windlass.db is a link", id="linked database"),
    pytest.param(linked_config, "config.toml is a link", id="linked settings"),
    pytest.param(hard_linked_database, "is a hard link", id="hard-linked database"),
    pytest.param(fifo_database, "is not a regular file", id="FIFO as database"),
    pytest.param(fifo_proof, "is not a regular file", id="FIFO as proof"),
    pytest.param(folder_as_proof, "is not a regular file", id="folder as proof"),
    pytest.param(linked_proof, "home.json cannot be read", id="linked proof"),
    pytest.param(proof_of_another_key, "with another key", id="proof of another key"),
    pytest.param(proof_without_a_key, "you have no key yet", id="proof of another, and no key"),
    pytest.param(edited_id, "with another key", id="edited id"),
    pytest.param(truncated_proof, "home.json is damaged", id="truncated proof"),
    pytest.param(empty_proof, "home.json is damaged", id="empty proof"),
    pytest.param(shortened_signature, "with another key", id="shortened signature"),
    pytest.param(strange_proof, "home.json is damaged", id="deep JSON as proof"),
    pytest.param(file_as_home, "it is not a folder", id="a file"),
    pytest.param(readable_key, "can be used by other users", id="key that others read"),
    pytest.param(empty_key, "contains no key", id="empty key"),
    pytest.param(damaged_key, "contains no key", id="damaged key"),
    pytest.param(folder_as_key, "contains no key", id="folder as key"),
    pytest.param(linked_key, "cannot be read", id="linked key"),
    pytest.param(open_key_folder, "the key of your homes cannot be trusted", id="open folder of the key"),
    pytest.param(given_away, "belongs to another user", id="home of another user", marks=as_root),
    pytest.param(given_away_database, "belongs to another user", id="database of another user", marks=as_root),
    pytest.param(given_away_parent, "belongs to another user", id="folder above of another user", marks=as_root),
    pytest.param(given_away_key, "belongs to another user", id="key of another user", marks=as_root),
]


@pytest.mark.parametrize(("make", "said"), FORMS)
def test_d6_a_home_that_is_not_its_users_own_is_refused_by_name(project: Project, make: Form, said: str) -> None:
    make(project)
    if make is linked_out:
        assert find_home(project.home) == project.path.parent / "other", "a link that its user has named is followed"
    named = None if make is linked_out else project.home
    for start in (lambda: find_home(named), lambda: windlass.open(make=False), lambda: windlass.open()):
        with pytest.raises(WindlassError) as refused:
            start()
        assert said in refused.value.message
        assert refused.value.exit_code == 4
        assert refused.value.advice


@pytest.mark.parametrize("make", [shipped, world_writable, config_only, linked_to_shipped])
def test_d6_a_foreign_home_above_is_passed_over_with_a_warning(
    project: Project, make: Form, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make(project)
    (project.path / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(project.path / "deep/er")
    assert find_home() == project.path / "deep/er/.windlass"
    assert "ignoring the home" in caplog.text


def test_d6_a_database_beside_a_proof_from_another_home_is_refused(project: Project) -> None:
    own(project)
    clone = project.path / "clone/.windlass"
    ship_home(clone, project.path)
    shutil.copy(project.home / "home.json", clone / "home.json")
    with pytest.raises(NotPermitted, match="no id of a home"):
        windlass.open(clone)
    prepare_home(project.path / "third")
    shutil.copy(project.home / "windlass.db", project.path / "third/windlass.db")
    with pytest.raises(NotPermitted, match="the id of another one"):
        windlass.open(project.path / "third")


def test_d6_a_home_moves_with_its_folder_and_a_copy_of_it_is_as_good(project: Project) -> None:
    own(project)
    shutil.copytree(project.home, project.path / "backup")
    project.home.rename(project.path / "moved")
    for home in ("backup", "moved"):
        assert find_home(home) == project.path / home
        assert locate(home).marked


def test_d6_a_repository_may_ship_roles_and_composed_tools_and_the_first_run_makes_the_home(project: Project) -> None:
    project.file(".windlass/agents/helper.md", "Help.\n")
    project.file(".windlass/composed-tools/words.js", "")
    assert not locate().marked
    assert find_home() == project.home
    prepare_home(project.home)
    assert locate().marked


def test_d6_the_group_of_a_user_alone_is_no_stranger(project: Project) -> None:
    own(project)
    project.path.chmod(0o775)  # a umask of 002, with the user's own group
    assert find_home() == project.home


@as_root
def test_d6_a_home_without_a_place_for_the_key_is_refused_with_the_reason(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.path / "file"))
    with pytest.raises(NotPermitted, match="the key of your homes cannot be created in "):
        prepare_home(project.home)
    assert not (project.home / "home.json").exists()


def test_d6_many_processes_that_make_a_home_and_its_key_at_once_agree(project: Project) -> None:
    """Each waits for the same end of a pipe, then makes the home, and the database in it."""
    code = (
        "import sys; from pathlib import Path; from windlass.homes import find_home, prepare_home\n"
        "from windlass.journal.schema import open_database\n"
        "print(flush=True); sys.stdin.read(1)\n"
        "home = find_home(); prepare_home(home); open_database(home / 'windlass.db')"
    )
    env = {**project.env, "HOME": str(project.user)}
    racers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        for _ in range(6)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.read(1)
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.close()
        assert racer.wait(PATIENCE) == 0
    assert locate().marked
    assert [path.name for path in user_folder().iterdir()] == ["home.key"]
    assert not [path for path in project.home.iterdir() if path.name.startswith(".home")], "no draft is left"
