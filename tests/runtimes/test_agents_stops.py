"""Agents that are stopped, killed or interrupted (A8, C4, D1): nothing is left, and the same conversation goes on."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import CLAUDE, CLAUDE_AND_SOAK, OPEN, agent, bash, living, pids, serving, told, wait_for, write
from opencode_fixtures import needs_opencode
from waiting import wait_promised

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

SOON = 2.0
"""Seconds within which a stopped agent and all it started must be gone."""

PLAN = """
steps:
  - {id: before, run: echo before >> ran}
  - {id: work, agent: developer, needs: [before], handoff: false, prompt: begin the work}
"""


def gone_soon(project: Project) -> None:
    """Wait until nothing of the project's user lives, for the time that is promised."""
    wait_promised(lambda: not living(project), f"these are gone: {living(project)}", SOON)


def kept(project: Project, runtime: str, text: str) -> bool:
    """Whether the runtime has written this down in its own store, where a resume finds it."""
    folder = project.user / ("config/projects" if runtime == CLAUDE else ".local/share/opencode")
    for path in folder.rglob("*"):
        with suppress(OSError):  # a folder, or a file that it has removed meanwhile
            if text.encode() in path.read_bytes():
                return True
    return False


def sleeping(runtime: str, project: Project) -> Reply:
    """A command that would take long; a file tells that it runs."""
    return bash(runtime, f"touch {project.path / 'running'}; sleep 1000", text="I wait.")


@CLAUDE_AND_SOAK
def test_c4_pause_now_stops_in_the_middle_of_an_answer_and_a_resume_goes_on_in_the_same_conversation(
    project: Project, windlass: Windlass, until: Any, runtime: str
) -> None:
    never = threading.Event()
    script = [
        write(runtime, project.path / "a.txt", text="First a file."),
        Reply.say("Halfway", hold=never, hold_at="middle"),
        Reply.say("The whole answer."),
    ]
    with serving(project, script) as model:
        run = windlass.background("run", project.plan(PLAN), "--runtime", runtime, "--yes")
        wait_for(model, 2, run)
        until(lambda: any("Halfway" in event.text for event in told(project, ev.OutputWritten)))
        (execution,) = project.ids()
        windlass("pause", execution, "--now")
        assert run.ended().code == 3
        gone_soon(project)
        never.set()
        ran = windlass("resume", execution, "--json", "--yes")
    model.check()
    step, who = agent(ran, 1)
    assert (step["status"], step["output"]) == ("completed", "The whole answer.")
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    goes_on = model.requests[2].text
    assert goes_on.index("begin the work") < goes_on.index("First a file.") < goes_on.index("You were interrupted")
    assert project.lines("ran") == ["before"]
    assert who["runtime"] == runtime
    assert who["cost"]["tokens_in"] >= 20, "what the broken answer took is not forgotten"


@pytest.mark.parametrize(
    ("runtime", "moment"),
    [
        pytest.param(CLAUDE, "in an answer", marks=pytest.mark.soak),
        (CLAUDE, "in a command"),
        pytest.param(OPEN, "in a command", marks=needs_opencode),
    ],
)
def test_a8_kill_9_of_windlass_leaves_nothing_and_a_resume_goes_on_in_the_same_conversation(
    project: Project, windlass: Windlass, until: Any, runtime: str, moment: str
) -> None:
    middle = Reply.hang(after="half") if moment == "in an answer" else sleeping(runtime, project)
    script = [write(runtime, project.path / "a.txt", text="First a file."), middle, Reply.say("Done after all.")]
    with serving(project, script) as model:
        run = windlass.background("run", project.plan(PLAN), "--runtime", runtime, "--yes")
        wait_for(model, 2, run)
        if moment == "in a command":
            until((project.path / "running").exists)
            assert any("sleep 1000" in line for line in living(project))
        until(lambda: kept(project, runtime, "First a file."))
        until(lambda: told(project, ev.UsageReported))  # what the first call used is on disk
        (execution,) = project.ids()
        run.signal(signal.SIGKILL)
        assert run.ended().code == -signal.SIGKILL
        gone_soon(project)
        ran = windlass("resume", execution, "--json", "--yes")
    model.check()
    step, _ = agent(ran, 1)
    assert (step["status"], step["output"]) == ("completed", "Done after all.")
    assert project.lines("ran") == ["before"], "what is done is not done again"
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    goes_on = model.requests[2].text
    assert goes_on.index("begin the work") < goes_on.index("First a file.") < goes_on.index("You were interrupted")
    assert goes_on.count("begin the work") == 1
    assert ran.json["cost"]["tokens_in"] >= 20, "what the lost attempt used is not forgotten"
    assert ran.json["cost"]["known"] is False, "and what it used at its end nobody knows"


@pytest.mark.soak
def test_k1_kill_9_of_windlass_costs_the_cli_runtime_no_call_no_line_and_no_token_twice(
    project: Project, windlass: Windlass, until: Any
) -> None:
    """The runtime is the killed process itself, in the middle of an answer after a command."""
    plan = "steps: [{id: work, agent: developer, runtime: cli, prompt: begin the work}]"
    begun = Reply.use("shell", {"line": "echo once >> ran"}, text="I begin.", tokens_in=100, tokens_out=7)
    script = [begun, Reply.hang(after="half"), Reply.say("Done after all.", tokens_in=200, tokens_out=9)]
    with serving(project, script) as model:
        run = windlass.background("run", project.plan(plan), "--yes")
        wait_for(model, 2, run)
        until(lambda: told(project, ev.UsageReported) and told(project, ev.AgentReturned))
        (execution,) = project.ids()
        run.signal(signal.SIGKILL)
        assert run.ended().code == -signal.SIGKILL
        gone_soon(project)
        ran = windlass("resume", execution, "--json", "--yes")
    model.check()
    step, _ = agent(ran)
    assert step["output"] == "Done after all."
    assert project.lines("ran") == ["once"]
    goes_on = model.requests[2].text
    assert [goes_on.count(said) for said in ("begin the work", "I begin.")] == [1, 1]
    assert (ran.json["cost"]["tokens_in"], ran.json["cost"]["tokens_out"]) == (300, 16)
    assert ran.json["cost"]["known"] is False, "what the broken answer took nobody knows"


@CLAUDE_AND_SOAK
def test_c3_kill_9_of_the_runtime_is_a_failure_of_the_attempt_and_the_retry_goes_on_in_the_same_conversation(
    project: Project, windlass: Windlass, until: Any, runtime: str
) -> None:
    script = [sleeping(runtime, project), Reply.say("I went on.")]
    with serving(project, script) as model:
        run = windlass.background("run", project.plan(PLAN), "--runtime", runtime, "--yes", "--json")
        until((project.path / "running").exists)
        until(lambda: kept(project, runtime, "I wait."))
        sign = "--session-id" if runtime == CLAUDE else " serve "
        (pid,) = pids(project, sign)
        os.kill(pid, signal.SIGKILL)
        ran = run.ended()
        assert ran.code == 0, str(ran)
        gone_soon(project)
    model.check()
    step, who = agent(ran, 1)
    assert (step["output"], step["attempts"], who["runtime"]) == ("I went on.", 2, runtime)
    (failed,) = told(project, ev.AttemptFailed)
    assert failed.failure.category == "resource"
    assert failed.output == "I wait."
    assert failed.failure.advice
    assert "SIGKILL" in failed.failure.message or "signal 9" in failed.failure.message
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    assert "I wait." in model.requests[1].text


@pytest.mark.parametrize(
    ("runtime", "how"),
    [
        (CLAUDE, "a signal"),
        pytest.param(CLAUDE, "a command", marks=pytest.mark.soak),
        pytest.param(OPEN, "a command", marks=[needs_opencode, pytest.mark.soak]),
    ],
)
def test_a8_an_interrupt_ends_all_at_once_and_stands_still(
    project: Project, windlass: Windlass, until: Any, runtime: str, how: str
) -> None:
    with serving(project, [sleeping(runtime, project)]) as model:
        run = windlass.background("run", "--task", "wait", "--runtime", runtime, "--yes", "--json")
        until((project.path / "running").exists)
        (execution,) = project.ids()
        if how == "a signal":
            run.signal(signal.SIGINT)
        else:
            windlass("interrupt", execution)
        wait_promised(lambda: project.state(execution).status == "paused", "it is paused", SOON)
        ran = run.ended()
        gone_soon(project)
    model.check()
    assert ran.code == 130
    assert ran.json["reason"] == "interrupt"
    assert ran.json["steps"][0]["status"] == "paused"
    # OpenCode tells what a call used only after the tools that it led to.
    assert (ran.json["cost"]["tokens_in"] == 10) if runtime == CLAUDE else (ran.json["cost"]["known"] is False)
    assert windlass("status", execution, "--json").json["status"] == "paused"


def test_c4_a_cancelled_agent_is_gone_for_good(project: Project, windlass: Windlass, until: Any) -> None:
    with serving(project, [sleeping(CLAUDE, project)]) as model:
        execution = windlass.detached("--task", "wait", "--runtime", CLAUDE, "--allow", "Bash")
        until((project.path / "running").exists)
        windlass("cancel", execution)
        gone_soon(project)
        assert "cancelled" in windlass("resume", execution, code=2).err
    model.check()
    assert project.state(execution).status == "cancelled"


@CLAUDE_AND_SOAK
def test_k1_a_message_under_way_at_a_kill_9_is_given_once_and_in_order(
    project: Project, windlass: Windlass, until: Any, runtime: str
) -> None:
    script = [sleeping(runtime, project), Reply.say("Done, with both."), Reply.say("Nothing more.", repeat=True)]
    with serving(project, script) as model:
        run = windlass.background("run", project.plan(PLAN), "--runtime", runtime, "--yes")
        until((project.path / "running").exists)
        until(lambda: kept(project, runtime, "I wait."))
        (execution,) = project.ids()
        for text in ("the first remark", "the second remark"):
            windlass("say", execution, "work", text, "--wait", "0")
        until(lambda: len(told(project, ev.AgentTold)) == 2)
        run.signal(signal.SIGKILL)
        assert run.ended().code == -signal.SIGKILL
        gone_soon(project)
        ran = windlass("resume", execution, "--json", "--yes")
    step, _ = agent(ran, 1)
    assert step["status"] == "completed", ran
    said = model.requests[-1].text
    assert [said.count(text) for text in ("begin the work", "the first remark", "the second remark")] == [1, 1, 1]
    assert said.index("the first remark") < said.index("the second remark")
    heard = [id for event in told(project, ev.AgentHeard) for id in event.ids]
    assert heard == [event.id for event in told(project, ev.AgentTold)]


def test_k1_retry_goes_on_in_the_conversation_and_fresh_begins_anew(project: Project, windlass: Windlass) -> None:
    project.file("a.txt", "the text of a")
    plan = "steps: [{id: work, agent: developer, runtime: cli, prompt: begin the work, retry: 0}]"
    refused = Reply.error(401, "another key")
    script = [Reply.use("files__read", {"path": "a.txt"}), refused, refused, Reply.say("done anew")]
    with serving(project, script) as model:
        windlass("run", project.plan(plan), "--yes", code=1)
        (execution,) = project.ids()
        windlass("retry", execution, "work", "--yes", code=1)
        ran = windlass("retry", execution, "work", "--fresh", "--yes", "--json")
    model.check()
    assert ran.json["steps"][0]["output"] == "done anew"
    assert "the text of a" in model.requests[2].text, "the retry goes on"
    assert "the text of a" not in str(model.requests[3].messages[0]), "a fresh one has its prompt alone"
    assert len(model.requests[3].messages) == 1
    assert len({event.session for event in told(project, ev.AgentSession)} - {None}) == 2
