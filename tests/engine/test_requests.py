"""Requests reach an execution whoever drives it, if anybody, or say that they did not (D3, D10)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from waiting import wait_until_async

from windlass import tool
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine import requests as module
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import LocalDrivers
from windlass.engine.observer import Observer
from windlass.engine.requests import MOST_REFUSED, Requests, check_edits, keepable, persist
from windlass.errors import Category, Conflict, Failure, NotPermitted, UsageError
from windlass.plan.model import Plan
from windlass.process import AttemptAbove
from windlass.testing import FakeClock, MemoryJournal
from windlass.tools.built_in import Registry

PLAN = Plan.model_validate(
    {
        "name": "p",
        "steps": [
            {"id": "work", "tool": "greet", "with": {"name": "you"}},
            {"id": "other", "tool": "greet", "with": {"name": "you"}},
        ],
    }
)


@tool
def greet(name: str, times: int = 1) -> str:
    return name * times


class World:
    """An execution that another process has begun."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.clock = FakeClock()
        self.drivers = LocalDrivers(self.journal, self.clock)
        self.requests = Requests(Observer(self.drivers), self.drivers)
        self.other = self.journal.enlist("other")

    async def state(self) -> State:
        return fold([entry.event for entry in await self.journal.read("x")], PLAN)

    async def happen(self, *events: ev.Event) -> State:
        """Let its driver write events."""
        before = [entry.event for entry in await self.journal.read("x")]
        state = fold([*before, *events], PLAN)
        await self.journal.append("x", len(before), events, head=head_of(state))
        return state

    async def begun(self, *events: ev.Event) -> State:
        now = self.clock.now()
        created = ev.ExecutionCreated(now, "x", msgspec.Raw(PLAN.encoded), {}, "/")
        return await self.happen(created, ev.ExecutionStarted(now, self.other), *events)


BROKEN = (
    ev.AttemptStarted(2.0, "work", 1, "greet", {}, "none"),
    ev.AttemptFailed(3.0, "work", 1, Failure(Category.LOGIC, "broken")),
    ev.StepFailed(3.0, "work", Failure(Category.LOGIC, "broken")),
)
SKIP = {"kind": "skip", "by": "me", "request": "r"}


async def test_d10_a_request_to_an_execution_that_nobody_drives_is_written_with_what_it_changes() -> None:
    world = World()
    await world.begun(*BROKEN)
    asked = ev.ApprovalAsked(3.0, "other", "digest", "greet", {}, 1e12)
    state = await world.happen(asked, ev.ExecutionPaused(4.0, "approval"))
    after = await world.requests.redo(state, "work", dict(SKIP))
    assert after.steps["work"].skip_by == "me"
    answer = {"kind": "approve", "step": "other", "digest": "digest", "allow": True, "by": "me"}
    await world.journal.append("x", after.seq, [], questions=None)
    await world.requests.answer(after, answer)
    assert isinstance((await world.journal.read("x"))[-1].event, ev.ApprovalAnswered)
    assert await world.journal.receive() == []


async def test_d10_a_skip_after_the_end_reopens_the_execution() -> None:
    world = World()
    await world.begun(*BROKEN)
    state = await world.happen(ev.ExecutionFinished(4.0, "failed"))
    after = await world.requests.redo(state, "work", dict(SKIP))
    reopened, skipped = (entry.event for entry in (await world.journal.read("x"))[-2:])
    assert reopened == ev.ExecutionReopened(world.clock.now(), "me")
    assert skipped == ev.StepSkipRequested(world.clock.now(), "work", "me", "r")
    assert after.status == "paused"
    assert "x" in world.journal.history.kept, "the history has it as it stands now"


async def test_d10_a_retry_or_a_skip_that_does_not_fit_says_why_and_is_not_sent() -> None:
    world = World()
    finished = ev.AttemptFinished(3.0, "other", 1, "done")
    await world.begun(*BROKEN, ev.AttemptStarted(2.0, "other", 1, "greet", {}, "none"), finished)
    state = await world.happen(ev.ExecutionPaused(4.0, "me"))
    for kind in ("skip", "retry"):
        with pytest.raises(UsageError, match="other of x is completed"):
            await world.requests.redo(state, "other", {"kind": kind, "by": "me"})
        with pytest.raises(UsageError, match="other of x is completed"):
            world.requests.expect_redo(state, "other", {"kind": kind, "by": "me"})
    world.requests.expect_redo(state, "work", {"kind": "retry", "by": "me"})
    assert state.steps["work"].status == "pending", "the state shows what would come of it"
    assert (await world.state()).steps["work"].status == "failed", "and nothing was written"


async def test_d3_an_answer_after_the_end_is_told_that_the_execution_moved_on() -> None:
    world = World()
    await world.begun(*BROKEN)
    state = await world.happen(ev.ExecutionFinished(4.0, "failed"))
    with pytest.raises(Conflict, match="moved on before your request was read: send it again"):
        await world.requests.answer(state, {"kind": "pause", "by": "me"})
    assert (await world.state()).seq == state.seq


async def test_d3_a_request_to_another_process_waits_until_its_driver_has_written_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "POLL", 0.001)
    world = World()
    state = await world.begun()
    waiting = asyncio.create_task(world.requests.redo(state, "work", dict(SKIP)))
    (message,) = await wait_until_async(world.journal.receive)
    assert (message.execution, message.body["kind"], message.body["request"]) == ("x", "skip", "r")
    assert not waiting.done()
    skipped = ev.StepSkipRequested(5.0, "work", "me", "r")
    await world.journal.append("x", state.seq, [skipped], consumed=[message.id])
    assert (await waiting).steps["work"].skip_by == "me"


async def test_d3_a_request_that_another_process_dropped_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.001)
    world = World()
    state = await world.begun()
    waiting = asyncio.create_task(world.requests.redo(state, "work", dict(SKIP)))
    (message,) = await wait_until_async(world.journal.receive)
    other = ev.StepSkipRequested(5.0, "work", "somebody else", "another request")
    await world.journal.append("x", state.seq, [other], consumed=[message.id])
    with pytest.raises(Conflict):
        await waiting


async def test_d3_a_request_whose_driver_died_before_it_read_it_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "POLL", 0.001)
    world = World()
    state = await world.begun()
    waiting = asyncio.create_task(world.requests.redo(state, "work", dict(SKIP)))
    await wait_until_async(world.journal.receive)
    world.journal.retire(world.other)
    assert (await waiting).steps["work"].skip_by == "me"
    assert await world.journal.receive() == [], "no later driver reads it a second time"


async def test_d3_a_process_that_never_reads_a_request_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.001)
    monkeypatch.setattr(module, "READ_WITHIN", 0.0)
    world = World()
    state = await world.begun()
    with pytest.raises(UsageError, match="has not read your request for 0 s: it is kept") as hangs:
        await world.requests.redo(state, "work", dict(SKIP))
    assert hangs.value.failure.advice[1] == "if that process hangs: windlass resume x --take-over"
    assert len(await world.journal.receive()) == 1


async def test_d3_a_request_is_tried_again_each_time_that_another_process_was_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGER", 0.0)
    tried: list[int] = []

    async def ask() -> int:
        tried.append(len(tried) + 1)
        if len(tried) < limit:
            raise Conflict("slower")
        return len(tried)

    limit = module.TRIES
    assert await persist(ask) == module.TRIES
    tried.clear()
    limit = module.TRIES + 1
    with pytest.raises(Conflict):
        await persist(ask)
    assert len(tried) == module.TRIES


async def test_c6_an_answer_from_inside_a_step_is_refused_and_on_record_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    above = AttemptAbove("y", "attack")
    monkeypatch.setattr(module, "attempt_behind", lambda: above)
    world = World()
    await world.begun()
    state = await world.happen(ev.ExecutionPaused(4.0, "approval"))
    for _ in range(MOST_REFUSED + 2):
        with pytest.raises(NotPermitted, match="only a person can answer that") as refused:
            await world.requests.refuse_attempts(state, "approve", "work")
        assert refused.value.failure.advice == ("answer in a terminal or a browser of your own: windlass approvals",)
        state = await world.state()
    assert len(state.refused) == MOST_REFUSED
    last = (await world.journal.read("x"))[-1].event
    assert isinstance(last, ev.AnswerRefused)
    assert (last.what, last.step, last.by) == ("approve", "work", str(above))
    monkeypatch.setattr(module, "attempt_behind", lambda: None)
    await world.requests.refuse_attempts(state, "approve", "work")
    ended = World()
    await ended.begun(*BROKEN)
    state = await ended.happen(ev.ExecutionFinished(4.0, "failed"))
    monkeypatch.setattr(module, "attempt_behind", lambda: above)
    with pytest.raises(NotPermitted):
        await ended.requests.refuse_attempts(state, "approve", "work")
    assert (await ended.state()).seq == state.seq


def test_d3_a_request_that_no_journal_could_hold_is_refused_by_name() -> None:
    assert keepable({"by": "me", "edits": {"a": (1, 2)}}) == {"by": "me", "edits": {"a": [1, 2]}}
    body: dict[str, Any]
    for body, said in (
        ({"reason": 7}, "`reason` is text; given is 7"),
        ({"edits": object()}, "the request is not plain data"),
        ({"edits": {1: "a", "1": "b"}}, "the request is not plain data"),
    ):
        with pytest.raises(UsageError, match=said):
            keepable(body)


async def test_k1_a_message_to_an_agent_shows_what_would_come_of_it_before_anything_is_written() -> None:
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "work", **AGENT}]})
    created = ev.ExecutionCreated(1.0, "x", msgspec.Raw(plan.encoded), {}, "/")
    state = fold([created, ev.ExecutionStarted(1.0, "d"), *BROKEN, ev.ExecutionFinished(4.0, "failed")], plan)
    World().requests.expect_say(state, ev.AgentTold(5.0, "work", "m", "the file is in /tmp", "me"))
    assert (state.status, state.steps["work"].status) == ("paused", "pending")
    agent = state.steps["work"].agent
    assert agent is not None
    assert list(agent.told) == ["m"]


def edits_of(step: dict[str, Any], **body: Any) -> dict[str, Any]:
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", **step}]})
    state = fold([ev.ExecutionCreated(1.0, "x", msgspec.Raw(plan.encoded), {}, "/")], plan)
    return check_edits(state.steps["a"], body, Registry([greet]))


TOOL = {"tool": "greet", "with": {"name": "you"}}
AGENT = {"agent": "developer", "prompt": "do it"}
CODE = {"code": "return 1"}


def test_d10_edits_are_checked_against_what_the_step_has() -> None:
    assert edits_of(TOOL) == {}
    assert edits_of(TOOL, edits={"times": 2}) == {"times": 2}
    assert edits_of(AGENT, edits={"prompt": "do more"}, runtime="cli", model="m", fresh=True) == {"prompt": "do more"}
    assert edits_of(CODE, edits={"anything": 1}) == {"anything": 1}, "the arguments of a program have any name"
    assert edits_of({"tool": "not.here"}, edits={"a": 1}) == {"a": 1}, "a tool that is missing is told of in its turn"


@pytest.mark.parametrize(
    ("step", "body", "said", "advice"),
    [
        (TOOL, {"fresh": True}, "step a has no agent, so it has no conversation to begin anew", ()),
        (TOOL, {"runtime": "cli"}, "step a has no agent, so it has no runtime and no model", ("it has: name",)),
        (TOOL, {"model": "m"}, "step a has no agent, so it has no runtime and no model", ("it has: name",)),
        (TOOL, {"edits": {"tmies": 2}}, "step a: 'tmies' is not an argument; did you mean 'times'?", ("it has: name",)),
        ({"run": "true"}, {"model": "m"}, "step a has no agent", ("it has: line, run",)),
        (
            AGENT,
            {"edits": {"model": "m"}},
            "step a: 'model' is not an argument of an agent step",
            ("it has: prompt, role, skills, files, max_turns; and `runtime`, `model` of the request",),
        ),
        (TOOL, {"edits": {"name": {1: "a", "1": "b"}}}, "the arguments of step a are not plain data", ()),
    ],
)
def test_d10_edits_that_a_step_cannot_have_are_refused_with_what_it_has(
    step: dict[str, Any], body: dict[str, Any], said: str, advice: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as refused:
        edits_of(step, **body)
    assert refused.value.message.startswith(said)
    assert refused.value.failure.advice == advice
