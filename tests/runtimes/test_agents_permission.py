"""What an agent asks to do is put to a person, who may answer later and elsewhere (C6), with the real runtimes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_project import BOTH, CLAUDE, agent, living, serving, told, write

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass


@BOTH
def test_c6_without_a_terminal_it_stops_with_3_and_the_printed_commands_go_on_in_the_same_conversation(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    target = project.path / "a.txt"
    script = [
        write(runtime, target, "agreed\n", text="I would write."),
        write(runtime, target, "agreed\n", text="Then I write."),
        Reply.say("Written."),
    ]
    with serving(project, script) as model:
        stopped = windlass("run", "--task", "write it down", "--runtime", runtime, code=3)
        assert living(project) == []
        assert not target.exists()
        (execution,) = project.ids()
        assert json.dumps("agreed\n") in stopped.err, "what it wants to do is shown whole"
        assert windlass("approvals", "--json").json[0]["input"]["content"] == "agreed\n"
        windlass.shell(stopped.command("approve"))
        assert not target.exists(), "an answer alone starts nothing"
        windlass.shell(stopped.command("resume"))
    model.check()
    assert target.read_text() == "agreed\n"
    step = project.state(execution).steps["task"]
    assert (step.output, step.status) == ("Written.", "completed")
    assert len(told(project, ev.ApprovalAsked)) == 1, "what was allowed is not asked again"
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    again = model.requests[1]
    assert again.text.index("write it down") < again.text.index("I would write.") < again.text.index("was allowed")
    assert "You were interrupted" in again.last_user_text


@BOTH
def test_c6_a_denial_is_told_to_the_agent_which_goes_on_without(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    """Asked for the same again, the person's word still stands."""
    target = project.path / "a.txt"
    script = [write(runtime, target), write(runtime, target), Reply.say("Then not.")]
    with serving(project, script) as model:
        windlass("run", "--task", "write it down", "--runtime", runtime, code=3)
        (execution,) = project.ids()
        windlass("approve", execution, "task", "--deny", "--note", "not on a Sunday")
        ran = windlass("resume", execution, "--json")
    model.check()
    assert not target.exists()
    step, who = agent(ran)
    assert (step["status"], step["output"]) == ("completed", "Then not.")
    assert "was denied: not on a Sunday" in model.requests[1].last_user_text
    assert "not on a Sunday" in model.requests[2].tool_results[0]
    assert len(told(project, ev.ApprovalAsked)) == 1
    assert who["runtime"] == runtime


def test_c6_another_use_of_the_same_tool_is_another_question(project: Project, windlass: Windlass, until: Any) -> None:
    """While it runs: the answers come from another process, and the conversation never stops."""
    one, two = project.path / "one.txt", project.path / "two.txt"
    script = [write(CLAUDE, one), write(CLAUDE, two), Reply.say("One of two.")]
    with serving(project, script) as model:
        execution = windlass.detached("--task", "write twice", "--runtime", CLAUDE)
        for allow in (True, False):
            asked = len(told(project, ev.ApprovalAnswered)) + 1
            until(lambda asked=asked: len(told(project, ev.ApprovalAsked)) == asked)
            windlass("approve", execution, "task", *([] if allow else ["--deny"]))
        ran = windlass("watch", execution, "--json", "--exit-status")
    model.check()
    assert (one.exists(), two.exists()) == (True, False)
    assert ran.json["steps"][0]["attempts"] == 1
    assert "denied" in model.requests[2].tool_results[0]
