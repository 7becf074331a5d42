"""K2: an agent's work is checked; what fails goes back into its conversation, and nothing is checked or said twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan
from waiting import skip_time

import windlass
from windlass import Step
from windlass.assembly.agents import policy_of
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.agents.checks import LONGEST_OUTPUT
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.tool import CodeTool
from windlass.errors import NotFound, UsageError
from windlass.ports import AgentRequest, Sandbox
from windlass.settings import load_settings
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

CHECK = "echo run >> checks; grep -qx 42 answer || { echo it is not 42; cat answer; exit 3; }"


def writes(project: Project, *answers: str, session: str = "s1") -> ScriptedRunner:
    """An agent that writes one answer after another, and says each time that it is done."""
    left = list(answers)

    def turn(request: AgentRequest) -> Turn:
        answer = left.pop(0)
        project.file("answer", f"{answer}\n")
        return Turn(session=session).say(f"it is {answer}").spend(tokens_in=10, tokens_out=1, usd=0.5)

    return ScriptedRunner(turn, name="cli")


def times_checked(project: Project) -> int:
    path = project.path / "checks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def verdict(state: State, step: str = "work") -> str:
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == step]
    return str(view["agent"]["verdict"])


async def test_k2_41_is_sent_back_and_42_is_verified(project: Project) -> None:
    runner = writes(project, "41", "42")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=CHECK)))
    assert (state.status, state.steps["work"].output, verdict(state)) == ("completed", "it is 42", "verified")
    first, second = runner.requests
    assert (first.session, second.session) == (None, "s1")
    assert "it is not 42\n41" in second.brief.prompt
    assert "exit code 3" in second.brief.prompt
    checked = [event for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert [(event.number, event.passed) for event in checked] == [(1, False), (2, True)]
    assert checked[0].results[0].exit_code == 3
    assert state.cost.usd == 1.0
    written = "".join(event.text for event in await world.events(state.id) if isinstance(event, ev.OutputWritten))
    assert f"checking: {CHECK}\n" in written


async def test_k2_an_agent_that_never_passes_fails_with_the_reason_and_can_be_retried(project: Project) -> None:
    runner = writes(project, "1", "2", "3")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=CHECK, tries=2)))
    step = state.steps["work"]
    assert (state.status, verdict(state), times_checked(project)) == ("failed", "refuted", 2)
    assert step.error is not None
    assert "was checked 2 times and does not pass" in step.error.message
    assert "exit code 3" in step.error.message
    assert any(f"windlass retry {state.id} work" in advice for advice in step.error.advice)
    project.file("answer", "42\n")  # a person mends it
    state = await retried(world, state)
    assert (state.status, verdict(state), len(runner.requests)) == ("completed", "verified", 2)


async def retried(world: AgentWorld, state: State) -> State:
    async with world.engine() as engine:
        await engine.retry(state.id, "work")
        return await (await engine.resume(state.id)).wait()


async def test_k2_a_retry_by_hand_goes_on_in_the_conversation_and_counts_its_tries_anew(project: Project) -> None:
    runner = writes(project, "1", "42")
    world = AgentWorld(project, runner)
    failed = await world.run(plan(agent(check=CHECK, tries=1)))
    state = await retried(world, failed)
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert [request.session for request in runner.requests] == [None, "s1"]
    assert "it is not 42\n1" in runner.requests[1].brief.prompt
    events = await world.events(state.id)
    assert [event.number for event in events if isinstance(event, ev.AgentChecked)] == [1, 0, 1]


async def test_k2_checks_run_in_order_up_to_the_first_that_fails(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42"))
    checks = ["echo $WINDLASS_STEP >> order", "echo $WINDLASS_STEP >> order; false", "echo three >> order"]
    state = await world.run(plan(agent(check=checks, tries=1)))
    assert state.status == "failed"
    assert (project.path / "order").read_text() == "work.check-1\nwork.check-2\n"
    async with world.engine() as engine:
        await engine.verify(state.id)
    assert (project.path / "order").read_text().splitlines()[2:] == ["work.verify-1", "work.verify-2"]


async def test_k2_a_tool_can_be_a_check(project: Project) -> None:
    look = {"tool": "files.read", "with": {"path": "answer"}}
    world = AgentWorld(project, writes(project, "41"))
    assert verdict(await world.run(plan(agent(check=look)))) == "verified"
    missing = {"tool": "files.read", "with": {"path": "nothing"}}
    state = await AgentWorld(project, writes(project, "41")).run(plan(agent(check=[look, missing], tries=1)))
    assert (state.status, verdict(state)) == ("failed", "refuted")


async def test_k2_a_check_that_hangs_is_stopped_and_the_agent_is_told_what_it_printed(project: Project) -> None:
    runner = writes(project, "41", "42")
    world = AgentWorld(project, runner)
    check = {"run": "grep -qx 42 answer || { echo test one hangs; sleep 1000; }", "timeout": "5s"}
    state = await world.run(plan(agent(check=check)))
    assert (state.status, verdict(state)) == ("completed", "verified")
    told = runner.requests[1].brief.prompt
    assert "test one hangs\nthe check took longer than its timeout of 5 s and was stopped" in told.replace("\n\n", "\n")


async def test_k2_the_time_of_a_question_counts_for_no_check(project: Project, sandbox: Sandbox) -> None:
    """The person takes longer than the check may; an unanswered call of the same length is stopped."""
    begun = asyncio.Event()

    @windlass.tool(effect="none")
    async def hangs() -> None:
        begun.set()
        await asyncio.Event().wait()

    settings = {"approvals": {"always": ["files.read"]}}
    policy = policy_of(load_settings(project.home, settings))
    tools = [hangs, CodeTool(ProgramDeps(sandbox, SystemClock()), policy)]
    world = AgentWorld(project, writes(project, "42", "42"), tools=tools)
    asks = agent(check={"code": "await tools.files.read({path: 'answer'});", "timeout": "2m"}, tries=1)
    late = agent("late", check={"code": "await tools.hangs();", "timeout": "2m"}, tries=1)
    async with world.engine(**settings) as engine:
        execution = await engine.start(plan(asks, late), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await begun.wait()
        skip_time(120)
        async for event in execution.events():
            if isinstance(event, ev.AttemptFailed):
                break
        await execution.approve("work")
        state = await execution.wait()
    assert (state.steps["work"].status, verdict(state)) == ("completed", "verified")
    error = state.steps["late"].error
    assert error is not None
    assert "the check took longer than its timeout of 120 s and was stopped" in error.message


async def test_k2_a_check_that_hangs_ends_with_the_time_of_its_step_at_the_latest(project: Project) -> None:
    runner = writes(project, "42")
    state = await AgentWorld(project, runner).run(plan(agent(check="sleep 1000", timeout="3s", retry=0)))
    error = state.steps["work"].error
    assert error is not None
    assert (state.status, verdict(state), error.category) == ("failed", "None", "resource")
    assert "took longer than its timeout of 3 s" in error.message


async def test_k2_of_a_check_that_floods_the_end_is_recorded_and_told(project: Project) -> None:
    runner = writes(project, "41", "42")
    world = AgentWorld(project, runner)
    check = "grep -qx 42 answer || { yes flood | head -c 20000000; echo the end; exit 1; }"
    state = await world.run(plan(agent(check=check)))
    first, _second = [event for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert verdict(state) == "verified"
    assert len(first.results[0].output) == LONGEST_OUTPUT
    assert "the end" in first.results[0].output
    assert "the end" in runner.requests[1].brief.prompt
    assert len(runner.requests[1].brief.prompt) < 2 * LONGEST_OUTPUT


async def test_k2_work_that_its_check_changes_is_verified_as_the_check_left_it(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42"))
    state = await world.run(plan(agent(check="echo built > built; echo more >> answer")))
    assert verdict(state) == "verified"
    async with world.engine() as engine:
        assert verdict(await engine.state(state.id)) == "verified"


async def test_k2_a_check_in_python_leaves_no_compiled_file_unless_the_plan_wants_it(project: Project) -> None:
    line = "python3 -c 'import price'"
    project.file("price.py", "answer = 42\n")
    state = await AgentWorld(project, writes(project, "42")).run(plan(agent(check=line)))
    assert (verdict(state), (project.path / "__pycache__").exists()) == ("verified", False)
    compiled = {"tool": "shell", "with": {"line": line, "env": {"PYTHONDONTWRITEBYTECODE": ""}}}
    state = await AgentWorld(project, writes(project, "42")).run(plan(agent(check=compiled)))
    assert (verdict(state), (project.path / "__pycache__").exists()) == ("verified", True)


async def test_k2_of_a_check_that_prints_nothing_the_exit_code_is_told_once(project: Project) -> None:
    runner = writes(project, "41", "43")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check="grep -qx 42 answer", tries=2)))
    told = runner.requests[1].brief.prompt
    assert "this check failed with exit code 1:\n\n    grep -qx 42 answer\n\nIt printed nothing.\n" in told
    error = state.steps["work"].error
    assert error is not None
    assert error.message.endswith("does not pass: grep -qx 42 answer (exit code 1)")


async def test_k2_the_end_of_a_checks_output_stands_on_lines_of_its_own(project: Project) -> None:
    check = "printf 'first\\n\\n-----\\nRan 2 tests\\n\\nFAILED (failures=1)\\n'; exit 1"
    state = await AgentWorld(project, writes(project, "41")).run(plan(agent(check=check, tries=1)))
    error = state.steps["work"].error
    assert error is not None
    assert error.message.endswith(" (exit code 1):\nfirst\nRan 2 tests\nFAILED (failures=1)")


async def test_k2_a_value_of_a_template_is_one_word_of_the_command(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42", "42"))
    items = ["a b; touch evil", "$(touch evil)"]
    check = "test {{ item }} = 'a b; touch evil' || test {{ item | quote }} = '$(touch evil)'"
    state = await world.run(plan(agent(foreach=items, check=check)))
    assert not (project.path / "evil").exists()
    assert (state.status, verdict(state, "work[0]"), verdict(state, "work[1]")) == ("completed", "verified", "verified")


async def test_k2_a_check_that_cannot_run_is_no_fault_of_the_agent(project: Project) -> None:
    runner = writes(project, "42", "42")
    state = await AgentWorld(project, runner).run(plan(agent(check="no-such-program-here")))
    error = state.steps["work"].error
    assert state.status == "failed"
    assert error is not None
    assert (error.category, len(runner.requests)) == ("configuration", 1)
    assert "the check cannot run" in error.message


async def test_k2_without_a_check_a_result_is_claimed(project: Project) -> None:
    state = await AgentWorld(project, writes(project, "41")).run(plan(agent()))
    assert verdict(state) == "claimed"


async def test_k2_killed_after_the_last_check_the_agent_is_not_asked_again(project: Project) -> None:
    world = AgentWorld(project, writes(project, "1", "2"))
    first = await world.run(plan(agent(check=CHECK, tries=2)))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentChecked) and event.number == 2)
    replay = writes(project, "42")
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert (state.status, verdict(state), replay.requests) == ("failed", "refuted", [])
    assert state.steps["work"].error == first.steps["work"].error


@pytest.mark.parametrize(
    "after",
    [
        lambda event: isinstance(event, ev.AgentClaimed),
        lambda event: isinstance(event, ev.AgentTold),
        lambda event: isinstance(event, ev.AgentClaimed) and event.text == "it is 42",
        lambda event: isinstance(event, ev.AgentChecked) and event.passed,
    ],
)
async def test_k2_killed_between_claim_check_and_message_nothing_is_asked_checked_or_paid_twice(
    project: Project, after: Callable[[ev.Event], Any]
) -> None:
    runner = writes(project, "41", "42", "43", "44")
    world = AgentWorld(project, runner)
    first = await world.run(plan(agent(check=CHECK)))
    assert (first.status, len(runner.requests), times_checked(project)) == ("completed", 2, 2)
    events = await world.events(first.id)
    done_before = next(number for number, event in enumerate(events) if after(event))
    claims = sum(isinstance(event, ev.AgentClaimed) for event in events[: done_before + 1])
    project.file("answer", "41\n" if claims == 1 else "42\n")
    (project.path / "checks").unlink()
    replay = writes(project, "42")
    later = await world.cut_off(first.id, after)
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert len(replay.requests) == 2 - claims, "the model is asked for what it has not done"
    recorded = sum(isinstance(event, ev.AgentChecked) for event in events[: done_before + 1])
    assert times_checked(project) == 2 - recorded, "what was recorded is not checked again"


async def test_k2_a_budget_that_ends_in_the_middle_of_the_tries_stops_them(project: Project) -> None:
    runner = writes(project, "1", "2", "3", "4", "5", "6", "7", "8")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=CHECK, tries=8, budget=1.0)))
    begun = len(runner.requests)
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert begun < 8
    async with world.engine() as engine:
        await engine.allow_budget(state.id, step="work", scope="step", usd=10.0)
    left = writes(project, "42")
    world.runners = {**world.runners, "cli": left}
    state = await world.resume(state.id)
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert f"it is not 42\n{begun}" in left.requests[0].brief.prompt


async def test_c6_a_check_asks_where_the_settings_ask_for_its_tool(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42"))
    async with world.engine(approvals={"always": ["shell"]}) as engine:
        execution = await engine.start(plan(agent(check=CHECK)), hold=True)
        asked = await occurred(execution, ev.ApprovalAsked)
        assert (asked.tool, times_checked(project)) == ("shell", 0)
        await engine.approve(execution.id, "work", by="ann")
        state = await execution.wait()
    assert (state.status, verdict(state)) == ("completed", "verified")


async def test_c6_a_check_that_a_person_denies_does_not_run_and_fails_the_step(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42"))
    async with world.engine(approvals={"always": ["shell"]}) as engine:
        execution = await engine.start(plan(agent(check=CHECK)), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await engine.approve(execution.id, "work", allow=False, by="ann")
        state = await execution.wait()
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, error.message) == ("permission", "the check was denied by a person")
    assert (verdict(state), times_checked(project)) == ("None", 0)


async def test_k2_an_automatic_retry_of_refuted_work_does_not_complete_it(project: Project) -> None:
    runner = writes(project, "1", "2", "42")
    state = await AgentWorld(project, runner).run(plan(agent(check=CHECK, tries=1, retry={"max": 3, "on": ["logic"]})))
    assert (state.status, verdict(state), len(runner.requests)) == ("completed", "verified", 3)


ITEMS = {"type": "array", "items": {"type": "string"}, "description": "no {{ template }}"}
FORM = {"type": "object", "required": ["tasks"], "properties": {"tasks": ITEMS}}


def says(*texts: str) -> ScriptedRunner:
    return ScriptedRunner([Turn(session="s1").say(text) for text in texts], name="cli")


async def test_k3_the_output_is_data_that_fits_the_schema(project: Project) -> None:
    runner = says("I was unable to.", '{"tasks": "one"}', 'Here it is:\n```json\n{"tasks": ["a", "b"]}\n```\n')
    world = AgentWorld(project, runner)
    after = {"id": "after", "foreach": "steps.work.output.tasks", "run": "echo {{ item | quote }}"}
    state = await world.run(plan(agent(output=FORM), Step.model_validate(after)))
    assert (state.status, state.steps["work"].output) == ("completed", {"tasks": ["a", "b"]})
    assert verdict(state) == "claimed", "its form says nothing about the work"
    first, second, third = runner.requests
    assert '"required"' in first.brief.prompt
    assert "is not JSON" in second.brief.prompt
    assert "tasks" in third.brief.prompt
    assert (second.session, third.session) == ("s1", "s1")
    assert [item.status for item in state.steps["after"].children or ()] == ["completed", "completed"]


async def test_k3_what_does_not_fit_is_told_in_sentences(project: Project) -> None:
    runner = says("no", '{"task": []}', '{"tasks": []}')
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(output={**FORM, "additionalProperties": False})))
    first, second = (request.brief.prompt for request in runner.requests[1:])
    assert "the last message is not JSON.\n\nGive it again" in first
    assert "'task' is not known here; did you mean 'tasks'?\nkey 'tasks' is missing.\n\nGive it again" in second
    notes = [event.text for event in await world.events(state.id) if isinstance(event, ev.OutputWritten)]
    assert "try 1 of 3: its output does not pass (the schema of `output`)\n" in "".join(notes)
    assert "its output passes (the schema of `output`)\n" in "".join(notes)
    assert "check " not in "".join(notes), "it has no check"


async def test_k3_an_answer_that_is_nested_too_deep_is_sent_back(project: Project) -> None:
    deep = '{"tasks": ' + "[" * 5000 + "]" * 5000 + "}"
    runner = says(deep, f"Here it is:\n```json\n{deep}\n```\n", '{"tasks": []}')
    state = await AgentWorld(project, runner).run(plan(agent(output=FORM)))
    assert (state.status, state.steps["work"].output) == ("completed", {"tasks": []})
    assert all("is not JSON" in request.brief.prompt for request in runner.requests[1:])


async def test_k3_a_schema_that_is_never_met_fails_and_keeps_the_text(project: Project) -> None:
    world = AgentWorld(project, says("no", "never", "not at all"))
    state = await world.run(plan(agent(output=FORM)))
    step = state.steps["work"]
    assert step.error is not None
    assert (state.status, step.error.category, verdict(state)) == ("failed", "logic", "refuted")
    assert "the result was checked 3 times and does not pass" in step.error.message
    failed = [event for event in await world.events(state.id) if isinstance(event, ev.AttemptFailed)]
    assert failed[-1].output == "not at all"


async def test_k3_the_form_is_checked_before_the_work(project: Project) -> None:
    world = AgentWorld(project, says("no", '{"tasks": []}'))
    state = await world.run(plan(agent(output=FORM, check="echo run >> checks")))
    assert (state.status, verdict(state), times_checked(project)) == ("completed", "verified", 1)


async def test_k3_a_result_cut_off_after_its_check_is_data_after_the_resume(project: Project) -> None:
    world = AgentWorld(project, says('{"tasks": ["a"]}'))
    first = await world.run(plan(agent(output=FORM)))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentChecked))
    later.runners = {**later.runners, "cli": says()}
    assert (await later.resume(first.id)).steps["work"].output == {"tasks": ["a"]}


async def test_k2_verify_checks_again_without_the_agent_and_records_it(project: Project) -> None:
    runner = writes(project, "42")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=CHECK)))
    project.file("answer", "43\n")
    async with world.engine() as engine:
        refuted = await engine.verify(state.id)
        assert (refuted.status, verdict(refuted)) == ("completed", "refuted")
        project.file("answer", "42\n")
        assert verdict(await engine.verify(state.id, "work")) == "verified"
        with pytest.raises(NotFound, match="nosuch"):
            await engine.verify(state.id, "nosuch")
    assert (len(runner.requests), times_checked(project)) == (1, 3)


async def test_k2_verify_says_where_there_is_nothing_to_check(project: Project) -> None:
    world = AgentWorld(project, writes(project, "42"))
    state = await world.run(plan(agent()))
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="nothing to check again"):
            await engine.verify(state.id)


async def test_k2_verify_checks_what_it_can_and_says_so_where_a_check_is_a_program(
    project: Project, sandbox: Sandbox
) -> None:
    policy = policy_of(load_settings(project.home, {}))
    tools = [CodeTool(ProgramDeps(sandbox, SystemClock()), policy)]
    world = AgentWorld(project, writes(project, "42", "42"), tools=tools)
    state = await world.run(plan(agent("coded", check={"code": "1;"}), agent("plain", check=CHECK)))
    assert state.status == "completed", state.error
    async with world.engine() as engine:
        project.file("answer", "43\n")
        with pytest.raises(UsageError, match="check 1 of step coded is a program") as refused:
            await engine.verify(state.id)
        assert refused.value.advice[-1] == f"the other steps were checked, see the results: windlass status {state.id}"
        assert verdict(await engine.state(state.id), "plain") == "refuted"
        with pytest.raises(UsageError, match="check 1 of step coded is a program") as refused:
            await engine.verify(state.id, "coded")
        assert not any("the other steps" in advice for advice in refused.value.advice)


async def test_k2_a_check_that_a_person_asks_for_is_no_try_of_the_model(project: Project) -> None:
    left = [Turn(session="s1").fail("stuck"), *(Turn(session="s1").say("done") for _ in range(3))]

    def turn(request: AgentRequest) -> Turn:
        project.file("answer", "42\n" if len(left) == 1 else "41\n")
        return left.pop(0)

    runner = ScriptedRunner(turn, name="cli")
    world = AgentWorld(project, runner)
    failed = await world.run(plan(agent(check=CHECK, models=["haiku", "sonnet"], retry={"max": 0})))
    async with world.engine() as engine:
        assert verdict(await engine.verify(failed.id)) == "refuted"
    state = await retried(world, failed)
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert models_asked(runner) == ["haiku", "haiku", "haiku", "sonnet"], "two checks of its own failed with the first"


async def test_k2_verify_is_refused_while_the_execution_runs(project: Project) -> None:
    world = AgentWorld(project, ScriptedRunner([Turn(session="s1").ask("Bash", {"command": "x"})], name="cli"))
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(check=CHECK)), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        with pytest.raises(UsageError, match="is running"):
            await engine.verify(execution.id)
        await engine.cancel(execution.id)


def models_asked(runner: ScriptedRunner) -> list[str | None]:
    return [request.model for request in runner.requests]


async def test_k2_the_next_model_goes_on_when_checks_failed_twice_with_one(project: Project) -> None:
    runner = writes(project, "1", "2", "3", "4", "42")
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=CHECK, tries=5, models=["haiku", "sonnet", "opus"])))
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert models_asked(runner) == ["haiku", "haiku", "sonnet", "sonnet", "opus"]
    assert [request.session for request in runner.requests] == [None, "s1", "s1", "s1", "s1"], "one conversation"
    assert runner.requests[2].brief.prompt.startswith("Your work was checked"), "nothing was interrupted"
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == "work"]
    assert (view["attempts"], view["cost_usd"]) == (3, 2.5)
    stopped = [event for event in await world.events(state.id) if isinstance(event, ev.AttemptStopped)]
    assert [event.reason for event in stopped] == ["model", "model"]


async def test_k2_the_cost_of_each_model_is_counted_by_itself(project: Project) -> None:
    def turn(request: AgentRequest) -> Turn:
        project.file("answer", "42\n" if request.model == "opus" else "41\n")
        spent = {"haiku": 0.01, "opus": 0.5}[str(request.model)]
        return Turn(session="s1").say("done").spend(tokens_in=10, tokens_out=1, usd=spent, model=str(request.model))

    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    state = await world.run(plan(agent(check=CHECK, models=["haiku", "opus"])))
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == "work"]
    assert [(one["model"], one["cost"]["usd"]) for one in view["agent"]["models"]] == [("haiku", 0.02), ("opus", 0.5)]
    spent = await world.ledger.spent_by(("model",))
    assert {row.heading: row.usd for row in spent["model"]} == {"haiku": 0.02, "opus": 0.5}


@pytest.mark.parametrize(
    "after",
    [
        lambda event: isinstance(event, ev.AgentChecked) and event.number == 2,
        lambda event: isinstance(event, ev.AttemptStopped),
        lambda event: isinstance(event, ev.AgentBegan) and event.model == "sonnet",
    ],
)
async def test_k2_killed_at_the_change_the_next_model_goes_on_and_the_first_never_again(
    project: Project, after: Callable[[ev.Event], Any]
) -> None:
    world = AgentWorld(project, writes(project, "1", "2", "42"))
    steps = plan(agent(check=CHECK, models=["haiku", "sonnet"]))
    first = await world.run(steps)
    later = await world.cut_off(first.id, after)
    replay = writes(project, "42")
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert (state.status, verdict(state)) == ("completed", "verified")
    assert models_asked(replay) == ["sonnet"]
    assert replay.requests[0].session == "s1"


async def test_k2_a_person_who_names_a_model_is_stronger_than_the_list(project: Project) -> None:
    runner = writes(project, "1", "2", "3", "42")
    world = AgentWorld(project, runner)
    failed = await world.run(plan(agent(check=CHECK, tries=3, models=["haiku", "sonnet"])))
    async with world.engine() as engine:
        await engine.retry(failed.id, "work", model="opus")
        state = await (await engine.resume(failed.id)).wait()
    assert state.status == "completed"
    assert models_asked(runner) == ["haiku", "haiku", "sonnet", "opus"]


async def test_k2_on_a_runtime_that_takes_over_a_model_of_the_same_class_goes_on(project: Project) -> None:
    runner = writes(project, "1", "2", "42")
    runner.name = "claude-code"
    step = agent(check=CHECK, runtime="open-code", models=["acme/mini-1", "acme/pro-1"])
    state = await AgentWorld(project, runner).run(plan(step))
    assert (state.status, models_asked(runner)) == ("completed", ["haiku", "haiku", "opus"])
