"""D9, I1: a file that has to be read whole is a regular one: a pipe in its place is refused, and never waited for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from windlass.regular import read_regular
from windlass.runners.claude import command as claude
from windlass.runners.opencode import environment as opencode

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project, Windlass

PLAN = """
    name: one
    steps: [{id: a, run: "true"}]
"""


@pytest.mark.parametrize("words", ["run plan.yaml", "config set runtime cli", "config list"])
def test_i1_a_pipe_in_the_place_of_the_settings_is_refused_in_words(
    project: Project, windlass: Windlass, words: str
) -> None:
    project.plan(PLAN)
    settings = project.user_file("config.toml", "")
    settings.unlink()
    os.mkfifo(settings)
    ended = windlass(*words.split(), code=2)
    assert "config.toml: it is not a regular file" in ended.err


def test_i1_a_pipe_in_the_place_of_a_login_is_not_waited_for(project: Project) -> None:
    for name in (".claude/settings.json", ".claude.json", ".local/share/opencode/auth.json"):
        (project.user / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(project.user / name)
    env = {"HOME": str(project.user)}
    assert not claude.credentials(env)
    assert claude.account(env) == claude.account({"HOME": str(project.path)})
    assert opencode.account("openai/gpt", env) == opencode.account("openai/gpt", {"HOME": str(project.path)})


def test_d9_a_pipe_in_the_place_of_a_checkpoint_file_is_refused(project: Project, windlass: Windlass) -> None:
    os.mkfifo(project.path / "pipe")
    assert "pipe cannot be read: it is not a regular file" in windlass("restore", "pipe", code=2).err


def test_i1_arguments_from_a_device_without_end_are_refused(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: a, run: 'false', retry: {max: 0}}]"), code=1)
    ended = windlass("retry", "@last", "a", "--with-file", "/dev/zero", code=2)
    assert "--with-file /dev/zero cannot be read: it is larger than 16 MiB" in ended.err


def test_i1_a_file_may_not_be_larger_than_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, 5) == b"12345"
    with pytest.raises(OSError, match="it is larger than") as caught:
        read_regular(file, 4)
    assert caught.value.filename == str(file)


def test_a3_a_pipe_in_the_place_of_opencodes_settings_is_not_waited_for_nor_passed_by(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "opencode.json")
    assert opencode.unstoppable_setting(tmp_path, "") == (tmp_path / "opencode.json").resolve()
