"""K2, K3: on the real runtimes, an agent that edits the test, and checks that hang, flood and write files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import CLAUDE, OPEN, agent, bash, serving, told
from opencode_fixtures import needs_opencode

from windlass.core import events as ev
from windlass.testing import Reply

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from git_repositories import git, repository

if TYPE_CHECKING:
    from conftest import Project, Windlass

CLI = "cli"
EACH = pytest.mark.parametrize("runtime", [CLI, CLAUDE, pytest.param(OPEN, marks=[needs_opencode, pytest.mark.soak])])
PLAN = """
steps:
  - id: fix
    agent: developer
    runtime: {runtime}
    model: {model}
    prompt: Write the answer
    workspace: worktree
    permissions: {{mode: allow}}
    tries: 4
    check:
      - sh tests/run.sh
      - {{run: "[ ! -e hangs ] || {{ echo it begins; sleep 600; }}", timeout: 10s}}
      - "[ ! -e floods ] || {{ yes flood | head -c 20000000; exit 1; }}"
      - echo by the check > written
  - id: land
    merge: fix
"""


def does(runtime: str, line: str) -> tuple[Reply, Reply]:
    """A turn in which the agent runs a command, and says that it is done."""
    use = Reply.use("shell", {"line": line}) if runtime == CLI else bash(runtime, line)
    return use, Reply.say("It is done.")


@EACH
def test_k2_no_trick_of_an_agent_and_no_trouble_of_a_check_gets_through(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    folder = repository(project)
    project.file("tests/run.sh", "grep -x 42 answer\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "the test")
    model = {OPEN: "scripted/scripted"}.get(runtime, "claude-sonnet-4-5")
    project.file("../plan.yaml", PLAN.format(runtime=runtime, model=model))
    script = [
        *does(runtime, "echo true > tests/run.sh"),
        *does(runtime, "echo 42 > answer; touch hangs"),
        *does(runtime, "rm hangs; touch floods"),
        *does(runtime, "rm floods"),
    ]
    with serving(project, script) as served:
        ran = windlass("run", "../plan.yaml", "--yes", "--json")
    served.check()
    step, who = agent(ran)
    assert (ran.json["status"], step["attempts"], who["verdict"]) == ("completed", 1, "verified"), ran.err
    checked: list[Any] = told(project, ev.AgentChecked)
    assert [(event.passed, event.put_back) for event in checked] == [
        (False, ("tests/run.sh",)),
        (False, ()),
        (False, ()),
        (True, ()),
    ]
    cheated, hung, flooded = (served.requests[number].text for number in (2, 4, 6))
    assert "they were put back: tests/run.sh" in cheated
    assert "it begins" in hung, "what it printed before it was stopped"
    assert "flood" in flooded
    assert len(flooded) < 200_000, "the end of a flood is enough"
    assert git(folder, "show", "HEAD:tests/run.sh") == "grep -x 42 answer\n"
    assert sorted(git(folder, "ls-tree", "--name-only", "HEAD").split()) == sorted(
        ["answer", *git(folder, "ls-tree", "--name-only", "HEAD~1").split()]
    ), "the work, and nothing that a check wrote"


@EACH
def test_k3_a_schema_that_nothing_fits_is_a_failure_that_keeps_the_text(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    form = "{type: object, required: [n], properties: {n: {type: integer, minimum: 2, maximum: 1}}}"
    model = {OPEN: "scripted/scripted"}.get(runtime, "claude-sonnet-4-5")
    step = f"{{id: ask, agent: architect, runtime: {runtime}, model: {model}, prompt: How many?, output: {form}}}"
    project.file("plan.yaml", f"steps: [{step}]\n")
    data = Reply.say('{"n": 2}') if runtime == CLI else Reply.use("StructuredOutput", {"n": 2})
    with serving(project, lambda received: data):  # a runtime may have it given again by itself, before the engine does
        ran = windlass("run", "plan.yaml", "--yes", "--json", code=1)
    asked, who = agent(ran)
    assert (asked["status"], asked["error"]["category"], who["verdict"]) == ("failed", "logic", "refuted"), ran.err
    assert "2" in str(asked["output"]), "its text is kept"
    assert [event.number for event in told(project, ev.AgentChecked)] == [1, 2, 3], "it is sent back, but not for ever"


@EACH
def test_k2_e1_a_budget_that_ends_between_two_tries_stops_with_5_and_more_of_it_goes_on(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    model = {OPEN: "scripted/scripted"}.get(runtime, "claude-sonnet-4-5")
    step = (
        f"{{id: fix, agent: developer, runtime: {runtime}, model: {model}, prompt: Write 42, check: grep -x 42 answer}}"
    )
    project.file("plan.yaml", f"budget: 0.50\nsteps: [{step}]\n")
    dear = Reply.say("It is 41.", tokens_in=200_000, tokens_out=100)
    script = [does(runtime, "echo 41 > answer")[0], dear, *does(runtime, "echo 42 > answer")]
    with serving(project, script) as served:
        stopped = windlass("run", "plan.yaml", "--yes", "--json", code=5)
        assert (stopped.json["reason"], len(served.requests)) == ("budget", 2), "the second try is not paid for"
        (execution,) = project.ids()
        ran = windlass("resume", execution, "--budget", "10", "--json", "--yes")
    served.check()
    fixed, who = agent(ran)
    assert (fixed["status"], who["verdict"]) == ("completed", "verified")
    assert "It is 41." in served.requests[2].text, "the same conversation"
    *before, last = [event.passed for event in told(project, ev.AgentChecked)]
    assert (any(before), last) == (False, True), "Claude Code stops by itself, before its work is checked"
