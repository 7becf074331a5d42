"""The journal that a fork begins with: what it keeps of the original, and what runs again (D8, K1, K4, B5)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld

from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine.starting import fork_events
from windlass.errors import CannotResume, Category, Failure, UsageError
from windlass.plan.load import bind_inputs
from windlass.plan.model import Plan
from windlass.testing import ScriptedRunner, Simulation

if TYPE_CHECKING:
    from conftest import Project

AGENT = {"agent": "developer", "prompt": "do it"}
PASSED = ev.CheckResult("make test", True, 1.0)


def simulation(*steps: dict[str, Any], **more: Any) -> Simulation:
    full = [step if {"agent", "run"} & step.keys() else {"tool": "t", **step} for step in steps]
    run = Simulation(Plan.model_validate({"name": "p", "steps": full, **more}))
    run.start()
    return run


def spoke(run: Simulation, step: str, session: str = "s1", origin: str = "") -> None:
    run.state.apply(ev.AgentSession(2.0, step, 1, "cli", session, origin))


def worked(run: Simulation, step: str, *, passed: bool = True) -> None:
    """Its agent worked on a branch of its own."""
    run.state.apply(ev.WorkspaceOpened(2.0, step, 1, "worktree", "/w", True, branch=f"windlass/{step}"))
    run.state.apply(ev.AgentChecked(2.0, step, 1, 1, (ev.CheckResult("make test", passed, 1.0),)))
    run.state.apply(ev.WorkspaceCommitted(2.0, step, 1, f"windlass/{step}", "c0ffee"))
    run.state.apply(ev.FilesKept(2.0, step, 1, "manifest", 3, 9))


def forked(run: Simulation, from_step: str | None = None, **more: Any) -> list[ev.Event]:
    """The events after the creation of the fork."""
    chosen: dict[str, Any] = {"plan": run.plan, "inputs": None, "fresh": False, "message": None, **more}
    chosen["inputs"] = bind_inputs(chosen["plan"], chosen["inputs"] or {})
    source = ev.Source()
    created, *rest = fork_events(
        run.state, new_id="fork", now=9.0, source=source, workdir="/", from_step=from_step, to_start=True, **chosen
    )
    assert isinstance(created, ev.ExecutionCreated)
    assert created.origin == ev.Origin("fork", run.state.id, from_step)
    fold([created, *rest], chosen["plan"])
    return rest


def test_d8_completed_steps_are_kept_until_one_on_which_they_were_built_runs_again() -> None:
    run = simulation({"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c", "needs": ["b"]}, {"id": "aside"})
    for step in ("a", "b", "aside"):
        run.finish(step, step)
    run.fail("c", Failure(Category.LOGIC, "broken"))
    kept = {name: ev.StepCompleted(9.0, name, name) for name in ("a", "b", "aside")}
    assert sorted(forked(run), key=str) == sorted(kept.values(), key=str)
    assert sorted(forked(run, "b"), key=str) == sorted([kept["a"], kept["aside"]], key=str)
    assert forked(run, "a") == [kept["aside"]]


def test_d8_a_step_whose_changes_were_undone_runs_again() -> None:
    run = simulation({"id": "a"}, {"id": "b", "needs": ["a"]})
    run.finish("a")
    run.finish("b")
    run.state.apply(ev.StepUndone(3.0, "a", "me", []))
    assert forked(run) == []


def test_d8_the_completed_items_of_a_foreach_are_kept_where_the_fork_has_the_same_at_the_same_place() -> None:
    run = simulation(
        {"id": "each", "foreach": "{{ inputs.names }}", "when": "inputs.go"}, inputs={"names": ["a", "b"], "go": True}
    )
    run.finish("each[0]", "done")
    run.fail("each[1]", Failure(Category.LOGIC, "broken"))
    done = ev.StepCompleted(9.0, "each[0]", "done")
    assert forked(run, inputs={"names": ["a", "c"]}) == [ev.StepExpanded(9.0, "each", ["a", "c"]), done]
    assert forked(run, inputs={"names": ["a", "b", "c"]}) == [ev.StepExpanded(9.0, "each", ["a", "b", "c"]), done]
    assert forked(run, inputs={"names": ["b", "a"]}) == []
    assert forked(run, inputs={"go": False}) == []
    alone = Plan.model_validate({"name": "p", "steps": [{"id": "each", "tool": "t"}]})
    assert forked(run, plan=alone) == []
    broken = Plan.model_validate({"name": "p", "steps": [{"id": "each", "tool": "t", "foreach": "{{ inputs.no }}"}]})
    assert forked(run, plan=broken) == [], "its step says so in its turn"


def test_k4_an_agent_that_is_kept_has_its_branch_its_checks_and_its_files_as_before_any_attempt() -> None:
    run = simulation({"id": "work", **AGENT}, {"id": "last", "needs": ["work"]})
    worked(run, "work")
    run.finish("work", "done")
    opened, committed, checked, kept, completed = forked(run)
    assert opened == ev.WorkspaceOpened(9.0, "work", 0, "worktree", "/w", True, branch="windlass/work")
    assert committed == ev.WorkspaceCommitted(9.0, "work", 0, "windlass/work", "c0ffee")
    assert checked == ev.AgentChecked(9.0, "work", 0, 1, (PASSED,))
    assert kept == ev.FilesKept(9.0, "work", 0, "manifest", 3, 9, "simulated")
    assert completed == ev.StepCompleted(9.0, "work", "done")
    run.state.apply(ev.FilesKept(3.0, "work", 1, "manifest", 3, 9, "first"))
    assert forked(run)[3] == ev.FilesKept(9.0, "work", 0, "manifest", 3, 9, "first"), "the store has them under that"


def test_k4_checks_that_failed_and_work_without_a_branch_are_not_kept() -> None:
    run = simulation({"id": "work", **AGENT}, {"id": "plain", **AGENT})
    worked(run, "work", passed=False)
    run.state.apply(ev.FilesKept(2.0, "plain", 1, "manifest", 3, 9))
    run.state.apply(ev.WorkspaceOpened(2.0, "plain", 1, "copy", "/w", True))
    run.finish("work", "done")
    run.finish("plain", "done")
    assert [type(event) for event in forked(run)] == [
        ev.WorkspaceOpened,
        ev.WorkspaceCommitted,
        ev.FilesKept,
        ev.StepCompleted,
        ev.StepCompleted,
    ]


def test_k4_the_items_of_a_completed_foreach_are_kept_where_one_has_a_branch() -> None:
    run = simulation({"id": "many", **AGENT, "foreach": ["a", "b"]})
    run.finish("many[0]", 1)
    run.fail("many[1]", Failure(Category.LOGIC, "broken"))
    run.skip("many[1]")
    run.resume()
    worked(run, "many[0]")
    expanded, *rest = forked(run)
    assert expanded == ev.StepExpanded(9.0, "many", ["a", "b"])
    assert [ev.type_of(event) for event in rest if getattr(event, "step", "") == "many[0]"][-1] == "step.completed"
    (left_out,) = (event for event in rest if isinstance(event, ev.StepSkipped))
    assert (left_out.step, left_out.because, left_out.condition) == ("many[1]", "skipped by somebody", True)
    assert ev.type_of(rest[-1]) == "step.completed"
    without = simulation({"id": "many", **AGENT, "foreach": ["a"]})
    without.finish("many[0]", 1)
    assert [ev.type_of(event) for event in forked(without)] == ["step.completed"]


def test_k1_an_agent_goes_on_in_its_conversation_and_is_given_its_task_again_only_if_that_is_another() -> None:
    run = simulation({"id": "work", "agent": "developer", "prompt": "do {{ inputs.what }}"}, inputs={"what": "x"})
    spoke(run, "work")
    session = ev.AgentSession(9.0, "work", 0, "cli", "s1", "simulated")
    assert forked(run, "work") == [session], "it was cut off in its task"
    assert forked(run, "work", fresh=True) == []
    assert forked(run) == []
    unheard = ev.AgentSession(9.0, "work", 0, "cli", "s1", "simulated", True)
    assert forked(run, "work", inputs={"what": "y"}) == [unheard]
    run.finish("work", "done")
    assert forked(run, "work") == [unheard], "it is to do it once more"
    told = ev.AgentTold(9.0, "work", "m", "go on", "me")
    assert forked(run, "work", message=told) == [session, told], "the message is its task"
    spoke(run, "work", origin="first")
    assert forked(run, "work") == [ev.AgentSession(9.0, "work", 0, "cli", "s1", "first", True)]


def test_k1_an_agent_whose_task_is_not_known_yet_is_given_it_when_it_is() -> None:
    run = simulation({"id": "a"}, {"id": "work", "agent": "developer", "prompt": "{{ steps.a.output.text }}"})
    run.finish("a", {"text": "x"})
    spoke(run, "work")
    session = ev.AgentSession(9.0, "work", 0, "cli", "s1", "simulated")
    assert forked(run, "work") == [ev.StepCompleted(9.0, "a", {"text": "x"}), session]
    run.state.apply(ev.StepUndone(3.0, "a", "me", []))
    assert forked(run, "work") == [ev.AgentSession(9.0, "work", 0, "cli", "s1", "simulated", True)]


def test_k1_an_agent_that_never_spoke_or_is_new_begins_a_conversation() -> None:
    run = simulation({"id": "work", **AGENT}, {"id": "plain"})
    assert forked(run, "work") == []
    assert forked(run, "plain") == []
    more = Plan.model_validate({"name": "p", "steps": [{"id": "work", **AGENT}, {"id": "new", **AGENT}]})
    assert forked(run, "new", plan=more) == []


def test_k1_items_go_on_each_in_its_own_conversation_and_with_a_message_to_one_the_others_are_kept() -> None:
    run = simulation({"id": "many", **AGENT, "foreach": ["a", "b", "c"]})
    spoke(run, "many[0]", "s0")
    spoke(run, "many[1]", "s1")
    run.finish("many[0]", 0)
    run.finish("many[1]", 1)
    run.finish("many[2]", 2)
    items = ev.StepExpanded(9.0, "many", ["a", "b", "c"])
    both = [ev.AgentSession(9.0, f"many[{n}]", 0, "cli", f"s{n}", "simulated", True) for n in (0, 1)]
    assert forked(run, "many") == [items, *both]
    told = ev.AgentTold(9.0, "many[1]", "m", "go on", "me")
    assert forked(run, "many", message=told) == [
        items,
        ev.StepCompleted(9.0, "many[0]", 0),
        ev.StepCompleted(9.0, "many[2]", 2),
        ev.AgentSession(9.0, "many[1]", 0, "cli", "s1", "simulated"),
        told,
    ]
    silent = simulation({"id": "many", **AGENT, "foreach": ["a"]})
    silent.finish("many[0]", 0)
    assert forked(silent, "many") == []


def test_k1_a_message_to_an_item_that_the_fork_does_not_have_yet_is_refused() -> None:
    run = simulation({"id": "list"}, {"id": "many", **AGENT, "foreach": "{{ steps.list.output }}"})
    run.finish("list", ["a"])
    spoke(run, "many[0]")
    told = ev.AgentTold(9.0, "many[0]", "m", "go on", "me")
    assert forked(run, "many", message=told)[-1] == told
    run.state.apply(ev.StepUndone(3.0, "list", "me", []))
    with pytest.raises(UsageError, match=r"many\[0\] of simulated cannot go on in a fork: steps before it") as refused:
        forked(run, "many", message=told)
    assert refused.value.failure.advice == ("run them again in a new execution: windlass fork simulated",)


def test_b5_services_that_kept_steps_needed_start_again_only_for_steps_that_run() -> None:
    run = simulation(
        {"id": "base", "run": "serve", "service": {"line": "up"}},
        {"id": "top", "run": "serve", "service": {"line": "up"}, "needs": ["base"]},
        {"id": "a", "needs": ["top"]},
        {"id": "b", "needs": ["top"]},
        {"id": "other", "run": "serve", "service": {"line": "up"}},
        {"id": "aside", "needs": ["other"]},
    )
    for step in ("base", "top", "other", "a", "aside"):
        run.finish(step)

    def kept(from_step: str | None = None) -> list[str]:
        return sorted(event.step for event in forked(run, from_step) if isinstance(event, ev.StepCompleted))

    assert kept() == ["a", "aside", "other"], "b runs, and needs top, which needs base"
    run.finish("b")
    assert kept() == ["a", "aside", "b", "base", "other", "top"]
    assert kept("aside") == ["a", "b", "base", "top"]


# -- through the engine ------------------------------------------------------------------------------


async def test_d8_a_fork_says_what_does_not_fit_before_anything_is_written(project: Project) -> None:
    world = AgentWorld(project, ScriptedRunner(name="cli"))
    plan = Plan.model_validate(
        {"name": "p", "inputs": {"x": 1}, "steps": [{"id": "work", **AGENT}, {"id": "plain", "run": "true"}]}
    )
    state = await world.left_behind(plan, ev.ExecutionPaused(9.0, "me"))
    async with world.engine() as engine:
        for how, said in (
            ({"from_step": "plain", "fresh": True}, "step plain has no agent, so it has no conversation"),
            ({"fresh": True}, "`fresh` is about the agent of one step, from which the fork begins"),
            ({"id": "nonsense"}, "'nonsense' is not an id of an execution: it is a UUID, such as "),
            ({"from_step": "gone"}, "plan p has no step 'gone'"),
        ):
            with pytest.raises(UsageError, match=said):
                await engine.fork(state.id, **how)
        assert len(await world.journal.heads()) == 1
        made = await engine.fork(state.id, from_step="work", fresh=True, inputs={"x": 2})
        (created, *_) = await world.events(made)
        assert isinstance(created, ev.ExecutionCreated)
        assert (created.inputs, created.start, created.workdir) == ({"x": 2}, False, state.workdir)
        other = Plan.model_validate({"name": "q", "inputs": {"y": 3}, "steps": [{"id": "work", **AGENT}]})
        (created, *_) = await world.events(await engine.fork(made, plan=other, to_start=True))
        assert isinstance(created, ev.ExecutionCreated)
        assert (created.inputs, created.start) == ({"y": 3}, True), "inputs that the other plan has not are left out"


async def test_d8_a_fork_that_is_to_start_and_could_not_is_not_made(project: Project) -> None:
    world = AgentWorld(project, ScriptedRunner(name="cli"))
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", "tool": "gone"}]})
    state = await world.left_behind(plan, ev.ExecutionPaused(9.0, "me"))
    async with world.engine() as engine:
        with pytest.raises(CannotResume, match="needs the tool 'gone'") as refused:
            await engine.fork(state.id, to_start=True)
        assert refused.value.failure.advice == (f"when that is corrected: windlass fork {state.id}",)
        assert len(await world.journal.heads()) == 1
        await engine.fork(state.id)
        assert len(await world.journal.heads()) == 2


async def test_d5_an_execution_begins_in_a_folder_that_is_there(project: Project) -> None:
    world = AgentWorld(project)
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": "true"}]})
    (project.path / "sub").mkdir()
    async with world.engine() as engine:
        with pytest.raises(UsageError, match=r"the working directory .*/gone does not exist"):
            await engine.create(plan, workdir="gone")
        strange = os.fsdecode(b"bad\xff")
        os.mkdir(strange)
        with pytest.raises(UsageError, match="is not UTF-8, so it cannot be stored"):
            await engine.create(plan, workdir=strange)
        with pytest.raises(UsageError, match="no-such-program"):
            await engine.create(Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": ["no-such-program"]}]}))
        (created,) = await world.events(await engine.create(plan, workdir="sub"))
        assert isinstance(created, ev.ExecutionCreated)
        assert (created.workdir, created.start, created.traceparent) == (str(project.path / "sub"), False, "")
        (created,) = await world.events(await engine.create(plan, to_start=True))
        assert isinstance(created, ev.ExecutionCreated)
        assert (created.workdir, created.start) == (str(project.path), True)
