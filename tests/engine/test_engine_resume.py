"""What a resume checks first (D5), and what becomes of executions that a dead process left behind (D6)."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import settled, wait_until_async

import windlass
from windlass import Execution, Plan, Step, tool
from windlass.core import events as ev
from windlass.engine.driver import Driver
from windlass.errors import CannotResume, NotPermitted, PlanInvalid, UsageError

if TYPE_CHECKING:
    from conftest import Project

TOOLS = """
from windlass import Call, tool

@tool
def mark(call: Call, text: str = "one") -> str:
    with open(call.workdir / "ran", "a") as file:
        file.write(text + "\\n")
    return text

@tool
def spare() -> None: ...
"""

PLAN = """
name: checked
tools: [tools.py]
inputs: {word: old}
steps:
  - {id: first, tool: mark, with: {text: first}}
  - {id: gate, tool: mark, with: {text: gate}, approve: always, needs: [first]}
  - {id: last, tool: mark, with: {text: "{{ inputs.word }}"}, needs: [gate]}
"""


def trust(folder: Path, files: list[Path]) -> bool:
    return True


def engine_of(**more: Any) -> windlass.Engine:
    return windlass.open(ask=trust, **more)


@pytest.fixture
async def paused(project: Project) -> str:
    """An execution that stands still before its second step, which is approved already."""
    project.file("tools.py", TOOLS)
    project.plan(PLAN)
    async with engine_of() as engine:
        execution = await engine.start(project.path / "plan.yaml", hold=False)
        assert (await execution.wait()).paused_for == "approval"
        await execution.approve("gate")
    assert project.lines("ran") == ["first"]
    return execution.id


async def resume(execution: str, **how: Any) -> dict[str, Any]:
    async with engine_of() as engine:
        return await (await engine.resume(execution, hold=False, **how)).result()


async def refusal(execution: str, **how: Any) -> CannotResume:
    async with engine_of() as engine:
        before = (await engine.state(execution)).seq
        with pytest.raises(CannotResume) as refused:
            await engine.resume(execution, **how)
        assert (await engine.state(execution)).seq == before, "a refusal changes nothing"
    return refused.value


async def test_d5_when_nothing_changed_it_goes_on(project: Project, paused: str) -> None:
    result = await resume(paused)
    assert result["status"] == "completed"
    assert project.lines("ran") == ["first", "gate", "old"], "the completed step did not run again"


async def test_d5_a_changed_plan_is_refused_until_a_person_says_which_one(project: Project, paused: str) -> None:
    project.plan(PLAN.replace('"{{ inputs.word }}"', "changed"))
    error = await refusal(paused)
    assert len(error.reasons) == 1
    assert "plan.yaml has changed" in error.reasons[0]
    assert [advice.rpartition(" --")[2] for advice in error.advice][:2] == ["accept-changes", "keep-plan"]
    assert f"windlass fork {paused}" in error.advice[2]
    result = await resume(paused, accept_changes=True)
    assert result["steps"][2]["output"] == "changed"
    assert project.lines("ran") == ["first", "gate", "changed"]


async def test_d5_the_plan_as_it_was_can_be_kept(project: Project, paused: str) -> None:
    project.plan(PLAN.replace('"{{ inputs.word }}"', "changed"))
    result = await resume(paused, keep_plan=True)
    assert result["steps"][2]["output"] == "old"


async def test_d5_a_plan_file_that_is_gone_does_not_matter(project: Project, paused: str) -> None:
    """The journal holds the plan."""
    (project.path / "plan.yaml").unlink()
    assert (await resume(paused))["status"] == "completed"


async def test_d5_changed_tools_are_refused_until_accepted(project: Project, paused: str) -> None:
    project.file("tools.py", TOOLS.replace("return text", "return text + '!'"))
    error = await refusal(paused)
    assert len(error.reasons) == 1
    assert "tools.py have changed" in error.reasons[0]
    await resume_with_changed_tools(paused)


async def resume_with_changed_tools(execution: str) -> None:
    """The approved step is asked about again, because its tool is another one."""
    assert (await resume(execution, accept_changes=True))["reason"] == "approval"
    async with engine_of() as engine:
        question = (await engine.state(execution)).steps["gate"].approval
        assert question is not None
        assert "the Python code of the tool mark changed" in question.question
        await engine.approve(execution, "gate")
    result = await resume(execution, accept_changes=True)
    assert [s["output"] for s in result["steps"]] == ["first", "gate!", "old!"]


async def test_d5_changed_tools_can_be_accepted_though_the_plan_file_is_gone(project: Project, paused: str) -> None:
    (project.path / "plan.yaml").unlink()
    project.file("tools.py", TOOLS.replace("return text", "return text + '!'"))
    await resume_with_changed_tools(paused)


async def test_d10_a_check_before_a_skip_says_every_reason_against_going_on_and_writes_nothing(
    project: Project, paused: str
) -> None:
    asked = [{"kind": "skip", "step": "last"}]

    async def reasons(**how: Any) -> CannotResume | None:
        async with engine_of() as engine:
            before = (await engine.state(paused)).seq
            try:
                await engine.check_redo(paused, asked, **how)
            except CannotResume as error:
                return error
            finally:
                assert (await engine.state(paused)).seq == before
        return None

    assert await reasons() is None
    (project.path / "tools.py").unlink()
    project.plan("{name: checked, steps: [{id: gate, run: echo gate}, {id: last, run: echo last}]}")
    changed = await reasons()
    assert changed is not None
    assert len(changed.reasons) == 3
    assert "plan.yaml has changed" in changed.reasons[2]
    assert changed.advice[:2] == (
        f"accept the changes: windlass skip {paused} last --accept-changes",
        f"keep the plan as it was started: windlass skip {paused} last --keep-plan",
    )
    assert changed.advice[2].endswith(f"windlass fork {paused} --plan {project.path / 'plan.yaml'}")
    assert await reasons(accept_changes=True) is None, "the changed plan needs no tools.py"
    kept = await reasons(keep_plan=True)
    assert kept is not None
    assert len(kept.reasons) == 2, "the plan as it was needs tools.py"
    away = await reasons(accept_changes=True, workdir=str(project.path / "away"))
    assert away is not None
    assert "away does not exist" in away.reasons[0]
    async with engine_of() as engine:
        with pytest.raises(UsageError, match="gate"):
            await engine.check_redo(paused, [], accept_changes=True, decisions=["gate"])


async def test_d10_a_check_of_a_running_execution_refuses_only_a_changed_plan(project: Project) -> None:
    plan = project.plan(
        "{name: p, steps: [{id: a, run: 'until [ -e go ]; do sleep 0.02; done'}, {id: b, run: 'true'}]}"
    )
    async with engine_of() as engine:
        execution = await engine.start(plan)
        project.plan("{name: p, steps: [{id: a, run: 'true'}]}")
        await engine.check_redo(execution.id, [{"kind": "skip", "step": "b"}])
        with pytest.raises(UsageError, match="it cannot take up a changed plan now") as refused:
            await engine.check_redo(execution.id, [], accept_changes=True)
        assert refused.value.failure.advice == (f"pause it first: windlass pause {execution.id}",)
        for ask in (engine.resume(execution.id), engine.check(execution.id)):
            with pytest.raises(UsageError, match="is running already"):
                await ask
        (project.path / "go").touch()
        await execution.wait()
        for late in (engine.resume(execution.id), engine.check_redo(execution.id, [])):
            with pytest.raises(UsageError, match="is completed; there is nothing to resume"):
                await late


async def test_d2_of_two_who_resume_at_once_one_gets_it(project: Project, paused: str) -> None:
    async with engine_of() as one, engine_of() as other:
        both = await asyncio.gather(one.resume(paused), other.resume(paused), return_exceptions=True)
        (got,) = [each for each in both if isinstance(each, Execution)]
        (refused,) = [each for each in both if isinstance(each, windlass.WindlassError)]
        assert isinstance(refused, UsageError), "the second one looks again, and says how things stand"
        assert (await got.result())["status"] == "completed"
    assert project.lines("ran") == ["first", "gate", "old"]


@pytest.mark.parametrize("way", ["resume", "check", "check_redo"])
async def test_d5_a_resume_right_after_the_pause_waits_until_its_driver_has_let_go(
    project: Project, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    may_end, let_go = asyncio.Event(), Driver._let_go

    async def slowly(driver: Driver) -> None:
        await may_end.wait()
        await let_go(driver)

    async with windlass.open() as engine:
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "_let_go", slowly)
            execution = await engine.start(Plan(steps=[Step(id="a", run="true", approve="always")]), hold=False)
            await wait_until_async(lambda: project.state(execution.id).status == "paused", "the pause is on disk")
        arguments = ([],) if way == "check_redo" else ()
        asked = asyncio.create_task(getattr(engine, way)(execution.id, *arguments))
        await settled()
        may_end.set()
        await asked


async def test_d5_every_reason_is_told_at_once(project: Project, paused: str) -> None:
    project.plan(PLAN + "\n")
    project.file("tools.py", TOOLS.replace("def mark", "def marker"))
    error = await refusal(paused, workdir=str(project.path / "gone"))
    text = "\n".join(error.reasons)
    assert "working directory" in text
    assert "gone" in text
    assert "'mark'" in text
    assert "'marker'" in text, "the nearest tool that is there"
    assert "plan.yaml has changed" in text
    assert "tools.py have changed" in text
    assert len(error.reasons) == 4


async def test_d5_missing_tools_cannot_be_accepted_away(project: Project, paused: str) -> None:
    (project.path / "tools.py").unlink()
    for how in ({}, {"accept_changes": True}, {"keep_plan": True}):
        error = await refusal(paused, **how)
        assert any("tools.py is missing" in reason for reason in error.reasons)
        assert any("'mark'" in reason for reason in error.reasons)


async def test_d5_tools_that_the_changed_plan_no_longer_names_need_not_be_there(project: Project, paused: str) -> None:
    (project.path / "tools.py").unlink()
    project.plan(
        """
        name: checked
        steps:
          - {id: first, run: echo never}
          - {id: gate, run: echo gate, needs: [first]}
        """
    )
    result = await resume(paused, accept_changes=True)
    assert result["status"] == "completed"
    assert [s["status"] for s in result["steps"]] == ["completed", "completed"]
    assert result["steps"][0]["output"] == "first", "what was done stays done"


async def test_d5_tools_that_no_longer_load_are_told_with_the_other_reasons(project: Project, paused: str) -> None:
    project.plan(PLAN + "\n")
    project.file("tools.py", "this is no Python\n")
    error = await refusal(paused)
    text = "\n".join(error.reasons)
    assert "plan.yaml has changed" in text
    assert "SyntaxError" in text


async def test_d5_tools_of_an_engine_that_are_missing_are_named(project: Project) -> None:
    @tool
    async def mine(call: windlass.Call) -> int:
        return call.attempt

    plan = Plan(steps=[Step(id="a", tool="mine", approve="always"), Step(id="b", tool="mine", approve="always")])
    async with windlass.open(tools=[mine]) as engine:
        execution = await engine.start(plan, hold=False)
        await execution.wait()
    async with windlass.open() as engine:
        with pytest.raises(CannotResume) as refused:
            await engine.resume(execution.id)
    assert len(refused.value.reasons) == 1, "one reason for one tool, however many steps need it"
    assert "'mine'" in refused.value.reasons[0]


async def test_d5_a_changed_plan_that_is_wrong_is_refused_with_its_problems(project: Project, paused: str) -> None:
    project.plan(PLAN.replace("tool: mark, with: {text: gate}", "tool: makr"))
    async with engine_of() as engine:
        with pytest.raises(PlanInvalid, match="makr"):
            await engine.resume(paused, accept_changes=True)
    assert project.state(paused).status == "paused"


async def test_d5_a_working_directory_that_moved_can_be_named(project: Project, paused: str) -> None:
    other = project.path / "other"
    other.mkdir()
    result = await resume(paused, workdir=str(other))
    assert result["status"] == "completed"
    assert result["workdir"] == str(other)
    assert project.lines("ran") == ["first"]
    assert project.lines("other/ran") == ["gate", "old"]


async def test_d5_another_working_directory_holds_for_one_that_never_started(project: Project) -> None:
    other = project.path / "other"
    other.mkdir()
    async with windlass.open() as engine:
        execution = await engine.create(Plan(steps=[Step(id="a", run="pwd")]))
        result = await (await engine.resume(execution, workdir=str(other))).result()
    assert result["steps"][0]["output"]["stdout"] == f"{other}\n"


async def test_d5_resuming_loads_no_code_from_a_folder_that_is_not_trusted(project: Project, paused: str) -> None:
    (project.user / ".config" / "windlass" / "trusted.json").unlink()
    async with windlass.open() as engine:
        with pytest.raises(NotPermitted):
            await engine.resume(paused)
    assert project.lines("ran") == ["first"]


# ── with another plan ────────────────────────────────────────────────────────────────────────────────


async def test_d5_a_new_input_of_the_changed_plan_has_its_default(project: Project, paused: str) -> None:
    changed = PLAN.replace("inputs: {word: old}", "inputs: {word: new default, extra: added}")
    project.plan(changed.replace('"{{ inputs.word }}"', '"{{ inputs.word }} {{ inputs.extra }}"'))
    result = await resume(paused, accept_changes=True)
    assert result["status"] == "completed", result["error"]
    assert result["steps"][2]["output"] == "old added", "what it was started with stays"


async def test_d5_steps_that_are_new_run_and_steps_that_are_gone_do_not(project: Project, paused: str) -> None:
    project.plan(
        """
        name: checked
        tools: [tools.py]
        steps:
          - {id: first, tool: mark, with: {text: never again}}
          - {id: new, tool: mark, with: {text: new}, needs: [first]}
        """
    )
    result = await resume(paused, accept_changes=True)
    assert result["status"] == "completed"
    assert [(s["id"], s["output"]) for s in result["steps"]] == [("first", "first"), ("new", "new")]
    assert project.lines("ran") == ["first", "new"]


async def test_d5_a_replanned_execution_folds_to_the_same_state_again(project: Project, paused: str) -> None:
    project.plan(PLAN.replace('"{{ inputs.word }}"', "changed"))
    told = await resume(paused, accept_changes=True)
    async with engine_of() as engine:
        assert await Execution(engine, paused).result() == told
    assert any(isinstance(e, ev.ExecutionReplanned) for e in project.events(paused))


async def test_d5_after_accepting_the_changes_are_no_reason_any_more(project: Project, paused: str) -> None:
    project.plan(PLAN.replace("with: {text: gate}", "with: {text: other}"))
    result = await resume(paused, accept_changes=True)
    assert result["reason"] == "approval", "other arguments, another question"
    async with engine_of() as engine:
        await engine.approve(paused, "gate")
    assert (await resume(paused))["status"] == "completed"


# ── left behind ──────────────────────────────────────────────────────────────────────────────────────


async def test_d6_an_execution_without_a_living_driver_is_found_and_can_be_gone_on_with(project: Project) -> None:
    plan = Plan(steps=[Step(id="a", run="echo a"), Step(id="b", run="echo b", needs=["a"])])
    await asyncio.to_thread(leave_behind, plan)
    async with windlass.open() as engine:
        (head,) = await engine.orphans()
        assert head.status == "running"
        assert not engine.driven(head)
        state = await engine.wait(head.id)
        assert state.status == "running", "waiting for it ends, because nobody goes on with it"
        result = await (await engine.resume(head.id)).result()
        assert result["status"] == "completed"
        assert await engine.orphans() == []


SCRIPT = """
import asyncio, sys, windlass

async def main():
    await windlass.open().start(windlass.Plan.model_validate_json(sys.argv[1]))

asyncio.run(main())
"""


def leave_behind(plan: Plan) -> None:
    """A process that starts the plan and is killed once the start is on disk, before the first step."""
    env = {**os.environ, "WINDLASS_FAULT": "journal.after_commit:1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, plan.encoded.decode()], check=False, env=env)
    assert done.returncode == -9


async def test_d6_pausing_or_cancelling_what_was_left_behind_works_without_running_it(project: Project) -> None:
    plan = Plan(steps=[Step(id="a", run="echo ran >> ran; sleep 600")])
    for _ in range(2):
        await asyncio.to_thread(leave_behind, plan)
    async with windlass.open() as engine:
        ids = [head.id for head in await engine.orphans()]
        assert (await engine.pause(ids[0])).status == "paused"
        assert (await engine.cancel(ids[1])).status == "cancelled"
    assert project.lines("ran") == []


async def test_d6_following_what_nobody_ever_begins_with_ends(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.observer.STARTING", 0.5)
    async with windlass.open() as engine:
        execution = await engine.create(Plan(steps=[Step(id="a", run="true")]))
        assert (await engine.wait(execution)).status == "pending"


async def test_d2_whoever_was_taken_over_from_can_write_nothing_any_more(project: Project) -> None:
    """Its attempt ends late: the result is refused, and the one of the new driver stands."""
    began, release = asyncio.Event(), asyncio.Event()

    @tool(name="work")
    async def late() -> str:
        began.set()
        await release.wait()
        return "late"

    @tool(name="work")
    async def prompt() -> str:
        return "prompt"

    plan = Plan(steps=[Step(id="a", tool="work")])
    async with windlass.open(tools=[late]) as one, windlass.open(tools=[prompt]) as other:
        execution = await one.start(plan)
        await began.wait()
        with pytest.raises(UsageError, match="running") as refused:
            await other.resume(execution.id)
        assert any("--take-over" in advice for advice in refused.value.advice)
        taken = await other.resume(execution.id, take_over=True)
        assert (await taken.wait()).status == "completed"
        release.set()
        with pytest.raises(windlass.WindlassError, match="another process took over"):
            await execution.wait()
    assert project.state(execution.id).steps["a"].output == "prompt"


async def test_d2_whoever_only_waits_finds_out_that_it_was_taken_over(project: Project) -> None:
    """It holds an execution for a person's answer, and would wait for ever."""
    plan = Plan(steps=[Step(id="a", run="true", approve="always")])
    async with windlass.open() as one, windlass.open() as other:
        execution = await one.start(plan)
        taken = await other.resume(execution.id, take_over=True)
        with pytest.raises(windlass.WindlassError, match="another process took over"):
            await execution.wait()
        await other.approve(execution.id, "a")
        assert (await taken.wait()).status == "completed"


async def test_d2_a_driver_that_was_taken_over_and_for_which_nobody_waits_is_told_in_a_line(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(steps=[Step(id="a", run="true", approve="always")])
    async with windlass.open() as one, windlass.open() as other:
        execution = (await one.start(plan)).id
        await (await other.resume(execution, take_over=True)).cancel()
    gc.collect()
    (line,) = [record.message for record in caplog.records]
    assert line == (
        f"the driver of {execution} stopped: another process took over execution {execution}; nothing was written"
    )
