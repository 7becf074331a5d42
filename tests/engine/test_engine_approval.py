"""Approval gates (C6): what is asked, what the answer holds for, and that no answer means no."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Execution, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.core.state import State
from windlass.errors import NotFound, UsageError
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project


class Sender:
    """A tool that one wants to be asked about, with a record of what it did."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @tool
        async def send(text: str, call: Call) -> str:
            self.sent.append(text)
            if text == "flaky" and call.attempt == 1:
                raise ToolError("try again", category="transient")
            return f"sent {text}"

        @tool
        async def other() -> None:
            """Needs no asking."""

        self.tools = [send, other]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def plan_of(text: str = "hello", **more: Any) -> Plan:
    step = Step(id="send", tool="send", with_={"text": text}, approve="always", retry={"delay": "10ms"}, **more)
    return Plan(inputs={"name": "you"}, steps=[step, Step(id="other", tool="other")])


async def asked(execution: Execution, count: int = 1) -> ev.ApprovalAsked:
    """Follow it until the question has been put that many times."""
    async for event in execution.events():
        count -= isinstance(event, ev.ApprovalAsked)
        if count == 0:
            assert isinstance(event, ev.ApprovalAsked)
            return event
    raise AssertionError("nothing was asked")


async def test_c6_nothing_is_done_before_the_answer_and_the_exact_arguments_are_shown(
    project: Project, sender: Sender
) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of("hello {{ inputs.name }}"))
        question = await asked(execution)
        assert (question.step, question.tool, question.input) == ("send", "send", {"text": "hello you"})
        assert sender.sent == []
        state = await execution.state()
        assert list(state.questions) == ["send"]
        await execution.approve("send", note="go ahead")
        result = await execution.result()
    assert sender.sent == ["hello you"]
    assert result["status"] == "completed"
    answer = next(e for e in project.events(execution.id) if isinstance(e, ev.ApprovalAnswered))
    assert (answer.allow, answer.by, answer.note, answer.digest) == (True, "python", "go ahead", question.digest)


async def test_c6_a_use_on_a_folder_is_asked_about_and_done(project: Project) -> None:
    project.file("inbox/a.txt", "a")
    plan = Plan(steps=[Step(id="look", tool="files.list", with_={"path": "inbox"}, approve="always")])
    async with windlass.open() as engine:
        execution = await engine.start(plan)
        assert (await asked(execution)).input == {"path": "inbox"}
        await execution.approve("look")
        result = await execution.result()
    assert result["status"] == "completed"
    assert "a.txt" in str(result["steps"][0]["output"])


async def test_c6_the_rest_goes_on_while_a_step_waits(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of(), hold=True)
        async for event in execution.events():
            if isinstance(event, ev.AttemptFinished):
                assert event.step == "other"
                break
        await execution.cancel()
    assert sender.sent == []


async def test_c6_without_hold_it_pauses_when_only_a_person_can_go_on(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of(), hold=False)
        state = await execution.wait()
        assert (state.status, state.paused_for) == ("paused", "approval")
        assert state.steps["other"].status == "completed"
        await engine.approve(execution.id, "send")
        assert (await execution.state()).status == "paused", "an answer alone starts nothing"
        result = await (await engine.resume(execution.id, hold=False)).result()
    assert result["status"] == "completed"
    assert sender.sent == ["hello"]


async def test_d1_an_answer_that_is_acknowledged_is_on_disk(project: Project, sender: Sender) -> None:
    """Whoever was told that it is answered must not be asked again after a crash in the next moment."""
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        await asked(execution)
        await execution.approve("send")
        kept = [entry.event for entry in await engine.journal.read(execution.id)]
        assert any(isinstance(event, ev.ApprovalAnswered) for event in kept)
        await execution.wait()


async def test_d1_a_request_that_nobody_waits_for_is_on_disk(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        await asked(execution)
        await engine.pause(execution.id, within=0)
        kept = [entry.event for entry in await engine.journal.read(execution.id)]
        assert any(isinstance(event, ev.ControlRequested) for event in kept)


async def test_c6_a_denial_fails_the_step_with_its_note_and_nothing_is_done(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        await asked(execution)
        await execution.approve("send", allow=False, note="not on a Friday")
        result = await execution.result()
    step = result["steps"][0]
    assert (result["status"], step["status"], step["attempts"]) == ("partial", "failed", 0)
    assert step["error"]["category"] == "permission"
    assert step["error"]["message"] == "denied by python: not on a Friday"
    assert step["error"]["advice"]
    assert sender.sent == []


@pytest.mark.parametrize("paused", [False, True])
async def test_c6_unanswered_in_time_fails_closed(
    project: Project, sender: Sender, clock: FakeClock, paused: bool
) -> None:
    """Whether somebody holds it or it stands still: when its time is over, the answer is no."""
    async with windlass.open(tools=sender.tools, approval_expiry="1h") as engine:
        execution = await engine.start(plan_of(), hold=not paused)
        await (execution.wait() if paused else asked(execution))
        clock.advance(3600)
        state = await (await engine.resume(execution.id) if paused else execution).wait()
    assert state.status == "partial"
    error = state.steps["send"].error
    assert error is not None
    assert error.category == "permission"
    assert "expired without an answer" in error.message
    assert sender.sent == []


async def test_c6_a_step_says_itself_how_long_its_question_stays_open(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools, approval_expiry="1h") as engine:
        execution = await engine.start(plan_of(approve_within="20ms"))
        assert (await execution.wait()).status == "partial"
        question = await asked(execution)
    assert question.expires_at - question.at == pytest.approx(0.02)


async def test_c6_an_answer_that_comes_too_late_is_refused(project: Project, sender: Sender, clock: FakeClock) -> None:
    """Nobody drives it and its time is over: a yes now must not do it after all."""
    async with windlass.open(tools=sender.tools, approval_expiry="1h") as engine:
        execution = await engine.start(plan_of(), hold=False)
        assert (await execution.wait()).status == "paused"
        clock.advance(3600)
        with pytest.raises(UsageError, match="has expired"):
            await execution.approve("send")
        result = await (await engine.resume(execution.id)).result()
        assert result["steps"][0]["status"] == "failed"
        assert sender.sent == []
        before = project.events(execution.id)
        with pytest.raises(UsageError, match="is not waiting for approval"):
            await execution.approve("send")
        assert project.events(execution.id) == before, "nothing is added to what has ended"


async def test_c6_an_answer_holds_for_exactly_what_was_shown(project: Project, sender: Sender) -> None:
    """The arguments change between the answer and the resume: it is asked again, with the new ones."""
    path = project.path / "plan.yaml"
    text = "{steps: [{id: send, tool: send, with: {text: %s}, approve: always}]}"
    path.write_text(text % "harmless")
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(path, hold=False)
        await execution.wait()
        await execution.approve("send")
        path.write_text(text % "harmful")
        state = await (await engine.resume(execution.id, accept_changes=True, hold=False)).wait()
        assert (state.status, state.paused_for) == ("paused", "approval")
        assert sender.sent == []
        question = state.steps["send"].approval
        assert question is not None
        assert question.input == {"text": "harmful"}
        await execution.approve("send")
        await (await engine.resume(execution.id, hold=False)).wait()
    assert sender.sent == ["harmful"]


async def test_c6_a_question_that_no_longer_stands_is_put_anew(project: Project, sender: Sender) -> None:
    """The plan changes while the step waits: what is open then is what would be done now."""
    path = project.path / "plan.yaml"
    text = "{steps: [{id: send, tool: send, with: {text: '%s{{ item }}'}, foreach: [1, 2], approve: %s}]}"
    path.write_text(text % ("old", "always"))
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(path, hold=False)
        await execution.wait()
        await execution.approve("send[1]")
        path.write_text(text % ("new", "always"))
        state = await (await engine.resume(execution.id, accept_changes=True, hold=False)).wait()
        open_now = {s.id: s.approval.input for s in state.questions.values() if s.approval}
        assert open_now == {"send[0]": {"text": "new1"}, "send[1]": {"text": "new2"}}
        path.write_text(text % ("newest", "never"))
        result = await (await engine.resume(execution.id, accept_changes=True, hold=False)).result()
    assert result["status"] == "completed"
    assert sender.sent == ["newest1", "newest2"]


async def test_c6_an_answer_to_something_else_is_refused(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        question = await asked(execution)
        with pytest.raises(UsageError, match="asks for something else"):
            await engine.approve(execution.id, "send", digest="0" * 64)
        await engine.approve(execution.id, "send", digest=question.digest)
        assert (await execution.wait()).status == "completed"


async def test_c6_what_does_not_wait_cannot_be_answered(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        await asked(execution)
        with pytest.raises(UsageError, match=r"other .* is not waiting"):
            await execution.approve("other")
        with pytest.raises(NotFound, match=r"sned.*send"):
            await execution.approve("sned")
        await execution.approve("send")
        await execution.wait()
        for allow in (True, False):
            with pytest.raises(UsageError, match="is not waiting"):
                await execution.approve("send", allow=allow)
        state = await execution.state()
    assert state.status == "completed"


async def test_c6_a_cancelled_execution_takes_no_answers(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        await asked(execution)
        await execution.cancel()
        with pytest.raises(UsageError, match="is not waiting"):
            await execution.approve("send")
    assert sender.sent == []


async def test_c6_a_retry_of_the_same_thing_is_not_asked_about_again(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of("flaky"))
        await asked(execution)
        await execution.approve("send")
        result = await execution.result()
    assert (result["status"], result["steps"][0]["attempts"]) == ("completed", 2)
    assert sum(isinstance(e, ev.ApprovalAsked) for e in project.events(execution.id)) == 1


async def test_c6_each_item_of_a_fan_out_is_asked_about_by_itself(project: Project, sender: Sender) -> None:
    step = Step(id="send", tool="send", with_={"text": "{{ item }}"}, approve="always", foreach=["a", "b"])
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(Plan(steps=[step]))
        await asked(execution, 2)
        state = await execution.state()
        assert {s.id: s.approval.input for s in state.questions.values() if s.approval} == {
            "send[0]": {"text": "a"},
            "send[1]": {"text": "b"},
        }
        await execution.approve("send[1]")
        await execution.approve("send[0]", allow=False)
        result = await execution.result()
    assert sender.sent == ["b"]
    assert [s["status"] for s in result["steps"]] == ["failed", "failed", "completed"]


async def test_c6_a_question_survives_pause_and_restart_and_can_be_answered_meanwhile(
    project: Project, sender: Sender
) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of())
        first = await asked(execution)
        await execution.pause()
    async with windlass.open(tools=sender.tools) as engine:
        state = await engine.state(execution.id)
        assert [s.approval.digest for s in state.questions.values() if s.approval] == [first.digest]
        await engine.approve(execution.id, "send")
        result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert sum(isinstance(e, ev.ApprovalAsked) for e in project.events(execution.id)) == 1


async def test_c6_an_answer_from_another_engine_reaches_the_one_that_holds(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as one, windlass.open() as other:
        execution = await one.start(plan_of())
        await asked(execution)
        await other.approve(execution.id, "send", by="boss")
        result = await execution.result()
    assert result["status"] == "completed"
    assert sender.sent == ["hello"]


@pytest.mark.parametrize("driven", ["here", "elsewhere"])
async def test_c6_of_two_opposite_answers_at_once_the_second_is_told_of_the_first(
    project: Project, sender: Sender, driven: str
) -> None:
    async with windlass.open(tools=sender.tools) as one, windlass.open() as other:
        execution = await one.start(plan_of())
        await asked(execution)
        engine = one if driven == "here" else other
        answers = [
            engine.approve(execution.id, "send", allow=False, by="ann"),
            engine.approve(execution.id, "send", by="ben"),
        ]
        came = await asyncio.gather(*answers, return_exceptions=True)
        state = await execution.wait()
    (answered,) = [e for e in project.events(execution.id) if isinstance(e, ev.ApprovalAnswered)]
    assert answered.by == ("ann" if came[0] is None else "ben"), "the answer that was acknowledged is in the journal"
    (refused,) = [one for one in came if one is not None]
    first = "allowed by ben" if answered.allow else "denied by ann"
    assert isinstance(refused, UsageError)
    assert f"is not waiting for approval (already {first})" in str(refused)
    assert sender.sent == (["hello"] if answered.allow else [])
    assert state.status in ("completed", "partial")


def _statuses(state: State) -> dict[str, str]:
    return {step.id: str(step.status) for step in state.steps.values()}


async def test_c6_pausing_and_resuming_does_not_reopen_a_question(project: Project, sender: Sender) -> None:
    """A question that was open before the pause keeps its own time to answer."""
    async with windlass.open(tools=sender.tools, approval_expiry="1h") as engine:
        execution = await engine.start(plan_of())
        first = await asked(execution)
        for _ in range(3):
            await execution.pause()
            resumed: Execution = await engine.resume(execution.id)
            state = await resumed.state()
            approval = state.steps["send"].approval
            assert approval is not None
            assert approval.expires_at == first.expires_at
        await execution.cancel()
    assert _statuses(project.state(execution.id)) == {"send": "skipped", "other": "completed"}


async def test_c6_without_approve_nobody_is_asked(project: Project, sender: Sender) -> None:
    plan = Plan(steps=[Step(id="send", tool="send", with_={"text": "x"}, approve="never")])
    async with windlass.open(tools=sender.tools) as engine:
        assert (await (await engine.start(plan)).result())["status"] == "completed"


async def test_c6_the_plan_has_its_own_words_for_the_question(project: Project, sender: Sender) -> None:
    async with windlass.open(tools=sender.tools) as engine:
        execution = await engine.start(plan_of(question="Send it to {{ inputs.name }}?"))
        question = await asked(execution)
        assert question.question == "Send it to you?"
        await execution.approve("send")
        assert (await execution.result())["status"] == "completed"
    assert sender.sent == ["hello"]
    asks = [event for event in project.events(execution.id) if isinstance(event, ev.ApprovalAsked)]
    assert len(asks) == 1, "its words are no change of the use"


async def test_c6_an_answer_holds_for_the_words_of_its_question(project: Project, sender: Sender) -> None:
    """The arguments are the same at the second try, but the person was told something else."""
    broken = iter([True])

    @tool
    async def check() -> None:
        if next(broken, False):
            raise ToolError("no", category="permanent")

    send = Step(
        id="send",
        tool="send",
        needs=["check"],
        with_={"text": "flaky"},
        retry=0,
        approve="always",
        question="The check {{ steps.check.status }}. Send?",
    )
    plan = Plan(steps=[Step(id="check", tool="check", importance="optional", retry=0), send])
    async with windlass.open(tools=[*sender.tools, check]) as engine:
        execution = await engine.start(plan)
        assert (await asked(execution)).question == "The check failed. Send?"
        await execution.approve("send")
        await execution.wait()
        assert sender.sent == ["flaky"]
        await execution.retry("check")
        await execution.wait()
        await execution.retry("send")
        assert (await asked(execution, 2)).question == "The check completed. Send?"
        assert sender.sent == ["flaky"]
        await execution.approve("send")
        assert (await execution.result())["status"] == "completed"


@pytest.mark.parametrize("more", [{}, {"approve": "never"}, {"approve": "auto"}, {"approve": "always", "question": ""}])
def test_c6_a_question_that_nobody_would_be_asked_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="question"):
        Step(**{"id": "a", "run": "true", "question": "Really?", **more})
