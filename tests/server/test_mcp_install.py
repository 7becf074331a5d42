"""`windlass mcp install`: one entry in a client's settings, and nothing else changed (I2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

CLAUDE = {"type": "stdio", "command": "windlass", "args": ["mcp"], "env": {}}
OPENCODE = {"type": "local", "command": ["windlass", "mcp"], "enabled": True}
CLIENTS = pytest.mark.parametrize(
    ("client", "file", "table", "entry"),
    [("claude-code", ".mcp.json", "mcpServers", CLAUDE), ("opencode", "opencode.json", "mcp", OPENCODE)],
)


@CLIENTS
def test_i2_a_new_file_is_made_and_the_change_is_shown_first(
    project: Project, windlass: Windlass, client: str, file: str, table: str, entry: dict[str, object]
) -> None:
    ran = windlass("mcp", "install", client, "--yes")
    assert json.loads((project.path / file).read_text())[table] == {"windlass": entry}
    assert '+    "windlass": {' in ran.err
    assert not project.home.exists()


@CLIENTS
def test_i2_what_stands_there_stays_and_a_second_time_changes_nothing(
    project: Project, windlass: Windlass, client: str, file: str, table: str, entry: dict[str, object]
) -> None:
    before = {"zeta": 1, table: {"other": {"command": "ünd"}}, "alpha": [1, 2]}
    path = project.file(file, json.dumps(before, indent=4, ensure_ascii=False))
    path.chmod(0o600)
    windlass("mcp", "install", client, "--yes")
    text = path.read_text()
    after = json.loads(text)
    assert after == {**before, table: {"other": {"command": "ünd"}, "windlass": entry}}
    assert list(after) == list(before), "in the order that they had"
    assert '\n    "zeta"' in text, "as far in as they stood"
    assert path.stat().st_mode & 0o777 == 0o600
    again = windlass("mcp", "install", client, "--yes")
    assert "already has this entry" in again.err
    assert path.read_text() == text


@CLIENTS
@pytest.mark.parametrize("content", ['{\n  // mine\n  "a": 1\n}\n', "[1]\n", '{"%s": []}\n', "\udcff"])
def test_i2_a_file_that_cannot_be_parsed_is_not_touched_and_the_entry_is_said(
    project: Project, windlass: Windlass, client: str, file: str, table: str, entry: dict[str, object], content: str
) -> None:
    path = project.path / file
    given = (content % table if "%s" in content else content).encode("utf-8", "surrogateescape")
    path.write_bytes(given)
    ran = windlass("mcp", "install", client, "--yes", code=2)
    assert path.read_bytes() == given
    assert "left unchanged" in ran.err
    assert json.dumps({table: {"windlass": entry}}) in ran.err


@CLIENTS
def test_i2_with_nobody_to_ask_nothing_is_written(
    project: Project, windlass: Windlass, client: str, file: str, table: str, entry: dict[str, object]
) -> None:
    ran = windlass("mcp", "install", client, code=2)
    assert "add --yes" in ran.err
    assert not (project.path / file).exists()


def test_i2_a_person_is_asked(project: Project, windlass: Windlass) -> None:
    terminal = windlass.terminal("mcp", "install", "claude-code")
    terminal.expect("[y/N]")
    terminal.type("y\n")
    assert terminal.ended().code == 0
    assert json.loads((project.path / ".mcp.json").read_text()) == {"mcpServers": {"windlass": CLAUDE}}


@CLIENTS
def test_i2_print_prints_the_entry_and_writes_nothing(
    project: Project, windlass: Windlass, client: str, file: str, table: str, entry: dict[str, object]
) -> None:
    ran = windlass("mcp", "install", client, "--print")
    assert ran.json == {table: {"windlass": entry}}
    assert not (project.path / file).exists()


def test_i2_for_all_projects_it_stands_in_the_users_own_settings_with_a_whole_path(
    project: Project, windlass: Windlass
) -> None:
    (project.user / ".claude.json").write_text('{"numStartups": 3}')
    windlass("mcp", "install", "claude-code", "--user", "--yes")
    windlass("mcp", "install", "opencode", "--user", "--yes")
    claude = json.loads((project.user / ".claude.json").read_text())
    opencode = json.loads((project.user / ".config/opencode/opencode.json").read_text())
    assert claude["numStartups"] == 3
    for program in (claude["mcpServers"]["windlass"]["command"], opencode["mcp"]["windlass"]["command"][0]):
        assert Path(program).is_absolute()
        assert Path(program).name == "windlass"
    assert not (project.path / ".mcp.json").exists()


def test_i2_a_home_that_is_named_goes_along(project: Project, windlass: Windlass) -> None:
    ran = windlass("mcp", "install", "opencode", "--print", "--home", "state")
    command = ran.json["mcp"]["windlass"]["command"]
    assert command == ["windlass", "--home", str(project.path / "state"), "mcp"]
    flag = windlass("--home", "state", "mcp", "install", "opencode", "--print")
    assert flag.json == ran.json


def test_i2_a_link_to_settings_elsewhere_stays_a_link(project: Project, windlass: Windlass) -> None:
    real = project.file("dotfiles/mcp.json", "{}")
    (project.path / ".mcp.json").symlink_to(real)
    windlass("mcp", "install", "claude-code", "--yes")
    assert (project.path / ".mcp.json").is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["windlass"] == CLAUDE


def test_i2_settings_with_comments_of_opencode_are_found_and_left_alone(project: Project, windlass: Windlass) -> None:
    path = project.file("opencode.jsonc", '{\n  // mine\n  "model": "x"\n}\n')
    before = path.read_text()
    windlass("mcp", "install", "opencode", "--yes", code=2)
    assert path.read_text() == before
    assert not (project.path / "opencode.json").exists()
