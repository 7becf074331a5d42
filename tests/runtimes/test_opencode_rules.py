"""The policy in OpenCode's words: which rule decides, and what a settings file can say of it (A3)."""

from __future__ import annotations

import pytest

from windlass.ports import Permissions
from windlass.runners.opencode.permissions import Action, PermissionRule, as_config, decide, rules


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git log", "allow"),
        ("git log --oneline", "allow"),
        ("git logout", "ask"),
        ("git push", "deny"),
        ("git push --force", "deny"),
        ("ls", "ask"),
    ],
)
def test_a3_patterns_of_commands_mean_what_they_say(command: str, action: Action) -> None:
    listed = rules(Permissions("ask", allow=("Bash(git log:*)",), deny=("Bash(git push:*)",)))
    assert decide(listed, "bash", [command]) == action


def test_a3_the_strictest_of_several_patterns_decides() -> None:
    listed = rules(Permissions("ask", allow=("bash(ls *)",), deny=("bash(rm *)",)))
    assert decide(listed, "bash", ["ls -l"]) == "allow"
    assert decide(listed, "bash", ["ls -l", "cat x"]) == "ask"
    assert decide(listed, "bash", ["ls -l", "cat x", "rm y"]) == "deny"


@pytest.mark.parametrize("name", ["Write", "Edit", "MultiEdit", "edit", "apply_patch"])
def test_a3_all_names_of_editing_are_one_permission(name: str) -> None:
    assert decide(rules(Permissions("ask", allow=(name,))), "edit", ["a.py"]) == "allow"


def test_a3_a_denial_is_stronger_than_a_permission_and_than_the_mode() -> None:
    listed = rules(Permissions("allow", allow=("bash",), deny=("bash",)))
    assert decide(listed, "bash", ["ls"]) == "deny"
    assert decide(listed, "edit", ["a"]) == "allow"


def test_a3_nobody_is_asked_at_opencodes_own_screen() -> None:
    assert decide(rules(Permissions("allow")), "question", ["*"]) == "deny"


def test_a3_the_users_own_denials_stay_and_their_permissions_are_the_policys() -> None:
    own = {"bash": {"*": "allow", "rm *": "deny"}, "webfetch": "allow", "edit": "deny"}
    listed = rules(Permissions("ask"), own)
    assert decide(listed, "bash", ["rm x"]) == "deny"
    assert decide(listed, "bash", ["ls"]) == "ask"
    assert decide(listed, "webfetch", ["https://example.org"]) == "ask"
    assert decide(listed, "edit", ["a"]) == "deny"


LISTS = {
    "a rule for all in between": [
        PermissionRule("bash", "*", "allow"),
        PermissionRule("*", "*", "deny"),
        PermissionRule("bash", "rm *", "ask"),
    ],
    "a pattern for all in between": [
        PermissionRule("bash", "*", "allow"),
        PermissionRule("*", "rm *", "deny"),
        PermissionRule("bash", "cat *", "ask"),
    ],
    "the policy": rules(Permissions("ask", allow=("bash(ls *)", "edit"), deny=("bash(rm *)", "edit(*.key)"))),
    "few tools": rules(Permissions("ask", tools=("bash", "read"), allow=("bash(ls *)",), deny=("*(rm *)",))),
}


@pytest.mark.parametrize("name", LISTS)
def test_a3_a_settings_file_decides_as_the_list_does(name: str) -> None:
    said = as_config(LISTS[name])
    read_back = [
        PermissionRule(permission, pattern, action)
        for permission, section in said.items()
        for pattern, action in ({"*": section} if isinstance(section, str) else section).items()
    ]
    for permission in ("bash", "edit", "read", "glob", "task", "question", "external_directory", "todowrite"):
        for pattern in ("*", "ls -l", "rm x", "cat x", "a.py", "a.key", ".env"):
            wanted = decide(LISTS[name], permission, [pattern])
            assert decide(read_back, permission, [pattern]) == wanted, (permission, pattern)


def test_a3_what_a_settings_file_cannot_say_is_said_more_strictly() -> None:
    listed = [PermissionRule("webfetch", "*", "allow"), PermissionRule("webfetch", "https://bad*", "deny")]
    assert as_config(listed) == {"webfetch": "deny"}
    assert as_config([PermissionRule("webfetch", "https://good*", "allow")]) == {"webfetch": "ask"}


def test_c6_a_rule_for_all_files_leaves_out_those_that_git_and_runtimes_obey() -> None:
    listed = rules(Permissions("ask", allow=("edit", "edit(.git/info/*)")))
    guarded = [".git/hooks/pre-commit", "sub/.git/config", ".git", ".claude/settings.json", "opencode.json"]
    assert [decide(listed, "edit", [path]) for path in guarded] == ["ask"] * len(guarded)
    assert [decide(listed, "edit", [path]) for path in ("a.py", ".gitignore", ".git/info/exclude")] == ["allow"] * 3
    assert decide(rules(Permissions("allow", allow=("edit",))), "edit", [".git/config"]) == "allow"
