"""What an agent asks to do is put to a person, who may answer later and elsewhere (C6), with the real runtimes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from agent_project import CLAUDE, CLAUDE_AND_SOAK, living, serving, told, write

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass


@CLAUDE_AND_SOAK
def test_c6_without_a_terminal_it_stops_with_3_and_goes_on_in_the_same_conversation_with_the_answer(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    """Two agents ask; one is allowed to and one is not. Asked for the same again, the person's word still stands."""
    yes, no = project.path / "yes.txt", project.path / "no.txt"
    project.file("tasks.yaml", "[{id: yes, task: write it down}, {id: no, task: strike it out}]")
    script = [
        write(runtime, yes, "agreed\n", text="I would write.", when="write it down"),
        write(runtime, yes, "agreed\n", text="Then I write.", when="write it down"),
        Reply.say("Written.", when="write it down"),
        write(runtime, no, when="strike it out"),
        write(runtime, no, when="strike it out"),
        Reply.say("Then not.", when="strike it out"),
    ]
    with serving(project, script) as model:
        stopped = windlass("run", "--task-file", "tasks.yaml", "--runtime", runtime, code=3)
        assert living(project) == []
        assert not yes.exists()
        assert json.dumps("agreed\n") in stopped.err, "what it wants to do is shown whole"
        asked = {one["step"]: one["input"] for one in windlass("approvals", "--json").json}
        assert (asked["yes"]["content"], asked.keys()) == ("agreed\n", {"yes", "no"})
        (execution,) = project.ids()
        assert f"windlass approve {execution} no " in stopped.err
        windlass.shell(stopped.command("approve .* yes"))
        windlass("approve", execution, "no", "--deny", "--note", "not on a Sunday")
        assert not yes.exists(), "an answer alone starts nothing"
        windlass.shell(stopped.command("resume"))
    model.check()
    assert (yes.read_text(), no.exists()) == ("agreed\n", False)
    steps = project.state(execution).steps
    assert (steps["yes"].output, steps["no"].output) == ("Written.", "Then not.")
    assert len(told(project, ev.ApprovalAsked)) == 2, "what was answered is not asked again"
    assert len({event.session for event in told(project, ev.AgentSession)}) == 2
    one = [received for received in model.requests if "write it down" in received.text][1]
    assert one.text.index("write it down") < one.text.index("I would write.") < one.text.index("was allowed")
    assert "You were interrupted" in one.last_user_text
    _, two, three = [received for received in model.requests if "strike it out" in received.text]
    assert "was denied: not on a Sunday" in two.last_user_text
    assert "not on a Sunday" in three.tool_results[0]


def test_c6_another_use_of_the_same_tool_is_another_question(project: Project, windlass: Windlass, until: Any) -> None:
    """While it runs: the answers come from another process, and the conversation never stops."""
    one, two = project.path / "one.txt", project.path / "two.txt"
    script = [write(CLAUDE, one), write(CLAUDE, two), Reply.say("One of two.")]
    with serving(project, script) as model:
        execution = windlass.detached("--task", "write twice", "--runtime", CLAUDE)
        for asked, allow in enumerate((True, False), 1):
            until(lambda asked=asked: len(told(project, ev.ApprovalAsked)) == asked)
            windlass("approve", execution, "task", *([] if allow else ["--deny"]))
        ran = windlass("watch", execution, "--json", "--exit-status")
    model.check()
    assert (one.exists(), two.exists()) == (True, False)
    assert ran.json["steps"][0]["attempts"] == 1
    assert "denied" in model.requests[2].tool_results[0]


def test_a2_a_conversation_that_is_gone_begins_anew_and_the_answer_still_holds(
    project: Project, windlass: Windlass
) -> None:
    target = project.path / "a.txt"
    script = [write(CLAUDE, target), write(CLAUDE, target), Reply.say("Written in the end.")]
    with serving(project, script) as model:
        stopped = windlass("run", "--task", "write it down", "--runtime", CLAUDE, code=3)
        windlass.shell(stopped.command("approve"))
        shutil.rmtree(project.user / "config" / "projects")
        ran = windlass.shell(stopped.command("resume"))
    model.check()
    assert "Written in the end." in ran.out
    assert "the earlier conversation is lost: starting a new one" in ran.err
    assert target.exists()
    anew = model.requests[1]
    assert "<task>\nwrite it down\n</task>" in anew.last_user_text
    assert "You were interrupted" not in anew.text
    assert len(told(project, ev.ApprovalAsked)) == 1
