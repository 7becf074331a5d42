"""Roles in OpenCode's configuration file."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.errors import UsageError


def problems(tree: Any) -> list[str]:
    return [str(problem).replace(f"{tree.root}/", "") for problem in tree.catalogue().problems]


def test_a5_roles_of_opencode_json_are_read(tree: Any) -> None:
    tree.file(
        "opencode.json",
        """
        {"agent": {"critic": {"description": "d", "prompt": "Be a critic.", "model": "anthropic/claude-opus-5",
                   "temperature": 0.1, "tools": {"write": false}, "permission": {"bash": "deny"}, "name": "other"}}}
        """,
    )
    role = tree.catalogue().role("critic")
    assert (role.prompt, role.model, role.temperature) == ("Be a critic.", "anthropic/claude-opus-5", 0.1)
    assert (role.disallowed, role.runtime, role.description) == (("write", "bash"), "open-code", "d")


def test_comments_and_trailing_commas_are_allowed(tree: Any) -> None:
    tree.file(
        "opencode.jsonc",
        """
        // a remark, with "quotes" and a comma,
        {
          "agent": { /* inner */
            "x": {"prompt": "see // this and /* that */, ]", /* , */ }, // last
          },
        }
        """,
    )
    assert tree.catalogue().role("x").prompt == "see // this and /* that */, ]"
    assert problems(tree) == []


def test_a_prompt_may_stand_in_a_file_of_the_project(tree: Any) -> None:
    tree.file("prompts/x.txt", "Be from a file.")
    tree.file("opencode.json", '{"agent": {"x": {"prompt": "{file:./prompts/x.txt} Really."}}}')
    assert tree.catalogue().role("x").prompt == "Be from a file. Really."


@pytest.mark.parametrize("named", ["../outside/secret.md", "{outside}/secret.md", "link.md", "~/own.md"])
def test_a_project_cannot_read_files_outside_itself(tree: Any, named: str) -> None:
    tree.secret()
    tree.home("own.md", "the user's own key")
    (tree.root / "link.md").symlink_to(tree.outside / "secret.md")
    path = named.replace("{outside}", str(tree.outside))
    tree.file("opencode.json", '{"agent": {"x": {\n"prompt": "{file:PATH}"}}}'.replace("PATH", path))
    with pytest.raises(UsageError, match="cannot be used"):
        tree.catalogue().role("x")
    (problem,) = problems(tree)
    assert problem.startswith("opencode.json:2: `agent.x.prompt`: {file:")
    assert "key" not in problem


def test_the_users_own_file_may_lead_anywhere(tree: Any) -> None:
    tree.home("own.md", "Be mine.")
    tree.home(".config/opencode/opencode.json", '{"agent": {"x": {"prompt": "{file:~/own.md}"}}}')
    assert tree.catalogue().role("x").prompt == "Be mine."


def test_the_environment_is_never_put_into_a_prompt(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    tree.env["SECRET_KEY"] = "hunter2"
    tree.file("opencode.json", '{"agent": {"x": {"prompt": "Say {env:SECRET_KEY}"}}}')
    assert tree.catalogue().role("x").prompt == "Say {env:SECRET_KEY}"


def test_a_role_that_is_switched_off_cannot_be_used_and_stands_before_others(tree: Any) -> None:
    tree.file("opencode.json", '{"agent": {"reviewer": {"disable": true}}}')
    with pytest.raises(UsageError, match=r"'reviewer' cannot be used: it is switched off in .*opencode\.json"):
        tree.catalogue().role("reviewer")
    assert problems(tree) == []


def test_an_entry_that_only_adjusts_one_of_opencodes_own_is_no_role(tree: Any) -> None:
    tree.file("opencode.json", '{"agent": {"build": {"model": "a/b"}}}')
    with pytest.raises(UsageError, match="there is no role 'build'"):
        tree.catalogue().role("build")
    assert problems(tree) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"agent": {\n"x": {"prompt": }}}', ":2:17: not valid JSON"),
        ("[]", ":1: the file must hold an object, not a list"),
        ('{"agent":\n []}', ":1: `agent` must be an object, not a list"),
        ('{"agent": {\n"x": 5}}', ":2: `agent.x` must be an object, not the number 5"),
        ('{"agent": {\n"x": {\n"prompt": 5}}}', ":3: `agent.x.prompt` must be text, not the number 5"),
        ('{"agent": {"x": {"prompt": "a",\n"tools": 5}}}', ":2: `agent.x`: `tools` must be a list of names"),
        (
            '{"agent": {"x": {"prompt": "{file:no.md}"}}}',
            ":1: `agent.x.prompt`: {file:no.md} cannot be read: no such file",
        ),
        (
            '{"agent": {"x": {"prompt": "{file:a\\u0000b}"}}}',
            ":1: `agent.x.prompt`: {file:a\0b} cannot be read: that is not a path",
        ),
        ('{"a": 1,\n"a": 2}', ":2:1: the key `a` is already on line 1"),
        ("[" * 100_000, ":1:"),
    ],
)
def test_a_malformed_file_is_a_problem_with_its_line(tree: Any, text: str, said: str) -> None:
    tree.file("opencode.json", text)
    assert problems(tree)[0].startswith(f"opencode.json{said}")
    assert tree.catalogue().role("developer").source == "built-in"


@pytest.mark.parametrize("text", ['"' + '\\"' * 400_000, ",/**/" * 200_000, "/* " * 300_000, ", " * 400_000])
def test_a_hostile_file_is_read_without_going_back_and_forth(tree: Any, text: str) -> None:
    """A pattern that tries again from every sign would not come to an end here."""
    tree.file("opencode.json", text)
    assert problems(tree)[0].startswith("opencode.json:1:")


def test_an_empty_file_and_one_of_comments_say_nothing(tree: Any) -> None:
    tree.file("opencode.json", "\n")
    tree.file("opencode.jsonc", "// nothing\n")
    assert problems(tree) == []
