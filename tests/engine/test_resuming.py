"""Answers that come with a resume, and the reasons against going on: all at once, or none (D2, D5, E3, K1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld, agent, done, plan
from waiting import settled

from windlass import Step, tool
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.resuming import ResumeFindings, changed_plan, examine, file_digest
from windlass.errors import CannotResume, Category, Failure, NotPermitted, UsageError
from windlass.plan.model import Plan
from windlass.ports import Health
from windlass.process import AttemptAbove
from windlass.testing import ScriptedRunner, Turn
from windlass.tools.built_in import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project


@dataclass
class Sent:
    """A tool that cannot take back what it does."""

    count: int = 0

    def tool(self) -> Any:
        @tool(effect="once")
        def send(word: str = "") -> int:
            self.count += 1
            return self.count

        return send


CUT_OFF = (
    ev.AttemptStarted(NOW, "send", 1, "send", {}, "once"),
    ev.AttemptStopped(NOW, "send", 1, "lost"),
    ev.StepWaiting(NOW, "send", "outcome", None, "did it?"),
    ev.ExecutionPaused(NOW, "decision"),
)
SEND = Plan(steps=[Step(id="send", tool="send")])


async def test_d2_a_decision_that_comes_with_a_resume_is_the_first_that_it_obeys(project: Project) -> None:
    sent = Sent()
    world = AgentWorld(project, tools=[sent.tool()])
    state = await world.left_behind(SEND, *CUT_OFF)
    async with world.engine() as engine:
        for wrong in (
            ev.DecisionMade(NOW, "other", "done", "me"),
            ev.DecisionMade(NOW, "send", "done", "me", object()),
        ):
            with pytest.raises(UsageError):
                await engine.resume(state.id, decisions=[wrong])
        assert (await engine.state(state.id)).seq == state.seq, "nothing of it was written"
        decided = ev.DecisionMade(NOW, "send", "done", "me", 7)
        ended = await (await engine.resume(state.id, decisions=[decided])).wait()
    assert (ended.status, ended.steps["send"].output, sent.count) == ("completed", 7, 0)


async def test_d2_a_decision_on_a_step_that_asks_nothing_is_refused_by_the_check_before(project: Project) -> None:
    world = AgentWorld(project, tools=[Sent().tool()])
    state = await world.left_behind(SEND, *CUT_OFF)
    async with world.engine() as engine:
        await engine.check_redo(state.id, [], decisions=["send"])
        await engine.settle(state.id, "send", "fail")
        with pytest.raises(UsageError, match="send"):
            await engine.check_redo(state.id, [], decisions=["send"])


async def test_c6_from_inside_a_step_a_resume_is_allowed_and_every_answer_with_it_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.requests.attempt_behind", lambda: AttemptAbove("y", "attack"))
    sent = Sent()
    world = AgentWorld(project, tools=[sent.tool()])
    state = await world.left_behind(SEND, *CUT_OFF)
    answers: tuple[dict[str, Any], ...] = (
        {"decisions": [ev.DecisionMade(NOW, "send", "done", "me", 7)]},
        {"budget": [ev.BudgetAnswered(NOW, True, "me", "", "execution", 5.0)]},
        {"accept_changes": True},
    )
    async with world.engine() as engine:
        for answer in answers:
            with pytest.raises(NotPermitted, match="only a person can answer that"):
                await engine.resume(state.id, **answer)
        assert len((await engine.state(state.id)).refused) == len(answers)
        assert (await (await engine.resume(state.id, hold=False)).wait()).paused_for == "decision"


async def test_e3_a_limit_that_comes_with_a_resume_holds_from_then_on(project: Project) -> None:
    world = AgentWorld(project, ScriptedRunner([done(usd=2.0)], name="cli"))
    waits = ev.StepWaiting(NOW, "work", "budget", None, "more?", scope="step")
    state = await world.left_behind(plan(agent(budget=1)), waits, ev.ExecutionPaused(NOW, "budget"))
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="a budget of -1"):
            await engine.resume(state.id, budget=[ev.BudgetAnswered(NOW, True, "me", "work", "step", -1.0)])
        answer = ev.BudgetAnswered(NOW, True, "me", "work", "step", 5.0)
        ended = await (await engine.resume(state.id, hold=False, budget=[answer])).wait()
    assert ended.status == "completed"
    assert ended.allowed["step:work"].usd == 5.0


async def test_d5_without_the_answers_a_resume_asks_the_same_again(project: Project) -> None:
    sent = Sent()
    world = AgentWorld(project, tools=[sent.tool()])
    state = await world.left_behind(SEND, *CUT_OFF)
    again = await world.resume(state.id)
    assert (again.paused_for, sent.count) == ("decision", 0)


async def test_k1_a_message_to_a_changed_plan_waits_for_a_person_to_say_which_one(
    project: Project, tmp_path: Path
) -> None:
    runner = ScriptedRunner(
        [Turn(session="s1").say("half").fail("cannot", category="logic"), done("whole")], name="cli"
    )
    world = AgentWorld(project, runner)
    file = tmp_path / "plan.yaml"
    file.write_text("steps: [{id: work, agent: developer, prompt: go}]")
    async with world.engine() as engine:
        failed = await (await engine.start(file, hold=False)).wait()
        assert failed.status == "failed"
        with pytest.raises(UsageError, match="is failed; there is nothing to resume"):
            await engine.resume(failed.id)
        file.write_text("steps: [{id: work, agent: developer, prompt: stop}]")
        with pytest.raises(CannotResume, match="has changed since") as refused:
            await engine.say(failed.id, "work", "try /tmp", by="ann", to_resume=True)
        keep = f"keep the plan as it was started: windlass say {failed.id} work TEXT --keep-plan"
        assert refused.value.failure.advice == (keep,)
        await engine.say(failed.id, "work", "try /tmp", by="ann", to_resume=True, keep_plan=True)
        for refused_too in (engine.resume(failed.id), engine.check(failed.id)):
            with pytest.raises(CannotResume, match="has changed since"):
                await refused_too
        ended = await (await engine.resume(failed.id, keep_plan=True)).wait()
    assert ended.steps["work"].output == "whole"


async def test_k1_a_message_to_an_agent_whose_conversation_the_runtime_here_may_not_read_is_not_written(
    project: Project,
) -> None:
    broken = Failure(Category.LOGIC, "broken")
    runner = ScriptedRunner([done()], name="cli", health=Health(True, version="1.0"))
    world = AgentWorld(project, runner)
    state = await world.left_behind(
        plan(agent()),
        ev.AttemptStarted(NOW, "work", 1, "agent", {}, "repeatable"),
        ev.AgentBegan(NOW, "work", 1, "cli", "developer", "who", "what", version="2.0"),
        ev.AgentSession(NOW, "work", 1, "cli", "s1"),
        ev.AttemptFailed(NOW, "work", 1, broken),
        ev.StepFailed(NOW, "work", broken),
        ev.ExecutionFinished(NOW, "failed"),
    )
    said = "the conversation of step work was written by cli 2.0, which 1.0 may be unable to read"
    async with world.engine() as engine:
        with pytest.raises(CannotResume, match=said):
            await engine.say(state.id, "work", "go on", by="ann", to_resume=True)
        assert (await engine.state(state.id)).seq == state.seq


async def test_d5_a_runtime_that_is_missing_here_is_a_reason_against_a_resume(project: Project) -> None:
    world = AgentWorld(project, runtime="cli")
    state = await world.left_behind(plan(agent()), ev.ExecutionPaused(NOW, "me"))
    async with world.engine() as engine:
        with pytest.raises(CannotResume, match=r"step work: .*not installed"):
            await engine.check(state.id)


async def test_d3_what_another_process_drives_is_resumed_here_only_if_it_is_to_be_taken_over(project: Project) -> None:
    world = AgentWorld(project, tools=[Sent().tool()])
    other = world.journal.enlist("other")
    state = await world.left_behind(SEND, ev.ExecutionPaused(NOW, "me"), ev.ExecutionResumed(NOW, other))
    async with world.engine() as engine:
        with pytest.raises(UsageError, match=f"is running in another process \\(driver {other}\\)") as refused:
            await engine.resume(state.id)
        assert refused.value.failure.advice == (
            f"follow it: windlass watch {state.id}",
            f"if that process hangs: windlass resume {state.id} --take-over",
        )
        execution = await engine.resume(state.id, take_over=True)
        assert (await execution.wait()).status == "completed"


async def test_d5_a_resume_waits_for_a_persons_answer_unless_nobody_is_there(project: Project) -> None:
    world = AgentWorld(project, tools=[Sent().tool()])
    state = await world.left_behind(SEND, *CUT_OFF)
    async with world.engine() as engine:
        execution = await engine.resume(state.id)
        await settled()
        assert (await engine.state(state.id)).status == "running"
        with pytest.raises(UsageError, match="is running already") as refused:
            await engine.resume(state.id)
        assert refused.value.failure.advice == (f"follow it: windlass watch {state.id}",)
        await engine.settle(state.id, "send", "done")
        assert (await execution.wait()).status == "completed"


# -- the reasons -------------------------------------------------------------------------------------


def state_of(folder: Path, source: ev.Source, *steps: dict[str, Any], **more: Any) -> State:
    given = [{"id": "a", "tool": "greet"}, *steps]
    plan = Plan.model_validate({"name": "p", "steps": given})
    return fold([ev.ExecutionCreated(NOW, "x", msgspec.Raw(plan.encoded), {}, str(folder), source, **more)], plan)


@tool
def greet() -> None: ...


def found(state: State, **now: str) -> ResumeFindings:
    return examine(state, Registry([greet]), state.workdir, now)


def test_d5_nothing_changed_is_no_reason(tmp_path: Path) -> None:
    file, tools = tmp_path / "plan.yaml", tmp_path / "tools.py"
    file.write_text("plan")
    tools.write_text("tools")
    source = ev.Source(str(file), file_digest(file), {str(tools): str(file_digest(tools))})
    state = state_of(tmp_path, source, environment={"python": "3.11"})
    assert found(state, python="3.11").reasons == []
    assert changed_plan(state) == ""
    file.unlink()
    assert found(state).reasons == [], "the journal has the plan"
    assert changed_plan(state) == ""


def test_d5_each_change_is_told_with_the_ways_past_it(tmp_path: Path) -> None:
    file, tools = tmp_path / "my plan.yaml", tmp_path / "tools.py"
    file.write_text("plan")
    tools.write_text("tools")
    state = state_of(tmp_path, ev.Source(str(file), "other", {str(tools): "other"}), {"id": "b", "tool": "gret"})
    reasons = found(state)
    assert changed_plan(state) == str(file)
    assert reasons.changed == [f"the plan {file} has changed since", f"the tools in {tools} have changed since"]
    assert reasons.tools == ["step b needs the tool 'gret', which does not exist here; did you mean 'greet'?"]
    assert reasons.ways_out("x") == [
        "accept the changes: windlass resume x --accept-changes",
        "keep the plan as it was started: windlass resume x --keep-plan",
        f"start a new execution, keeping completed steps: windlass fork x --plan '{file}'",
    ]
    tools.unlink()
    assert f"the tool file {tools} is missing" in found(state).tools
    assert ResumeFindings().ways_out("x", "windlass retry x a") == [
        "start a new execution, keeping completed steps: windlass fork x"
    ]


def test_d5_a_working_directory_that_is_gone_and_a_tool_that_is_like_no_other_are_told(tmp_path: Path) -> None:
    state = state_of(tmp_path / "gone", ev.Source(), {"id": "b", "tool": "zzz.qqq"})
    reasons = found(state)
    assert reasons.missing == [f"its working directory {tmp_path / 'gone'} does not exist (`workdir` names another)"]
    assert reasons.tools == ["step b needs the tool 'zzz.qqq', which does not exist here"]


def test_d5_a_tool_of_a_step_that_has_ended_is_not_missed(tmp_path: Path) -> None:
    state = state_of(tmp_path, ev.Source(), {"id": "b", "tool": "zzz.qqq"})
    state.apply(ev.ExecutionStarted(NOW, "d"))
    state.apply(ev.StepSkipped(NOW, "b", "b", condition=True))
    assert found(state).reasons == []


def test_d5_other_versions_count_where_something_unfinished_rests_on_them(tmp_path: Path) -> None:
    before = {"python": "3.11", "quickjs": "1", "windlass": "1"}
    tools = tmp_path / "tools.py"
    tools.write_text("tools")
    source = ev.Source(tools={str(tools): str(file_digest(tools))})
    state = state_of(tmp_path, source, {"id": "b", "code": "return 1"}, environment=before)
    assert found(state, python="3.12", quickjs="2", windlass="2").changed == [
        "its Python tools ran on Python 3.11, and this is 3.12"
    ]
    state.apply(ev.ExecutionStarted(NOW, "d"))
    state.apply(ev.AttemptStarted(NOW, "b", 1, "code", {}, "none"))
    state.apply(ev.ProgramBegan(NOW, "b", "", "digest"))
    assert found(state, python="3.11", quickjs="2").changed == [
        "the program of step b started on QuickJS 1, and this is 2: it may make other calls"
    ]
    assert found(state, python="3.11").changed == [], "nobody knows which one is here"
    plain = state_of(tmp_path, ev.Source(), environment=before)
    assert found(plain, python="3.12", quickjs="2").changed == []


def test_d5_what_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    assert file_digest(tmp_path) is None
    assert file_digest(tmp_path / "gone") is None
