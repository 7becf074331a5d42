"""Which runtime an agent runs on, and who takes over (A6, A7): named, unavailable, failing, or nobody at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, done, plan, quick

from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.core.view import snapshot
from windlass.errors import Category
from windlass.ports import Health
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

GONE = Health(False, "claude is not on PATH", "install it")
ELSEWHERE = {"category": "transient", "elsewhere": True}


def claude(*script: Turn, **more: Any) -> ScriptedRunner:
    return ScriptedRunner(script, name="claude-code", **more)


def opencode(*script: Turn, **more: Any) -> ScriptedRunner:
    return ScriptedRunner(script, name="open-code", **more)


def cli(*script: Turn, **more: Any) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli", **more)


async def fallbacks(world: AgentWorld, state: State) -> list[ev.RuntimeFellBack]:
    return [event for event in await world.events(state.id) if isinstance(event, ev.RuntimeFellBack)]


async def test_a6_an_agent_that_names_no_runtime_runs_on_cli(project: Project) -> None:
    world = AgentWorld(project, claude(), cli(done("by cli")))
    state = await world.run(plan())
    assert state.steps["work"].output == "by cli"
    assert state.steps["work"].agent is not None
    assert state.steps["work"].agent.runtime == "cli"


@pytest.mark.parametrize(
    ("of_step", "of_plan", "of_settings", "expected"),
    [
        ("open-code", "claude-code", "cli", "open-code"),
        (None, "claude-code", "open-code", "claude-code"),
        (None, None, "open-code", "open-code"),
    ],
)
async def test_a6_the_step_is_heard_before_the_plan_and_the_plan_before_the_settings(
    project: Project, of_step: str | None, of_plan: str | None, of_settings: str, expected: str
) -> None:
    world = AgentWorld(project, claude(done()), opencode(done()), cli(done()), runtime=of_settings)
    state = await world.run(plan(agent(runtime=of_step), runtime=of_plan))
    assert state.status == "completed"
    assert [name for name, runner in world.runners.items() if runner.requests] == [expected]


@pytest.mark.parametrize(("named", "other"), [("claude-code", "open-code"), ("open-code", "claude-code")])
async def test_a7_the_other_of_the_family_takes_over_from_one_that_cannot_be_used(
    project: Project, named: str, other: str
) -> None:
    gone, there = ScriptedRunner(name=named, health=GONE), ScriptedRunner([done("instead")], name=other)
    world = AgentWorld(project, gone, there)
    state = await world.run(plan(agent(runtime=named)))
    assert state.steps["work"].output == "instead"
    (told,) = await fallbacks(world, state)
    assert (told.runtime, told.instead, told.because, told.final) == (named, other, GONE.detail, False)
    assert gone.requests == []
    assert snapshot(state)["steps"][0]["agent"]["runtime"] == other


async def test_a7_what_was_not_there_is_asked_again_at_the_next_attempt(project: Project) -> None:
    """Unavailability is of the moment: once it is back, the runtime that was named does the work."""
    here = claude(done("by claude"), health=GONE)

    def fail_and_bring_back(_request: object) -> Turn:
        here.health = Health(True)
        return Turn().fail("hiccup", category="transient")

    world = AgentWorld(project, here, ScriptedRunner(fail_and_bring_back, name="open-code"))
    state = await world.run(plan(agent(runtime="claude-code")))
    assert state.steps["work"].output == "by claude"
    assert state.steps["work"].attempts == 2


async def test_a7_cli_falls_back_to_nothing_and_says_so_at_once(project: Project) -> None:
    world = AgentWorld(project, cli(health=Health(False, "there is no key", "set ANTHROPIC_API_KEY")), claude(done()))
    state = await world.run(plan(agent(runtime="cli")))
    step = state.steps["work"]
    assert (step.status, step.attempts) == ("failed", 1)
    assert step.error is not None
    assert step.error.category is Category.CONFIGURATION
    assert "there is no key" in step.error.message
    assert "it has no fallback" in step.error.message
    assert "set ANTHROPIC_API_KEY" in step.error.advice
    assert await fallbacks(world, state) == []


async def test_a7_a_failure_of_cli_that_another_could_survive_has_nobody_to_go_to(project: Project) -> None:
    failing = Turn(repeat=True).fail("overloaded", **ELSEWHERE)
    world = AgentWorld(project, cli(failing), claude(done()), opencode(done()))
    state = await world.run(plan(agent(runtime="cli", retry={"max": 1, **quick})))
    assert (state.steps["work"].status, state.steps["work"].attempts) == ("failed", 2)
    assert await fallbacks(world, state) == []


async def test_a7_with_both_gone_the_failure_names_both_and_what_to_do(project: Project) -> None:
    world = AgentWorld(project, claude(health=GONE), opencode(health=Health(False, "opencode is broken", "mend it")))
    state = await world.run(plan(agent(runtime="claude-code")))
    error = state.steps["work"].error
    assert error is not None
    assert error.category is Category.CONFIGURATION
    assert GONE.detail in error.message
    assert "opencode is broken" in error.message
    assert {"install it", "mend it", "windlass doctor"} <= set(error.advice)
    assert state.steps["work"].attempts == 1


@pytest.mark.parametrize("where", ["step", "plan", "settings"])
async def test_a7_fallback_can_be_switched_off_and_the_failure_says_so(project: Project, where: str) -> None:
    off = {where: {"fallback": False}}
    world = AgentWorld(project, claude(health=GONE), opencode(done()), **off.get("settings", {}))
    state = await world.run(plan(agent(runtime="claude-code", **off.get("step", {})), **off.get("plan", {})))
    error = state.steps["work"].error
    assert error is not None
    assert GONE.detail in error.message
    assert "disabled" in error.message
    assert world.runners["open-code"].requests == []


async def test_a7_the_step_may_switch_on_what_plan_and_settings_switch_off(project: Project) -> None:
    world = AgentWorld(project, claude(health=GONE), opencode(done()), fallback=False)
    state = await world.run(plan(agent(runtime="claude-code", fallback=True), fallback=False))
    assert state.status == "completed"


async def test_a7_a_failure_that_another_could_survive_goes_there_once_the_retries_are_used_up(
    project: Project,
) -> None:
    first = claude(Turn(session="s1", repeat=True).say("half").fail("overloaded", **ELSEWHERE))
    second = opencode(done("by the other"))
    world = AgentWorld(project, first, second)
    state = await world.run(plan(agent(runtime="claude-code")))
    assert state.steps["work"].output == "by the other"
    assert len(first.requests) == 1 + 3, "the retries of C3 come first"
    (told,) = await fallbacks(world, state)
    assert (told.runtime, told.instead, told.final) == ("claude-code", "open-code", True)
    assert "overloaded" in told.because
    (request,) = second.requests
    assert request.session is None, "another runtime begins another conversation"
    assert "do work" in request.brief.prompt, "and is told everything"


@pytest.mark.parametrize("category", ["configuration", "permission", "resource"])
async def test_a7_each_category_has_its_own_retries_before_another_takes_over(project: Project, category: str) -> None:
    first = claude(Turn(repeat=True).fail("no", category=category, elsewhere=True))
    world = AgentWorld(project, first, opencode(done()))
    state = await world.run(plan(agent(runtime="claude-code")))
    assert state.status == "completed"
    assert len(first.requests) == 1 + {"configuration": 0, "permission": 0, "resource": 2}[category]


async def test_a7_a_failure_that_no_other_could_survive_stays_where_it_is(project: Project) -> None:
    world = AgentWorld(project, claude(Turn().fail("the task makes no sense")), opencode(done()))
    state = await world.run(plan(agent(runtime="claude-code")))
    assert state.steps["work"].status == "failed"
    assert world.runners["open-code"].requests == []
    assert await fallbacks(world, state) == []


async def test_a7_switched_off_a_failure_does_not_fall_back_either(project: Project) -> None:
    world = AgentWorld(project, claude(Turn(repeat=True).fail("overloaded", **ELSEWHERE)), opencode(done()))
    state = await world.run(plan(agent(runtime="claude-code", fallback=False)))
    assert state.steps["work"].status == "failed"
    assert world.runners["open-code"].requests == []


async def test_a7_with_both_failing_each_has_its_retries_and_the_failure_tells_of_both(project: Project) -> None:
    first, second = (
        ScriptedRunner([Turn(repeat=True).fail(text, **ELSEWHERE)], name=name)
        for name, text in (("claude-code", "overloaded"), ("open-code", "the line is dead"))
    )
    world = AgentWorld(project, first, second)
    state = await world.run(plan(agent(runtime="claude-code")))
    step = state.steps["work"]
    assert step.status == "failed"
    assert (len(first.requests), len(second.requests)) == (4, 4), "the new one has retries of its own"
    assert step.error is not None
    assert "the line is dead" in step.error.message
    assert "claude-code failed: overloaded" in step.error.message


async def test_c5_a_fallback_that_is_not_there_is_never_the_headline(project: Project) -> None:
    not_logged_in = Turn(repeat=True).fail("claude-code: not logged in", category="permission", elsewhere=True)
    world = AgentWorld(
        project, claude(not_logged_in), opencode(health=Health(False, "opencode is not on PATH", "npm i"))
    )
    state = await world.run(plan(agent(runtime="claude-code")))
    error = state.steps["work"].error
    assert error is not None
    assert error.message == "claude-code: not logged in; open-code could not take over: opencode is not on PATH"
    assert (error.category, error.advice) == ("permission", ("npm i", "windlass doctor"))


async def test_a7_a_step_stays_with_who_took_over_for_good(project: Project) -> None:
    first = claude(Turn(repeat=True).fail("overloaded", **ELSEWHERE))
    second = opencode(Turn().fail("hiccup", category="transient"), done())
    world = AgentWorld(project, first, second)
    state = await world.run(plan(agent(runtime="claude-code", retry={"max": 1, **quick})))
    assert state.status == "completed"
    assert (len(first.requests), len(second.requests)) == (2, 2)


async def test_c3_retries_and_fallbacks_are_counted_across_a_restart(project: Project) -> None:
    """Cut off after the second failure: two retries are left, and then the other takes over."""
    world = AgentWorld(project, claude(Turn(repeat=True).fail("overloaded", **ELSEWHERE)), opencode(done()))
    state = await world.run(plan(agent(runtime="claude-code")))
    assert state.status == "completed"
    failed = iter(range(2))
    again = await world.cut_off(state.id, lambda event: isinstance(event, ev.AttemptFailed) and next(failed) == 1)
    before = len(world.runners["claude-code"].requests)
    state = await again.resume(state.id)
    assert state.status == "completed"
    assert len(world.runners["claude-code"].requests) - before == 2
    assert state.steps["work"].attempts == 5
    cut = await again.cut_off(state.id, lambda event: isinstance(event, ev.RuntimeFellBack))
    before = len(world.runners["claude-code"].requests)
    assert (await cut.resume(state.id)).status == "completed"
    assert len(world.runners["claude-code"].requests) == before, "who has given up is not asked again"


async def test_a7_a_model_named_for_one_runtime_is_not_passed_to_another(project: Project) -> None:
    world = AgentWorld(project, claude(health=GONE), opencode(done()), runtimes={"open-code": {"model": "local/small"}})
    state = await world.run(plan(agent(runtime="claude-code", model="opus")))
    (request,) = world.runners["open-code"].requests
    assert request.model == "local/small"
    (began,) = [event for event in await world.events(state.id) if isinstance(event, ev.AgentBegan)]
    assert any("opus" in note for note in began.notes), "the user is told"


async def test_b5_each_item_of_a_foreach_may_name_its_own_model(project: Project) -> None:
    world = AgentWorld(project, cli(done(), done(), done()))
    several = agent("each", foreach=["haiku", "opus", None], model="{{ item }}")
    state = await world.run(plan(several, agent("next", models=["{{ execution.plan }}-1"], check="true")))
    assert {request.model for request in world.runners["cli"].requests} == {"haiku", "opus", f"{state.plan.name}-1"}
    error = state.steps["each[2]"].error
    assert error is not None
    assert "`model` needs text, and {{ item }} is null" in error.message


async def test_a7_a_plans_model_is_for_the_plans_runtime(project: Project) -> None:
    world = AgentWorld(project, claude(done()), opencode(done()))
    steps = [agent("a"), agent("b", runtime="open-code"), agent("c", runtime="open-code", model="own/model")]
    await world.run(plan(*steps, runtime="claude-code", model="opus"))
    assert [request.model for request in world.runners["claude-code"].requests] == ["opus"]
    models = {request.task: request.model for request in world.runners["open-code"].requests}
    assert models == {"do b": None, "do c": "own/model"}


async def test_a6_a_plans_model_without_a_runtime_is_for_whatever_its_steps_run_on(project: Project) -> None:
    world = AgentWorld(project, claude(done()))
    await world.run(plan(agent(runtime="claude-code"), model="opus"))
    assert [request.model for request in world.runners["claude-code"].requests] == ["opus"]


async def test_a1_a_runner_that_raises_has_failed_and_is_not_repeated(project: Project) -> None:
    def broken(_request: object) -> Turn:
        raise RuntimeError("a bug in the runner")

    world = AgentWorld(project, ScriptedRunner(broken, name="cli"))
    state = await world.run(plan())
    assert state.steps["work"].error is not None
    assert "a bug in the runner" in state.steps["work"].error.message
    assert state.cost.unknown == 1, "nobody knows what it used"


async def test_a2_what_there_was_before_a_failure_is_the_output_of_the_failed_step(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().say("half of it").fail("no more")))
    state = await world.run(plan())
    assert state.steps["work"].status == "failed"
    assert state.steps["work"].output == "half of it"
    assert fold(await world.events(state.id)).steps["work"].output == "half of it"


async def test_d10_a_failed_agent_step_is_retried_on_another_runtime_with_another_model(project: Project) -> None:
    second = opencode(done())
    world = AgentWorld(project, claude(Turn().fail("the task makes no sense")), second)
    state = await world.run(plan(agent(runtime="claude-code", model="one", fallback=False)))
    assert state.status == "failed"
    async with world.engine() as engine:
        await engine.retry(state.id, "work", runtime="open-code", model="two", edits={"prompt": "do it well"})
    state = await world.resume(state.id)
    assert state.status == "completed"
    (request,) = second.requests
    assert (request.model, request.task) == ("two", "do it well")
