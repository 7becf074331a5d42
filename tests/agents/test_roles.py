"""Roles: what their keys mean, where they are read from, and which one counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.agents.rolefiles import MAX_ROLE
from windlass.agents.roles import Role
from windlass.errors import UsageError
from windlass.ports import Permissions

BUILT_IN = ["architect", "developer", "ops", "planner", "product", "reviewer", "senior"]


def one(tree: Any, head: str, folder: str = ".claude/agents") -> Role:
    """The only role that is not built in."""
    tree.file(f"{folder}/x.md", f"---\nname: x\n{head}\n---\nBe x.\n")
    role: Role = tree.catalogue().role("x")
    return role


def problems(tree: Any) -> list[str]:
    return [str(problem).replace(f"{tree.root}/", "") for problem in tree.catalogue().problems]


# -- built-in ----------------------------------------------------------------------------------------


def test_a5_there_are_six_built_in_roles(tree: Any) -> None:
    roles = tree.catalogue().roles()
    assert [role.name for role in roles] == BUILT_IN
    assert {role.source for role in roles} == {"built-in"}
    assert all(role.description for role in roles)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_role_says_what_to_hand_over_and_when_to_stop(tree: Any, name: str) -> None:
    prompt = tree.catalogue().role(name).prompt
    assert "Do this:" in prompt
    assert "Hand over" in prompt
    assert "\nStop when" in prompt
    assert len(prompt.splitlines()) < 60


@pytest.mark.parametrize(
    ("runtime", "denied"),
    [
        ("claude-code", {"Edit", "Write", "NotebookEdit"}),
        ("open-code", {"edit", "write"}),
        (
            "cli",
            {
                "files.edit",
                "files.write",
                "files.apply",
                "files.move",
                "files.delete",
                "files.patch",
                "files.copy",
                "http.download",
            },
        ),
    ],
)
def test_the_built_in_reviewer_cannot_change_files_in_any_runtime(tree: Any, runtime: str, denied: set[str]) -> None:
    role = tree.catalogue().role("reviewer")
    assert set(role.narrow(Permissions(), runtime).deny) == denied
    assert denied <= set(role.narrow(Permissions()).deny)


@pytest.mark.parametrize("name", ["dev", "coder", "Developer", "DEV", " developer "])
def test_a5_aliases_and_case_lead_to_the_developer(tree: Any, name: str) -> None:
    assert tree.catalogue().role(name).name == "developer"


def test_a_role_that_is_itself_called_dev_is_no_alias(tree: Any) -> None:
    tree.role("dev", "Be dev.")
    assert tree.catalogue().role("Dev").prompt == "Be dev."
    assert tree.catalogue().role("coder").source == "built-in"


@pytest.mark.parametrize(
    ("typed", "meant"), [("reviwer", "reviewer"), ("codr", "developer"), ("ARCHITEKT", "architect")]
)
def test_an_unknown_role_names_the_nearest(tree: Any, typed: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"there is no role '{typed}'; did you mean '{meant}'?"):
        tree.catalogue().role(typed)


def test_an_unknown_role_like_no_other_lists_all(tree: Any) -> None:
    with pytest.raises(UsageError, match="there are: architect, developer, ops"):
        tree.catalogue().role("zzzzzz")


# -- keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "tools"),
    [
        ("", None),
        ("tools:", None),
        ("tools: '*'", None),
        ("tools: Read, Grep", ("Read", "Grep")),
        ("tools: [Read, Grep, Read]", ("Read", "Grep")),
        ("tools: Bash(git log:*, git diff:*), Read", ("Bash(git log:*, git diff:*)", "Read")),
        ("tools: []", ()),
        ("tools: {'*': false, read: true, bash: false}", ("read",)),
        ("tools: {read: true}", None),
    ],
)
def test_a5_tools_are_a_text_a_list_or_a_map(tree: Any, head: str, tools: Any) -> None:
    assert one(tree, head).tools == tools


@pytest.mark.parametrize(
    ("head", "disallowed"),
    [
        ("disallowedTools: Write, Edit", ("Write", "Edit")),
        ("tools: {write: false, bash: false, read: true}", ("write", "bash")),
        ("permission: {edit: deny, bash: ask, read: allow}", ("edit",)),
        ("permission: {bash: {'git push *': deny, '*': allow}}", ("bash(git push *)",)),
        ("permission: {bash: {'*': deny}}", ("bash",)),
    ],
)
def test_what_a_role_gives_up_is_disallowed(tree: Any, head: str, disallowed: Any) -> None:
    assert one(tree, head).disallowed == disallowed


def test_after_denying_everything_only_what_follows_is_left(tree: Any) -> None:
    role = one(tree, "permission: {webfetch: allow, '*': deny, read: allow, grep: ask, bash: deny}")
    assert role.tools == ("read", "grep")


def test_exceptions_from_a_denied_tool_are_not_made_and_that_is_said(tree: Any) -> None:
    role = one(tree, "permission: {bash: {'*': deny, 'git log *': allow}}")
    assert role.disallowed == ("bash",)
    assert "exceptions" in role.ignored[0]


@pytest.mark.parametrize("word", ["inherit", "INHERIT", "", "default"])
def test_a_model_that_is_inherited_is_none(tree: Any, word: str) -> None:
    assert one(tree, f"model: {word}").model is None


@pytest.mark.parametrize("word", ["opus", "claude-sonnet-5", "anthropic/claude-opus-5"])
def test_a_model_is_kept_as_written(tree: Any, word: str) -> None:
    assert one(tree, f"model: {word}").model == word


def test_numbers_skills_and_unknown_keys(tree: Any) -> None:
    role = one(tree, "maxTurns: 7\ntemperature: 0.3\nskills: pdf, sql\ncolor: red\nhooks: {Stop: [{command: rm}]}")
    assert (role.max_turns, role.temperature, role.skills) == (7, 0.3, ("pdf", "sql"))
    assert problems(tree) == []


@pytest.mark.parametrize(
    "head", ["maxTurns: many", "maxTurns: 0", "maxTurns: true", "temperature: hot", "skills: {a: b}"]
)
def test_a_key_that_limits_nothing_is_left_out_with_a_problem(tree: Any, head: str) -> None:
    role = one(tree, head)
    assert (role.max_turns, role.temperature, role.skills) == (None, None, ())
    (problem,) = problems(tree)
    assert problem.startswith(f".claude/agents/x.md:3: `{head.split(':')[0]}` must be")


@pytest.mark.parametrize(
    "head",
    [
        "tools: 7",
        "tools: [1, 2]",
        "tools: {bash: 'no'}",
        "disallowedTools: {a: b}",
        "permissionMode: yolo",
        "permissionMode: [plan]",
        "permission: 5",
        "permission: {bash: perhaps}",
    ],
)
def test_a_role_whose_limits_cannot_be_read_is_not_used(tree: Any, head: str) -> None:
    with pytest.raises(UsageError, match="the role 'x' cannot be used"):
        one(tree, head)
    (problem,) = problems(tree)
    assert problem.startswith(".claude/agents/x.md:3: ")


# -- rights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bypassPermissions", "acceptEdits", "auto"])
def test_a_role_cannot_give_itself_rights(tree: Any, mode: str) -> None:
    role = one(tree, f"permissionMode: {mode}")
    assert role.narrow(Permissions()) == Permissions()
    assert role.narrow(Permissions(mode="deny")).mode == "deny"
    assert mode in role.ignored[0]


def test_an_allow_in_a_role_allows_nothing(tree: Any) -> None:
    assert one(tree, "permission: {bash: allow, '*': allow}").narrow(Permissions()) == Permissions()


@pytest.mark.parametrize(
    ("mode", "given", "left"), [("plan", "allow", "deny"), ("default", "allow", "ask"), ("ask", "deny", "deny")]
)
def test_a_role_can_take_rights_away(tree: Any, mode: str, given: Any, left: str) -> None:
    assert one(tree, f"permissionMode: {mode}").narrow(Permissions(mode=given)).mode == left


def test_tools_of_a_role_and_of_a_step_are_those_of_both(tree: Any) -> None:
    role = one(tree, "tools: Read, Grep\ndisallowedTools: Bash")
    narrowed = role.narrow(Permissions(tools=("Grep", "Edit"), deny=("Web",)), "claude-code")
    assert narrowed.tools == ("Grep",)
    assert narrowed.deny == ("Web", "Bash")


@pytest.mark.parametrize(
    ("tools", "runtime", "offered"),
    [
        ("Read, Bash(git log:*)", "claude-code", ("Read", "Bash(git log:*)")),
        ("Read, Bash(git log:*)", "open-code", ("read", "bash(git log:*)")),
        ("Read, Bash(git log:*)", "cli", ("files.read", "shell(git log:*)")),
        ("[read, bash, edit]", "claude-code", ("Read", "Bash", "Edit")),
        ("[files.read, files.apply]", "claude-code", ("Read", "Write", "Edit")),
        ("Edit, Write", "cli", ("files.edit", "files.write")),
        ("Grep, Glob", "cli", ("files.search", "files.list")),
        ("WebFetch, mcp__git__log", "cli", ("http.get", "mcp__git__log")),
        ("Read, strange", "", ("Read", "strange")),
    ],
)
def test_tools_are_offered_by_the_names_of_the_runtime(tree: Any, tools: str, runtime: str, offered: Any) -> None:
    assert one(tree, f"tools: {tools}").narrow(Permissions(), runtime).tools == offered


@pytest.mark.parametrize(
    ("head", "runtime", "denied"),
    [
        ("tools: {bash: false}", "claude-code", ("Bash",)),
        ("permission: {bash: {'git push *': deny}}", "claude-code", ("Bash(git push *)",)),
        ("permission: {edit: deny}", "claude-code", ("Write", "Edit", "NotebookEdit")),
        ("disallowedTools: Bash", "cli", ("shell",)),
        ("disallowedTools: Edit", "cli", ("files.edit", "files.apply", "files.patch")),
        ("disallowedTools: Grep", "cli", ("files.search",)),
        ("disallowedTools: WebFetch", "cli", ("http.get", "http.*", "browser.*")),
        ("disallowedTools: mcp__git__*", "cli", ("mcp__git__*",)),
        ("disallowedTools: Bash", "", ("Bash", "bash", "shell", "execute")),
    ],
)
def test_what_a_role_gives_up_is_denied_by_the_names_of_the_runtime(
    tree: Any, head: str, runtime: str, denied: Any
) -> None:
    assert one(tree, head).narrow(Permissions(), runtime).deny == denied


# -- places ------------------------------------------------------------------------------------------


def test_a5_the_order_of_places_is_the_documented_one(tree: Any) -> None:
    nested = "deep/er"
    config = {"agent": {"x": {"prompt": "opencode.json"}}}
    spots = []
    for folder in (nested + "/", ""):
        for place in (".windlass/agents", ".claude/agents", ".opencode/agent", ".opencode/agents"):
            spots.append((tree.root / folder / place / "x.md", "md"))
        for name in ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"):
            spots.append((tree.root / folder / name, "json"))
    for place in (".config/windlass/agents", ".claude/agents", ".config/opencode/agent", ".config/opencode/agents"):
        spots.append((tree.user / place / "x.md", "md"))
    for name in ("opencode.json", "opencode.jsonc"):
        spots.append((tree.user / ".config/opencode" / name, "json"))
    for path, kind in spots:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config) if kind == "json" else f"Be {path}.\n")
    for path, _kind in spots:
        assert tree.catalogue(nested).role("x").source == str(path)
        path.unlink()
    with pytest.raises(UsageError):
        tree.catalogue(nested).role("x")


def test_a_shadowed_role_is_remembered(tree: Any) -> None:
    ours = tree.role("Reviewer", "Ours.")
    theirs = tree.home(".claude/agents/r.md", "---\nname: reviewer\n---\nTheirs.\n")
    shadowed = tree.catalogue().shadowed_roles()
    assert [(role.source, role.by) for role in shadowed] == [(str(theirs), str(ours)), ("built-in", str(ours))]
    assert tree.catalogue().role("reviewer").prompt == "Ours."


def test_what_lies_above_the_git_root_is_not_looked_at(tree: Any) -> None:
    (tree.root.parent / ".claude/agents").mkdir(parents=True)
    (tree.root.parent / ".claude/agents/x.md").write_text("Outside.")
    with pytest.raises(UsageError):
        tree.catalogue().role("x")


def test_without_a_git_root_a_folder_stands_for_itself(tree: Any) -> None:
    (tree.root / ".git").rmdir()
    tree.role("x")
    (tree.root / "sub").mkdir()
    assert tree.catalogue().role("x").name == "x"
    with pytest.raises(UsageError):
        tree.catalogue("sub").role("x")


def test_a_git_worktree_has_a_file_for_its_root(tree: Any) -> None:
    (tree.root / ".git").rmdir()
    tree.file(".git", "gitdir: elsewhere\n")
    tree.role("x")
    (tree.root / "sub").mkdir()
    assert tree.catalogue("sub").role("x").name == "x"


def test_the_variables_that_move_a_runtimes_folder_are_heeded(tree: Any, tmp_path: Path) -> None:
    tree.env |= {"CLAUDE_CONFIG_DIR": str(tmp_path / "cc"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    for name, folder in (("a", "cc/agents"), ("b", "xdg/opencode/agents"), ("c", "xdg/windlass/agents")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{name}.md").write_text("Be it.")
    assert {role.name for role in tree.catalogue().roles()} == {"a", "b", "c", *BUILT_IN}


def test_a_role_is_named_by_its_key_or_else_by_its_file(tree: Any) -> None:
    tree.file(".windlass/agents/team/plain.md", "No frontmatter.\n")
    tree.file(".claude/agents/file.md", "---\nname: key\n---\nBe.\n")
    tree.file(".opencode/agents/team/nested.md", "---\ndescription: d\n---\nBe.\n")
    names = {role.name: role.runtime for role in tree.catalogue().roles() if role.origin == "project"}
    assert names == {"plain": "", "key": "claude-code", "team/nested": "open-code"}


def test_a_readme_among_roles_is_no_role(tree: Any) -> None:
    tree.file(".claude/agents/README.md", "# Our roles\n")
    assert [role.name for role in tree.catalogue().roles()] == BUILT_IN
    assert problems(tree) == []


# -- bad files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"---\nname: x\ntools: [Read\n---\nBe.\n", ":3:8: not valid YAML"),
        (b"---\nname: x\nBe.\n", ":1: the frontmatter that opens here is never closed"),
        (b"---\nmodel: x\n---\n \n", ":4: the role has no text"),
        (b"---\nmodel: x\n---\n\xff\n", ":4: cannot be read: it is not UTF-8 text"),
        (b"\x7fELF\0\0", ": cannot be read: it is not text"),
        (b"", ":1: the role has no text"),
        (b"x" * (MAX_ROLE + 1), ": cannot be read: it has 262,145 bytes; 262,144 are the most"),
        (b"---\nname: [a]\n---\nBe.\n", ":2: `name` must be text, not a list"),
        (b'---\nname: "a\\e[31mb"\n---\nBe.\n', ":2: `name` must be one line of at most 100 visible characters"),
        (b"---\n- a\n---\nBe.\n", ":2: the frontmatter must be `key: value` lines"),
    ],
)
def test_a_malformed_role_is_a_problem_with_file_and_line_and_the_rest_still_loads(
    tree: Any, content: bytes, said: str
) -> None:
    tree.file(".claude/agents/bad.md", content)
    tree.role("good")
    (problem,) = problems(tree)
    assert problem.startswith(f".claude/agents/bad.md{said}")
    assert tree.catalogue().role("good").prompt == "Be good."
    with pytest.raises(UsageError, match="the role 'bad' cannot be used"):
        tree.catalogue().role("bad")


def test_a_malformed_role_is_not_quietly_replaced_by_another_of_its_name(tree: Any) -> None:
    tree.file(".claude/agents/developer.md", "---\nname: developer\ntools: [Read\n---\nBe careful.\n")
    with pytest.raises(UsageError, match=r"developer\.md:3:8"):
        tree.catalogue().role("dev")


def test_a_pipe_and_a_loop_of_links_do_not_hold_anything_up(tree: Any) -> None:
    folder = tree.role("good").parent
    os.mkfifo(folder / "pipe.md")
    (folder / "self.md").symlink_to("self.md")
    (folder / "up").symlink_to("..")
    (folder / "again").symlink_to(".")
    assert tree.catalogue().role("good").name == "good"
    assert sorted(problems(tree)) == [
        ".claude/agents/pipe.md: cannot be read: it is not a regular file",
        ".claude/agents/self.md: is a link that leads nowhere, so it is not followed",
    ]


def test_a_loop_of_links_in_the_users_own_folder_is_a_problem(tree: Any) -> None:
    folder = tree.home(".claude/agents/good.md", "Be good.").parent
    (folder / "self.md").symlink_to("self.md")
    (problem,) = tree.catalogue().problems
    assert "self.md: cannot be read: too many levels of symbolic links" in str(problem)
    assert tree.catalogue().role("good").origin == "user"


def test_a_folder_that_is_a_loop_or_a_file_is_a_problem(tree: Any) -> None:
    tree.file(".claude/agents", "not a folder")
    (tree.root / ".windlass").mkdir()
    (tree.root / ".windlass/agents").symlink_to("agents")
    assert sorted(problems(tree)) == [
        ".claude/agents: cannot be looked into: not a directory",
        ".windlass/agents: cannot be looked into: too many levels of symbolic links",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_folder_without_rights_is_a_problem(tree: Any) -> None:
    folder = tree.role("x").parent
    folder.chmod(0)
    try:
        assert problems(tree) == [".claude/agents: cannot be looked into: permission denied"]
    finally:
        folder.chmod(0o700)


def test_a_link_that_leaves_the_project_is_refused(tree: Any) -> None:
    secret = tree.secret()
    folder = tree.role("good").parent
    (folder / "leak.md").symlink_to(secret)
    (folder / "more").symlink_to(tree.outside)
    (tree.root / ".opencode").symlink_to(tree.outside)
    (tree.outside / "agents").mkdir()
    assert [role.name for role in tree.catalogue().roles() if role.origin == "project"] == ["good"]
    assert sorted(problems(tree)) == [
        ".claude/agents/leak.md: is a link that leaves the project, so it is not followed",
        ".claude/agents/more: is a link that leaves the project, so it is not followed",
        ".opencode/agents: is a link that leaves the project, so it is not followed",
    ]


def test_a_link_inside_the_project_and_one_of_the_user_are_followed(tree: Any) -> None:
    tree.file("shared/inner.md", "Be inner.")
    (tree.root / ".claude").mkdir()
    (tree.root / ".claude/agents").symlink_to("../shared")
    mine = tree.secret("mine.md", "Be mine.")
    (tree.user / ".claude/agents").mkdir(parents=True)
    (tree.user / ".claude/agents/mine.md").symlink_to(mine)
    assert {role.name for role in tree.catalogue().roles()} == {"inner", "mine", *BUILT_IN}


def test_a_file_name_that_is_not_utf_8_can_be_told(tree: Any) -> None:
    folder = tree.role("good").parent
    with open(os.fsencode(folder) + b"/caf\xe9.md", "wb") as file:
        file.write(b"---\nname: [\n---\n")
    (problem,) = tree.catalogue().problems
    assert str(problem).encode()
    assert "caf\ufffd.md" in str(problem)


@pytest.mark.parametrize(
    ("runtime", "denied", "also"),
    [
        ("cli", "Bash(rm:*)", {"shell(rm:*)"}),
        ("cli", "Write", {"files.write", "files.apply", "files.delete", "http.download"}),
        ("cli", "Edit", {"files.edit", "files.apply", "files.patch"}),
        ("cli", "files.write", set()),
        ("claude-code", "shell", {"Bash"}),
        ("claude-code", "Bash", set()),
        ("open-code", "files.write", {"write"}),
        ("cli", "mcp__github__*", set()),
    ],
)
def test_k6_what_the_settings_deny_by_one_runtimes_name_is_denied_by_anothers(
    runtime: str, denied: str, also: set[str]
) -> None:
    role = Role("any", "", "Work.")
    found = set(role.narrow(Permissions(deny=(denied,)), runtime).deny)
    assert denied in found
    assert also <= found
    assert also or found == {denied}
