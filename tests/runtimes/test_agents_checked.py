"""K2: on the real runtimes, 41 is sent back into the same conversation and 42 is verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_project import BOTH, CLAUDE_AND_SOAK, agent, price, serving, told, write

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
steps:
  - id: fix
    agent: developer
    runtime: {runtime}
    prompt: Write the answer to answer.txt
    check: grep -x 42 answer.txt
"""


@BOTH
def test_k2_the_agent_is_told_what_failed_and_goes_on_in_its_conversation(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    target = project.path / "answer.txt"
    project.file("plan.yaml", PLAN.format(runtime=runtime))
    script = [
        write(runtime, target, "41\n", tokens_in=100, tokens_out=10),
        Reply.say("It is 41.", tokens_in=200, tokens_out=10),
        write(runtime, target, "42\n", tokens_in=300, tokens_out=10),
        Reply.say("Now it is 42.", tokens_in=400, tokens_out=10),
    ]
    with serving(project, script) as model:
        ran = windlass("run", "plan.yaml", "--yes", "--json")
    model.check()
    step, who = agent(ran)
    assert (step["status"], step["output"], step["attempts"]) == ("completed", "Now it is 42.", 1)
    assert (who["verdict"], who["checks"][0]["exit_code"]) == ("verified", 0)
    assert who["cost"]["usd"] == pytest.approx(price(1000, 40))
    assert "grep -x 42 answer.txt" in model.requests[2].text
    assert "It is 41." in model.requests[2].text, "the same conversation"
    checked: list[Any] = told(project, ev.AgentChecked)
    assert [event.passed for event in checked] == [False, True]
    (execution,) = project.ids()
    status = windlass("status", execution).out
    assert "fix  completed (verified)" in status
    assert "### Check failed" in windlass("transcript", execution, "fix").out
    assert windlass("verify", execution).out == "fix  verified\n  passed: grep -x 42 answer.txt\n"
    target.write_text("43\n")
    again = windlass("verify", execution, "fix", code=1)
    assert "fix  refuted" in again.out
    assert windlass("verify", execution, "--json", code=1).json["verdicts"] == {"fix": "refuted"}
    assert "added    answer.txt  +1 -0" in windlass("diff", execution, "--stat").out
    assert "+42\n" in windlass("diff", execution, "fix").out
    refused = windlass("undo", execution, "fix", code=1)
    assert "changed since: answer.txt" in refused.err
    target.write_text("42\n")
    windlass("undo", execution, "fix", code=-9, WINDLASS_FAULT="workspace.put_back:1")
    assert "answer.txt  removed" in windlass("undo", execution, "fix").out
    assert not target.exists()


@CLAUDE_AND_SOAK
def test_k3_a_result_that_does_not_fit_is_sent_back_with_the_reasons(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    form = "{type: object, required: [tasks], properties: {tasks: {type: array}}}"
    step = f"{{id: plan, agent: architect, runtime: {runtime}, prompt: Which tasks?, output: {form}}}"
    project.file("plan.yaml", f"steps: [{step}]\n")
    with serving(project, [Reply.say("Two tasks."), Reply.say('{"tasks": ["a", "b"]}')]) as model:
        ran = windlass("run", "plan.yaml", "--yes", "--json")
    model.check()
    planned, who = agent(ran)
    assert (planned["output"], planned["attempts"], who["verdict"]) == ({"tasks": ["a", "b"]}, 1, "claimed")
    assert "is not JSON" in model.requests[1].text
