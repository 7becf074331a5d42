"""What an agent may do unasked (C6): patterns, deny over allow, and commands that hide another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, plan

from windlass.core import events as ev
from windlass.engine.agents.permits import offers, permitted, verdict
from windlass.ports import Answer, Permissions
from windlass.settings import PermissionSettings
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

LOOKING = Permissions(allow=("Bash(git log:*)",))


def bash(command: str) -> dict[str, str]:
    return {"command": command}


@pytest.mark.parametrize(
    "command", ["git log", "git log --oneline", "git log -n 3 -- src", "  git log -1 ", "git log\t-1", "git log {a,b}"]
)
def test_c6_a_command_with_its_arguments_is_allowed(command: str) -> None:
    assert verdict(LOOKING, "Bash", bash(command)) is True


@pytest.mark.parametrize(
    "command",
    [
        "git logx",
        "git log-evil",
        "git",
        "git  log",
        "rm -rf / # git log",
        "git log; rm -rf /",
        "git log;rm -rf /",
        "git log && rm -rf /",
        "git log & rm -rf /",
        "git log | sh",
        "git log || sh",
        "git log\nrm -rf /",
        "git log\r\nrm -rf /",
        "git log \\\n; rm -rf /",
        "git log $(rm -rf /)",
        'git log "$(rm -rf /)"',
        "git log `rm -rf /`",
        "git log <(rm -rf /)",
        "git log > ~/.bashrc",
        "git log >> ~/.bashrc",
        "git log 2>/etc/passwd",
        "git log >&2",
        "git log =(rm -rf /)",
        "git log < /dev/sda",
        "",
    ],
)
def test_c6_a_command_that_hides_another_is_asked_about(command: str) -> None:
    assert verdict(LOOKING, "Bash", bash(command)) is None
    for glob in ("Bash(git log *)", "Bash(git log*)", "Bash(git*log*)"):
        allowed = verdict(Permissions(allow=(glob,)), "Bash", bash(command))
        assert allowed is None or not any(mark in command for mark in ";&|`<>()\n\r"), glob


@pytest.mark.parametrize("input", [None, [], "git log", 7, {}, {"command": 7}, {"cmd": "git log"}], ids=str)
def test_c6_what_no_pattern_can_speak_of_is_asked_about(input: Any) -> None:
    assert verdict(LOOKING, "Bash", input) is None
    assert verdict(Permissions(allow=("Bash",)), "Bash", input) is True


@pytest.mark.parametrize(
    "input",
    [
        {"line": "git log", "shell": "/tmp/evil"},
        {"line": "git log", "env": {"GIT_PAGER": "rm -rf /"}},
        {"command": "git log", "line": "rm -rf /"},
        {"line": "git log", "argv": ["rm", "-rf", "/"]},
        {"argv": ["git", "log", "; rm -rf /"]},
    ],
    ids=str,
)
def test_c6_what_stands_beside_a_command_is_not_overlooked(input: Any) -> None:
    """The name of the shell and the environment decide what a line does, as much as the line."""
    for pattern in ("shell(git log:*)", "shell(git log)", "shell(git log*)"):
        assert verdict(Permissions(allow=(pattern,)), "shell", input) is None


def test_c6_words_without_a_shell_are_a_command_too() -> None:
    assert verdict(Permissions(allow=("shell(git log:*)",)), "shell", {"argv": ["git", "log", "-1"]}) is True
    assert verdict(Permissions("allow", deny=("shell(rm:*)",)), "shell", {"argv": ["rm", "-rf", "/"]}) is False


def test_c6_an_exact_line_is_allowed_even_if_it_is_several_commands() -> None:
    exact = Permissions(allow=("Bash(make && make test)",))
    assert verdict(exact, "Bash", bash("make && make test")) is True
    assert verdict(exact, "Bash", bash("make && make test; rm -rf /")) is None


@pytest.mark.parametrize("pattern", ["Bash", "Bash(*)", "Bash(:*)", "Bash()", "B*", "*"])
def test_c6_a_pattern_for_everything_allows_everything(pattern: str) -> None:
    assert verdict(Permissions(allow=(pattern,)), "Bash", bash("a; b")) is True


@pytest.mark.parametrize("pattern", ["Bash(rm:*)", "Bash(rm *)", "Bash(rm*)"])
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        " rm -rf /",
        "rm -rf / ; true",
        "true; rm -rf /",
        "true && rm -rf /",
        "true\nrm -rf /",
        "echo $(rm -rf /)",
        "echo `rm -rf /`",
        "(rm -rf /)",
        "{ rm -rf /; }",
        "ls | rm -rf /",
    ],
)
def test_c6_a_denied_command_is_denied_wherever_it_stands_in_a_line(pattern: str, command: str) -> None:
    for mode in ("allow", "ask"):
        permissions = Permissions(mode, allow=("Bash",), deny=(pattern,))  # type: ignore[arg-type]
        assert verdict(permissions, "Bash", bash(command)) is False


def test_c6_deny_is_stronger_than_allow_and_both_than_the_mode() -> None:
    for mode, otherwise in (("allow", True), ("deny", False), ("ask", None)):
        permissions = Permissions(mode, allow=("Read", "Write"), deny=("Write",))  # type: ignore[arg-type]
        assert verdict(permissions, "Read", {}) is True
        assert verdict(permissions, "Write", {}) is False
        assert verdict(permissions, "Edit", {}) is otherwise


@pytest.mark.parametrize(
    ("pattern", "tool", "input", "allowed"),
    [
        ("mcp__github__*", "mcp__github__get_issue", {}, True),
        ("mcp__github__*", "mcp__gitlab__get_issue", {}, None),
        ("files.*", "files.write", {"path": "a"}, True),
        ("Write(src/*)", "Write", {"file_path": "src/a/b.py"}, True),
        ("Write(src/*)", "Write", {"file_path": "src/../../etc/passwd"}, None),
        ("Write(src/*)", "Write", {"file_path": "srcs/a"}, None),
        ("write(src/*)", "write", {"filePath": "src/a"}, True),
        ("WebFetch(https://example.org/*)", "WebFetch", {"url": "https://example.org/a?b=1&c=2"}, True),
        ("WebFetch(https://example.org/*)", "WebFetch", {"url": "https://example.org.evil/a"}, None),
        ("Grep(src*)", "Grep", {"pattern": "x", "path": "src"}, True),
        ("read", "Read", {}, None),
    ],
)
def test_c6_patterns_speak_of_names_paths_and_addresses(
    pattern: str, tool: str, input: Any, allowed: bool | None
) -> None:
    assert verdict(Permissions(allow=(pattern,)), tool, input) is allowed


def test_c6_settings_role_and_step_add_up() -> None:
    settings = PermissionSettings.model_validate(
        {
            "allow": ["Read"],
            "deny": ["Bash(rm:*)"],
            "roles": {"reviewer": {"mode": "deny", "allow": ["Grep"], "deny": ["Write"]}},
        }
    )
    assert permitted(settings, "developer", None) == Permissions("ask", ("Read",), ("Bash(rm:*)",))
    assert permitted(settings, "reviewer", None) == Permissions("deny", ("Read", "Grep"), ("Bash(rm:*)", "Write"))
    step = {"mode": "ask", "allow": ["Write"], "deny": ["Edit"]}
    combined = permitted(settings, "reviewer", step)
    assert combined == Permissions("ask", ("Read", "Grep", "Write"), ("Bash(rm:*)", "Write", "Edit"))
    assert verdict(combined, "Write", {}) is False, "a step cannot allow what the settings deny"


async def test_c6_an_agent_is_held_to_them_and_nobody_is_asked_about_what_is_decided(project: Project) -> None:
    turn = Turn().ask("Bash", bash("git log")).ask("Bash", bash("rm -r /")).ask("Write", {"file_path": "a"}).say("x")
    runner = ScriptedRunner([turn], name="cli")
    world = AgentWorld(project, runner, permissions={"deny": ["Bash(rm:*)"], "roles": {"developer": {"mode": "allow"}}})
    state = await world.run(plan(agent(permissions={"allow": ["Bash(git log:*)"]})))
    assert state.status == "completed"
    assert runner.answers == [Answer(True), Answer(False, "denied by its role or the settings"), Answer(True)]
    assert not [event for event in await world.events(state.id) if isinstance(event, ev.ApprovalAsked)]
    request = runner.requests[0].permissions
    assert (request.mode, request.allow, request.deny) == ("allow", ("Bash(git log:*)",), ("Bash(rm:*)", "shell(rm:*)"))


async def test_c6_a_role_can_only_take_away(project: Project) -> None:
    project.file(
        ".claude/agents/careful.md",
        "---\nname: careful\ndescription: looks\npermissionMode: plan\ndisallowedTools: Write\n---\nLook.\n",
    )
    runner = ScriptedRunner([Turn().ask("Bash", bash("ls")).ask("Write", {}).say("x")], name="claude-code")
    world = AgentWorld(project, runner, permissions={"mode": "allow", "allow": ["Write"]})
    state = await world.run(plan(agent(agent="careful", runtime="claude-code")))
    assert state.status == "completed"
    assert [answer.allow for answer in runner.answers] == [False, False]


@pytest.mark.parametrize(
    ("tool", "input"),
    [
        ("Write", {"file_path": "/repo/.git/hooks/pre-commit"}),
        ("Edit", {"file_path": "sub/.GIT/config"}),
        ("NotebookEdit", {"notebook_path": ".claude/x.ipynb"}),
        ("files.write", {"path": ".git/hooks/pre-commit"}),
        ("files.move", {"from": "a", "to": ".git/hooks/pre-commit"}),
        ("files.apply", {"changes": [{"do": "write", "path": "a"}, {"do": "move", "from": "a", "to": ".git/hooks/x"}]}),
        ("files.patch", {"patch": "--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+x\n"}),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+x\n*** End Patch"}),
        ("write", {"filePath": ".mcp.json"}),
        ("files.edit", {"path": "x\\.windlass\\config.toml"}),
    ],
)
def test_c6_a_rule_for_all_files_leaves_out_those_that_programs_obey(tool: str, input: dict[str, Any]) -> None:
    assert verdict(Permissions(allow=(tool, "*", f"{tool}(*)")), tool, input) is None
    assert verdict(Permissions("deny", allow=(tool,)), tool, input) is False
    assert verdict(Permissions("allow"), tool, input) is True


@pytest.mark.parametrize(
    ("rule", "tool", "input"),
    [
        ("Write(.git/info/*)", "Write", {"file_path": ".git/info/exclude"}),
        ("files.*(.git/*)", "files.write", {"path": ".git/config"}),
        ("files.write", "files.write", {"path": ".gitignore"}),
        ("files.write", "files.write", {"path": ".github/workflows/ci.yml"}),
        ("files.patch", "files.patch", {"patch": "--- a/notes\n+++ b/notes\n@@ -1 +1 @@\n-see .git/hooks\n+see it\n"}),
        ("files.read", "files.read", {"path": ".git/config"}),
        ("Read", "Read", {"file_path": ".git/config"}),
    ],
)
def test_c6_a_rule_that_names_such_a_file_allows_it_and_others_are_as_ever(
    rule: str, tool: str, input: dict[str, Any]
) -> None:
    assert verdict(Permissions(allow=(rule,)), tool, input) is True


def test_c6_a_role_with_a_list_of_tools_offers_these_uses_alone() -> None:
    only = Permissions(tools=("shell(git log:*)", "files.*"))
    assert offers(only, "shell", {"line": "git log -1"})
    assert offers(only, "files.write", {"path": "a"})
    for line in ("rm -rf /", "git log; rm -rf /"):
        assert not offers(only, "shell", {"line": line})
    assert not offers(only, "http.get", {"url": "http://127.0.0.1/"})
    assert not offers(Permissions(tools=()), "shell", {"line": "git log"})
    assert offers(Permissions(), "shell", {"line": "rm -rf /"})
