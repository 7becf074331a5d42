"""C6: "always for this" is an exact rule, saved into the settings file without losing anything of it."""

from __future__ import annotations

import threading
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.engine.agents.permits import exact_rule, listed
from windlass.errors import UsageError
from windlass.ports import Permissions
from windlass.settings import PermissionSettings
from windlass.settings.edit import add_allowed, with_added
from windlass.settings.tables import RolePermissionSettings

if TYPE_CHECKING:
    from pathlib import Path

NONE = PermissionSettings()
TEXTS = st.text(st.sampled_from("ab *?[]():;|&<>.,/\\\n\t"), min_size=0, max_size=8)


@given(TEXTS, TEXTS)
def test_c6_a_rule_allows_the_text_that_it_was_made_of_and_no_other(text: str, other: str) -> None:
    try:
        rule = exact_rule(NONE, "shell", {"line": text})
    except UsageError:
        return
    allowed = Permissions("ask", (rule,), ())
    assert listed(allowed, "shell", {"line": text}) is True
    assert (listed(allowed, "shell", {"line": other}) is True) == (other.strip() == text.strip())
    assert listed(allowed, "shell2", {"line": text}) is None


@pytest.mark.parametrize(
    ("tool", "input"),
    [
        ("shell", {"line": "ls *.py"}),
        ("shell", {"line": "echo a\u202eb"}),
        ("shell", {"line": "x" * 1000}),
        ("shell", {"line": "make", "env": {"A": "b"}}),
        ("shell", {}),
        ("files.write", {"path": "../notes.md", "content": ""}),
        ("files.move", {"path": "a", "to": "b"}),
        ("http.request", {"url": "https://example.org/"}),
        ("Write", {"file_path": "/work/notes.md"}),
        ("mcp__a,Bash", {"command": "ls"}),
    ],
)
def test_c6_no_rule_is_made_where_it_would_be_wider_or_unreadable(tool: str, input: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        exact_rule(NONE, tool, input)


@pytest.mark.parametrize(
    ("tool", "input", "rule"),
    [
        ("shell", {"line": "make test"}, "shell(make test)"),
        ("shell", {"argv": ["make", "all tests"]}, "shell(make 'all tests')"),
        ("Bash", {"command": "make && make test", "timeout": 9, "description": "build"}, "Bash(make && make test)"),
        ("files.write", {"path": "docs/notes.md", "content": "x"}, "files.write(docs/notes.md)"),
        ("shell", {"line": "x" * 500}, f"shell({'x' * 500})"),
    ],
)
def test_c6_the_rule_of_a_use_is_its_tool_with_the_very_text(tool: str, input: dict[str, Any], rule: str) -> None:
    assert exact_rule(NONE, tool, input) == rule
    assert listed(Permissions("ask", (rule,), ()), tool, input) is True


def test_c6_a_deny_rule_of_a_role_is_stronger_too() -> None:
    role = {"tester": RolePermissionSettings(deny=("shell(git push:*)",))}
    with pytest.raises(UsageError, match="a `deny` rule of your settings is about this use"):
        exact_rule(PermissionSettings(roles=role), "shell", {"line": "git push now"})
    assert exact_rule(PermissionSettings(roles=role), "shell", {"line": "git pull"}) == "shell(git pull)"


def test_c6_a_deny_rule_is_stronger() -> None:
    with pytest.raises(UsageError, match="deny"):
        exact_rule(PermissionSettings(deny=("shell(git push:*)",)), "shell", {"line": "git push now"})


OLD = [
    "",
    "grace = 3 # seconds",
    "# mine\n[permissions]\nmode = 'ask' # careful\n\n[permissions.roles.ops]\nallow = [\"Bash\"]\n",
    "[permissions]\nallow = []\n",
    '[permissions] # these\nallow = [\'a ]\', "b#\\""] # and more\ndeny = ["x"]\n[limits]\n',
    '[permissions]\nallow = [\n  "a", # first\n  "b",  # last\n  # none\n]\n',
    '[permissions]\nallow = [\n  "a",\n  "b" # last, no comma\n]\n',
    '[ permissions ]\r\nallow = ["a"]\r\n',
    '[permissions.roles.ops]\nallow = ["Bash"]\n',
    "permissions = {mode = 'ask'} # in line",
    "permissions.allow = ['a'] # dotted",
]


@pytest.mark.parametrize("old", OLD)
def test_c6_the_file_keeps_all_that_it_said(old: str) -> None:
    rule = 'shell(echo "hi" it\'s)'
    new = with_added(old, ("permissions", "allow"), rule)
    assert new is not None
    wanted = tomllib.loads(old)
    wanted.setdefault("permissions", {}).setdefault("allow", []).append(rule)
    assert tomllib.loads(new) == wanted
    for comment in (line.rpartition("# ")[2] for line in old.splitlines() if "# " in line):
        assert comment in new
    assert with_added(new, ("permissions", "allow"), rule) == new, "a second time changes nothing"


@pytest.mark.parametrize("old", ["permissions = 3", "no [ toml", "[permissions]\nallow = 3"])
def test_c6_a_file_that_cannot_be_changed_safely_is_left_as_it_is(tmp_path: Path, old: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(old)
    with pytest.raises(UsageError, match="nothing was saved"):
        add_allowed(file, "shell(make)")
    assert file.read_text() == old


def test_c6_two_who_save_at_once_lose_nothing(tmp_path: Path) -> None:
    real, file = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("# mine\n")
    real.chmod(0o640)
    file.symlink_to(real)
    rules = [f"shell(make {number})" for number in range(12)]
    saving = [threading.Thread(target=add_allowed, args=(file, rule)) for rule in rules]
    for thread in saving:
        thread.start()
    for thread in saving:
        thread.join()
    assert sorted(tomllib.loads(real.read_text())["permissions"]["allow"]) == sorted(rules)
    assert (real.read_text().startswith("# mine\n"), file.is_symlink()) == (True, True)
    assert real.stat().st_mode & 0o777 == 0o640
