"""`config list|get|set|add|unset`: values with their origin, and changes, checked before they are written (I1)."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project, Windlass


def test_i1_a_setting_is_set_shown_with_its_origin_and_removed(project: Project, windlass: Windlass) -> None:
    assert windlass("config", "list").err.startswith("Nothing is set")
    file = project.user_file("config.toml", "# mine\ngrace = '9s' # long\n")
    assert windlass("config", "set", "budget.day", "10").err == f"saved in {file}: budget.day = 10\n"
    windlass("config", "set", "runtime", "claude-code")
    windlass("config", "set", 'prices."gpt-4.1"', "{input = 2.5, output = 10}")
    windlass("config", "set", "env_allow", '["TERM_PROGRAM"]')
    assert tomllib.loads(file.read_text()) == {
        "grace": "9s",
        "budget": {"day": 10},
        "runtime": "claude-code",
        "prices": {"gpt-4.1": {"input": 2.5, "output": 10}},
        "env_allow": ["TERM_PROGRAM"],
    }
    assert "# mine\n" in file.read_text()
    assert "# long\n" in file.read_text()
    rows = {row["key"]: row for row in windlass("config", "list", "--json").json}
    assert rows["budget.day.usd"] == {"key": "budget.day.usd", "value": 10.0, "origin": str(file)}
    assert "budget.day.tokens" not in rows
    assert rows["grace"] == {"key": "grace", "value": 9.0, "origin": str(file)}
    assert f'runtime = "claude-code"  ({file})' in windlass("config", "list").out
    assert 'on_pause_expiry = "cancel"  (default)' in windlass("config", "list", "--all").out
    assert windlass("config", "get", "runtime").out == "claude-code\n"
    assert "budget.day.usd = 10" in windlass("config", "get", "budget.day").out
    windlass("config", "unset", "budget.day")
    windlass("config", "unset", "budget.day")
    assert "budget" not in str(rows := windlass("config", "list").out), rows


def test_i1_a_wrong_value_is_refused_and_nothing_is_written(project: Project, windlass: Windlass) -> None:
    file = project.user_file("config.toml", "grace = 3\n")
    for key, value, said in (
        ("grace", "soon", "'soon' is not a duration"),
        ("grce", "3s", "did you mean"),
        ("budget.dya", "3", "`budget.dya` is not a setting; did you mean `day`?"),
        ("runtimes.cli.modle", "m", "did you mean `model`?"),
        ("messages.services.hook.kind", "mail", "known: url_env, url, smtp, sender,"),
        ("a b", "3s", "is not a key"),
        ("grace.more", "3s", "cannot be changed safely"),
        ("budget.week", "3", "budget.week"),
        ("budget.day", "nan", "budget.day: nan is not a valid amount"),
        ("runtime", "claude_code", "there is no runtime 'claude_code'; did you mean `claude-code`?"),
        ("env_allow", '["A=B"]', "'A=B' is not the name of a variable"),
        ("search.providers", "brave", "is a list of tables with `kind`, `url`, `key_env`, like [{…}, {…}]"),
        ("search.providers", '["brave"]', "`search.providers.0` is a table with `kind`, `url`, `key_env`"),
        ("search.providers", "[{url = 'http://localhost'}]", "`search.providers.0.kind` is missing"),
        ("runtimes.cli", "gpt", "`runtimes.cli` is a table with `path`, `command`, `model`,"),
    ):
        assert said in windlass("config", "set", key, value, code=2).err, key
        assert file.read_text() == "grace = 3\n"
    assert "is not set" in windlass("config", "get", "prices.x", code=2).err


def test_i6_a_secret_that_is_set_is_not_printed(project: Project, windlass: Windlass) -> None:
    for key, value, shown in (
        ("mcp.foo", '{command = "x", env = {TOKEN = "canary-1", LANG = "C"}}', '"TOKEN": "(hidden)", "LANG": "C"'),
        ("mcp.foo.env.API_KEY", "canary-1", '"(hidden)"'),
        ("runtimes.cli.base_url", "http://ann:canary-1@localhost:1/v1", '"(hidden)"'),
    ):
        said = windlass("config", "set", key, value).err
        assert shown in said
        assert "canary" not in said
    assert "canary" not in windlass("config", "set", "mcp.bar.env.TOKEN", "canary-1", code=2).err
    for _ in range(2):
        assert '["--token=(hidden)"]' in windlass("config", "add", "mcp.foo.args", "--", "--token=canary-1").err


def test_i1_a_value_is_added_to_a_list_that_keeps_the_others(project: Project, windlass: Windlass) -> None:
    file = project.user_file("config.toml", 'env_allow = ["A"] # mine\n')
    for name in ("B", "C"):
        assert windlass("config", "add", "env_allow", name).err == f"saved in {file}: {name} in env_allow\n"
    assert windlass("config", "add", "env_allow", "B").err == f"B is already in env_allow ({file})\n"
    windlass("config", "add", "approvals.sensitive", "http.*")
    assert tomllib.loads(file.read_text()) == {
        "env_allow": ["A", "B", "C"],
        "approvals": {"sensitive": ["files.delete", "message.*", "http.*"]},
    }
    assert "# mine\n" in file.read_text()
    old = file.read_text()
    assert "grace is not a list" in windlass("config", "add", "grace", "3s", code=2).err
    assert "'A=B' is not the name of a variable" in windlass("config", "add", "env_allow", "A=B", code=2).err
    said = windlass("config", "set", "env_allow", "D", code=2).err
    assert "`env_allow` is a list" in said
    assert "windlass config add env_allow VALUE" in said
    assert file.read_text() == old


def test_i1_a_wrong_duration_is_one_problem_in_plain_words(project: Project, windlass: Windlass) -> None:
    said = windlass("config", "set", "patience", "soon", code=2).err
    assert "`patience`: 'soon' is not a duration: write it like 30s, 5m, 1h30m, 2d" in said
    assert said.count("patience") == 1
    assert "[" not in said


def test_i1_a_table_that_was_set_is_removed(project: Project, windlass: Windlass) -> None:
    file = project.user_file("config.toml", "grace = 3\n")
    for key, value in (
        ("mcp.foo", '{command="x"}'),
        ('prices."gpt-4.1"', "{input=1, output=2}"),
        ("tools.shell", "{concurrent=2}"),
    ):
        windlass("config", "set", key, value)
        windlass("config", "unset", key)
        assert file.read_text().strip() == "grace = 3", key


def test_i1_a_stronger_value_elsewhere_is_told(project: Project, windlass: Windlass) -> None:
    project.user_file("config.toml", "")
    told = windlass("config", "set", "grace", "4s", WINDLASS_GRACE="2s").err
    assert "warning: another value holds here, from environment: WINDLASS_GRACE" in told
    assert "there is no home of a project yet" in windlass("config", "set", "--project", "grace", "1s", code=2).err
    project.plan("steps: [{id: a, run: 'true'}]")
    windlass("run", "plan.yaml")
    windlass("config", "set", "--project", "grace", "1s")
    assert windlass("config", "get", "grace").out == "1.0\n"
    said = windlass("config", "set", "--project", "permissions.mode", "allow", code=2).err
    assert "allowed only in your own settings" in said


def test_c6_a_step_cannot_change_the_settings(project: Project, windlass: Windlass) -> None:
    project.user_file("config.toml", "")
    ran = windlass("run", project.plan("steps: [{id: a, run: windlass config set permissions.mode allow}]"), code=1)
    assert "only a person can answer that" in ran.err
    assert windlass("config", "list").err.startswith("Nothing is set")


def test_i1_a_folder_of_the_user_that_cannot_be_used_is_told_in_words(project: Project, windlass: Windlass) -> None:
    nobody = {"HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null", "SHELL": "/bin/bash"}
    assert windlass("trust", **nobody).out == "", "nothing is trusted, and nothing is damaged"
    kept = {
        "your settings": [["config", "set", "grace", "3"], ["config", "add", "env_allow", "A"]],
        "the list of trusted folders": [["trust", "."], ["trust", "--revoke", "."]],
    }
    for what, commands in kept.items():
        for command in commands:
            said = windlass(*command, code=4, **nobody).err
            assert f"{what} cannot be saved in /dev/null/windlass: Not a directory\n" in said
            assert "→ name a folder that you can write to: export XDG_CONFIG_HOME=DIR\n" in said
    for command in (["schedule", "install", "--with", "systemd"], ["--install-completion"]):
        assert " cannot be written: Not a directory\n" in windlass(*command, code=2, **nobody).err


def test_i1_a_list_of_trusted_folders_that_cannot_be_read_is_not_called_damaged(
    project: Project, windlass: Windlass
) -> None:
    (project.user / ".config" / "windlass" / "trusted.json").mkdir(parents=True)
    said = windlass("trust", ".", code=4).err
    assert "trusted.json, cannot be read: Is a directory" in said
    assert "rm " not in said


def test_i1_a_setting_of_a_project_can_be_the_first_thing_in_its_home(project: Project, windlass: Windlass) -> None:
    project.home.mkdir(mode=0o700)
    windlass("config", "set", "grace", "3", "--project")
    assert windlass("config", "get", "grace").out == "3.0\n"
    windlass("run", project.plan("steps: [{id: a, run: echo a}]"))
