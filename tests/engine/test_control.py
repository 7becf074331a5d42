"""Each request to an execution that cannot be met says why, and what can be done instead (C6, D3, E3, F3, H2)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld, agent, plan
from waiting import wait_until_async

from windlass import Call, Step, tool
from windlass.core import events as ev
from windlass.engine import control
from windlass.errors import Category, Failure, NotFound, ToolError, UsageError, WindlassError
from windlass.homes import user_folder
from windlass.plan.model import Plan
from windlass.testing import FakeClock
from windlass.workspaces.worktrees import place_of

if TYPE_CHECKING:
    from conftest import Project

PLAIN = Plan(name="plain", steps=[Step(id="a", tool="count"), Step(id="b", tool="count", needs=["a"])])
ASKED = ev.ApprovalAsked(NOW, "a", "digest", "count", {}, NOW + 100)


class World(AgentWorld):
    """An engine with a tool that counts its uses, at a time that stands still."""

    def __init__(self, project: Project) -> None:
        self.uses = 0
        self.now = FakeClock(NOW + 1)

        @tool(effect="repeatable")
        async def count(call: Call) -> int:
            self.uses += 1
            return self.uses

        super().__init__(project, clock=self.now, tools=[count])


@pytest.fixture
def world(project: Project) -> World:
    return World(project)


async def refused(request: Any) -> tuple[str, tuple[str, ...]]:
    with pytest.raises(UsageError) as error:
        await request
    return error.value.message, tuple(error.value.failure.advice)


# -- approval ----------------------------------------------------------------------------------------


async def test_c6_an_approval_that_nobody_asked_for_or_that_was_answered_is_refused(world: World) -> None:
    state = await world.left_behind(PLAIN, ASKED, ev.ExecutionPaused(NOW, "approval"))
    list_them = (f"see its status: windlass status {state.id}", "list open approvals: windlass approvals")
    async with world.engine() as engine:
        said = f"step b of {state.id} is not waiting for approval"
        assert await refused(engine.approve(state.id, "b")) == (said, list_them)
        other = "step a of {} now asks for something else: check it before you answer"
        assert (await refused(engine.approve(state.id, "a", digest="other")))[0] == other.format(state.id)
        await engine.approve(state.id, "a", digest="digest", by="ann", note="go", request="r")
        answer = (await world.events(state.id))[-1]
        assert answer == ev.ApprovalAnswered(NOW + 1, "a", "digest", True, "ann", "go", "r")
        said = f"step a of {state.id} is not waiting for approval (already allowed by ann)"
        assert await refused(engine.approve(state.id, "a", allow=False)) == (said, list_them)


async def test_c6_a_denial_by_nobody_is_said_to_be_a_persons(world: World) -> None:
    state = await world.left_behind(PLAIN, ASKED, ev.ExecutionPaused(NOW, "approval"))
    async with world.engine() as engine:
        await engine.approve(state.id, "a", allow=False)
        said, _ = await refused(engine.approve(state.id, "a"))
        assert said.endswith("(already denied by a person)")


async def test_c6_an_approval_that_expired_is_closed_by_a_resume_and_asked_again_by_a_retry(world: World) -> None:
    state = await world.left_behind(PLAIN, ASKED, ev.ExecutionPaused(NOW, "approval"))
    async with world.engine() as engine:
        world.now.set(NOW + 100)
        assert await refused(engine.approve(state.id, "a")) == (
            f"the approval of step a of {state.id} has expired: it counts as denied",
            (
                f"have the question closed: windlass resume {state.id}",
                f"then ask again: windlass retry {state.id} a",
            ),
        )


async def test_c6_a_rule_is_made_only_of_an_open_question_of_an_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = plan(agent("work"), Step(id="a", tool="count"))
    by_agent = ev.ApprovalAsked(NOW, "work", "d", "Bash", {"command": "ls -la"}, NOW + 100, 1)
    started = ev.AttemptStarted(NOW, "work", 1, "agent", {}, "repeatable")
    state = await world.left_behind(own, ASKED, started, by_agent)
    async with world.engine() as engine:
        monkeypatch.delenv("WINDLASS_PERMISSIONS", raising=False)
        rule = await engine.always_rule(state.id, "work")
        assert "ls -la" in rule
        assert "the plan or the settings ask for this approval" in (await refused(engine.always_rule(state.id, "a")))[0]
        assert "look at it again" in (await refused(engine.approve_always(state.id, "work", "other")))[0]
        monkeypatch.setenv("WINDLASS_PERMISSIONS", "")
        assert "WINDLASS_PERMISSIONS is set" in (await refused(engine.always_rule(state.id, "work")))[0]
        monkeypatch.delenv("WINDLASS_PERMISSIONS")
        file = user_folder() / "config.toml"
        await refused(engine.approve_always(state.id, "work", rule, digest="other"))
        assert not file.exists(), "an answer that is refused leaves no rule"
        await engine.approve_always(state.id, "work", rule, by="ann")
        assert rule in file.read_text()
        allowed = engine._control._agents
        assert allowed is not None
        assert allowed.settings.permissions.allow == (rule,), "attempts that begin here from now on do not ask"
        said = f"step work of {state.id} is not waiting for approval"
        assert await refused(engine.always_rule(state.id, "work")) == (said, ())


async def test_c6_a_question_of_an_agents_step_before_its_first_attempt_makes_no_rule(world: World) -> None:
    asked = ev.ApprovalAsked(NOW, "work", "d", "agent", {}, NOW + 100)
    state = await world.left_behind(plan(agent("work")), asked, ev.ExecutionPaused(NOW, "approval"))
    async with world.engine() as engine:
        assert "ask for this approval" in (await refused(engine.always_rule(state.id, "work")))[0]


# -- decisions and budgets ---------------------------------------------------------------------------


async def test_d2_only_an_unknown_outcome_is_decided_and_only_in_one_of_three_ways(world: World) -> None:
    waits = ev.StepWaiting(NOW, "a", "outcome", None, "did it?")
    state = await world.left_behind(PLAIN, waits, ev.ExecutionPaused(NOW, "decision"))
    async with world.engine() as engine:
        unknown: Any = "maybe"
        said = "there is no decision 'maybe'; there are: again, done, fail"
        assert await refused(engine.settle(state.id, "a", unknown)) == (said, ())
        assert "b" in (await refused(engine.settle(state.id, "b", "done")))[0]
        await engine.settle(state.id, "a", "done", by="ann", output=5, request="r")
        assert (await world.events(state.id))[-1] == ev.DecisionMade(NOW + 1, "a", "done", "ann", 5, "r")
        assert "a" in (await refused(engine.settle(state.id, "a", "done")))[0]


async def test_e3_an_answer_on_a_budget_needs_a_question_or_a_limit(world: World) -> None:
    state = await world.left_behind(PLAIN, ev.ExecutionPaused(NOW, "me"))
    async with world.engine() as engine:
        said = "unknown budget scope 'week': use step, execution, day or month"
        assert await refused(engine.allow_budget(state.id, usd=1.0, scope="week")) == (said, ())
        nobody = f"no step of {state.id} is waiting for budget"
        status = (f"see what it waits for: windlass status {state.id}",)
        assert await refused(engine.allow_budget(state.id)) == (nobody, status)
        assert await refused(engine.allow_budget(state.id, allow=False, usd=1.0)) == (nobody, status)
        with pytest.raises(NotFound, match="has no step 'z'"):
            await engine.allow_budget(state.id, usd=1.0, scope="step", step="z")
        await engine.allow_budget(state.id, usd=1.0, tokens=5, scope="step", step="a", by="ann")
        answer = (await world.events(state.id))[-1]
        assert isinstance(answer, ev.BudgetAnswered)
        assert (answer.allow, answer.usd, answer.tokens, answer.scope, answer.step, answer.by) == (
            True,
            1.0,
            5,
            "step",
            "a",
            "ann",
        )


ENDED = (
    ev.AttemptStarted(NOW, "a", 1, "count", {}, "repeatable"),
    ev.AttemptFailed(NOW, "a", 1, Failure(Category.LOGIC, "broken")),
    ev.StepFailed(NOW, "a", Failure(Category.LOGIC, "broken")),
    ev.StepSkipped(NOW, "b", "a"),
    ev.ExecutionFinished(NOW, "failed"),
)


async def test_d3_an_execution_that_has_ended_takes_no_control_and_no_budget(world: World) -> None:
    state = await world.left_behind(PLAIN, *ENDED)
    async with world.engine() as engine:
        for request in (engine.pause, engine.interrupt, engine.cancel):
            said, advice = await refused(request(state.id))
            assert said == f"execution {state.id} is already failed"
            assert any("windlass" in line for line in advice)
        said, advice = await refused(engine.allow_budget(state.id, usd=1.0))
        assert said == f"execution {state.id} is already failed"
        assert advice
    assert len(await world.events(state.id)) == state.seq


# -- control of what nobody drives -------------------------------------------------------------------


async def test_d3_an_execution_that_was_left_behind_is_paused_or_cancelled_without_running_anything(
    world: World,
) -> None:
    state = await world.left_behind(PLAIN)
    async with world.engine() as engine:
        paused = await engine.pause(state.id, by="ann", reason="lunch")
        assert (paused.status, paused.paused_for) == ("paused", "lunch")
        again = len(await world.events(state.id))
        assert (await engine.pause(state.id)).status == "paused"
        assert (await engine.interrupt(state.id)).status == "paused"
        assert len(await world.events(state.id)) == again, "it stands still already"
        ended = await engine.cancel(state.id, by="ann")
        assert ended.status == "cancelled"
        requests = [one for one in await world.events(state.id) if isinstance(one, ev.ControlRequested)]
    assert [(one.kind, one.now, one.by) for one in requests] == [("pause", False, "ann"), ("cancel", True, "ann")]
    assert world.uses == 0


async def test_j2_an_execution_that_no_worker_drives_is_paused_by_this_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = await world.left_behind(PLAIN)
    async with world.engine() as engine:
        monkeypatch.setattr(engine._control._launcher, "_cluster", SimpleNamespace(driver="workers"))
        await engine.pause(state.id)
        (resumed,) = [one for one in await world.events(state.id) if isinstance(one, ev.ExecutionResumed)]
    assert resumed.driver != "workers"


async def test_d3_a_request_that_its_last_driver_did_not_read_is_answered_with_the_same_one(world: World) -> None:
    state = await world.left_behind(PLAIN)
    for kind in ("cancel", "pause"):
        await world.journal.send(state.id, NOW, {"kind": kind, "by": "bob"})
    await world.journal.send("other", NOW, {"kind": "cancel"})
    async with world.engine() as engine:
        await engine.cancel(state.id, by="ann")
    left = [(message.execution, message.body["kind"]) for message in await world.journal.receive()]
    assert left == [(state.id, "pause"), ("other", "cancel")]


async def test_d3_a_request_that_takes_longer_than_the_caller_waits_gives_the_state_as_it_is(world: World) -> None:
    other = world.journal.enlist("other")
    state = await world.left_behind(PLAIN, ev.ExecutionPaused(NOW, "me"), ev.ExecutionResumed(NOW, other))
    async with world.engine() as engine:
        assert (await engine.pause(state.id, now=True, by="ann", within=0.0)).status == "running"
        (message,) = await world.journal.receive()
    assert message.body == {"kind": "pause", "now": True, "by": "ann", "reason": ""}


async def test_d3_a_cancel_that_comes_while_another_process_pauses_is_carried_out_here(world: World) -> None:
    other = world.journal.enlist("other")
    state = await world.left_behind(PLAIN, ev.ExecutionPaused(NOW, "me"), ev.ExecutionResumed(NOW, other))
    async with world.engine() as engine:
        asked = asyncio.create_task(engine.cancel(state.id, by="ann"))
        await wait_until_async(world.journal.receive)
        paused = (await engine.find(state.id))._replace(status="paused")
        await world.journal.append(state.id, state.seq, [ev.ExecutionPaused(NOW, "pause")], head=paused)
        assert (await asked).status == "cancelled"
    assert await world.journal.receive() == []


# -- agents ------------------------------------------------------------------------------------------


async def test_f3_a_summary_of_an_agent_that_makes_no_further_call_is_refused(world: World) -> None:
    own = plan(agent("work"), agent("more"), Step(id="a", tool="count"))
    spoke = [
        event
        for step in ("work", "more")
        for event in (
            ev.AttemptStarted(NOW, step, 1, "agent", {}, "repeatable"),
            ev.AgentBegan(NOW, step, 1, "cli", "developer", "who", "what"),
            ev.AgentSession(NOW, step, 1, "cli", "s1"),
        )
    ]
    ends = (ev.AttemptFinished(NOW, "work", 1, "done"), ev.AttemptStopped(NOW, "more", 1, "paused"))
    state = await world.left_behind(own, *spoke, *ends, ev.ExecutionPaused(NOW, "me"))
    async with world.engine() as engine:
        said = "step work is already completed: its agent makes no further call"
        assert await refused(engine.summarise(state.id, "work")) == (said, ())
        assert "a" in (await refused(engine.summarise(state.id, "a")))[0]
        await engine.summarise(state.id, "more", by="ann")
        assert isinstance((await world.events(state.id))[-1], ev.AgentSummaryRequested)
        await engine.cancel(state.id)
        said, advice = await refused(engine.summarise(state.id, "more"))
        assert said == f"execution {state.id} is already cancelled: its agent makes no further call"
        assert advice


async def test_k2_only_verified_work_is_compared_with_the_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.engine.agents.staleness.StaleChecks.find", lambda *_: frozenset({"work"}))
    own = plan(agent("work", check="true"))
    work = (
        ev.AttemptStarted(NOW, "work", 1, "agent", {}, "repeatable"),
        ev.AgentBegan(NOW, "work", 1, "cli", "developer", "who", "what"),
        ev.AgentClaimed(NOW, "work", 1, "done"),
        ev.AgentChecked(NOW, "work", 1, 1, (ev.CheckResult("true", True, 0.1),)),
        ev.AttemptFinished(NOW, "work", 1, "done"),
    )
    state = await world.left_behind(own)
    async with world.engine() as engine:
        assert await engine.stale(state) == frozenset()
        for event in work:
            state.apply(event)
        assert await engine.stale(state) == {"work"}


async def test_k5_changes_that_cannot_be_shown_say_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> None:
        raise ToolError("the folder is gone", category="configuration", advice=("look for it",))

    monkeypatch.setattr("windlass.engine.agents.file_changes.changed_files", gone)
    state = await world.left_behind(PLAIN)
    async with world.engine() as engine:
        with pytest.raises(WindlassError) as error:
            await engine.diff(state.id)
        assert error.value.message == "the changes cannot be shown: the folder is gone"
        assert (error.value.failure.category, error.value.failure.advice) == (Category.CONFIGURATION, ("look for it",))
        with pytest.raises(NotFound):
            await engine.diff(state.id, "gone")


async def test_d10_an_agent_is_retried_on_a_runtime_that_there_is(world: World) -> None:
    broken = Failure(Category.LOGIC, "broken")
    state = await world.left_behind(
        plan(agent("work")),
        ev.AttemptStarted(NOW, "work", 1, "agent", {}, "repeatable"),
        ev.AttemptFailed(NOW, "work", 1, broken),
        ev.StepFailed(NOW, "work", broken),
        ev.ExecutionFinished(NOW, "failed"),
    )
    async with world.engine() as engine:
        said, _ = await refused(engine.retry(state.id, "work", runtime="nonsense"))
        assert "nonsense" in said
        assert (await engine.state(state.id)).status == "failed"
        after = await engine.retry(state.id, "work", runtime="cli", model="m", by="ann")
        assert (after.status, after.steps["work"].runtime, after.steps["work"].model) == ("paused", "cli", "m")


async def test_k4_to_list_the_folders_of_agents_removes_none(world: World) -> None:
    folder = place_of("x" * 32, "work")
    folder.mkdir(parents=True)
    state = await world.left_behind(
        plan(agent("work")),
        ev.AttemptStarted(NOW, "work", 1, "agent", {}, "repeatable"),
        ev.WorkspaceOpened(NOW, "work", 1, "copy", str(folder), True),
        ev.AttemptStopped(NOW, "work", 1, "paused"),
        ev.ExecutionPaused(NOW, "me"),
    )
    async with world.engine() as engine:
        (listed,) = await engine.workspaces()
    assert (listed["execution"], listed["step"], "removed" in listed) == (state.id, "work", False)
    assert folder.is_dir()


async def test_h2_undoing_says_why_it_cannot_be_done(world: World) -> None:
    own = plan(agent("work"), Step(id="a", tool="count"))
    state = await world.left_behind(own, ev.ExecutionPaused(NOW, "me"))
    async with world.engine() as engine:
        by_number: Any = 7
        assert "`by` is text" in (await refused(engine.undo(state.id, "a", by=by_number)))[0]
        assert "`by` is text" in (await refused(engine.workspaces(state.id, by=by_number)))[0]
        assert await refused(engine.undo(state.id, "a")) == (
            "step a is pending and can still continue, so it cannot be undone yet",
            (f"end the execution first: windlass cancel {state.id}",),
        )
        await engine.cancel(state.id)
        assert await refused(engine.undo(state.id, "a")) == (
            "step a has nothing to undo: it changed no file with the file tools here",
            ("changes by commands and other programs are not recorded",),
        )
        assert await refused(engine.undo(state.id, "work")) == (
            "step work has nothing to undo: its agent changed no file that was recorded",
            (),
        )
        ended = await engine.state(state.id)
        await world.journal.append(state.id, ended.seq, [ev.StepUndone(NOW, "a", "ann", [])])
        assert (await refused(engine.undo(state.id, "a")))[0] == f"step a of {state.id} is already undone"


def test_h2_each_class_of_tools_takes_its_changes_back_once(world: World) -> None:
    tools = world.engine().attempt_runner.tools
    found = [type(one).take_back for one in control._one_of_each_class(tools)]
    assert len(found) == len(set(found)) > 1
