"""The Python API (I5): open an engine, start a plan, follow it, read back what every step did (C1)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

import windlass
from windlass import Importance, Limits, Plan, Retry, Step, tool
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine.resuming import changed_plan
from windlass.errors import Ambiguous, NotFound, PlanInvalid, UsageError

if TYPE_CHECKING:
    from conftest import Project


@tool
def double(number: int) -> int:
    return 2 * number


@tool
async def shout(text: str, *, times: int = 1) -> str:
    return text.upper() * times


@tool
def fail() -> None:
    raise ValueError("it never works")


CHAIN = Plan(
    name="chain",
    inputs={"start": 4},
    steps=[
        Step(id="first", tool="double", with_={"number": "{{ inputs.start }}"}),
        Step(id="second", tool="double", with_={"number": "{{ steps.first.output }}"}),
    ],
)


async def test_a_plan_built_in_code_runs_and_gives_its_result(project: Project) -> None:
    """I5, B5"""
    async with windlass.open(tools=[double]) as engine:
        execution = await engine.start(CHAIN)
        result = await execution.result()
    assert result["status"] == "completed"
    assert [(s["id"], s["status"], s["output"]) for s in result["steps"]] == [
        ("first", "completed", 8),
        ("second", "completed", 16),
    ]


async def test_i1_a_plan_comes_from_a_pipe_too(project: Project) -> None:
    """`windlass run <(make-plan)`: what is read of a pipe is not there a second time."""
    reader, writer = os.pipe()
    os.write(writer, b"name: piped\nsteps: [{id: a, tool: double, with: {number: 2}}]\n")
    os.close(writer)
    async with windlass.open(tools=[double]) as engine:
        result = await (await engine.start(engine.read(f"/dev/fd/{reader}"))).result()
    os.close(reader)
    assert result["steps"][0]["output"] == 4


async def test_i1_a_pipe_that_a_plan_came_from_is_not_read_again(project: Project) -> None:
    pipe = project.path / "pipe"
    os.mkfifo(pipe)
    async with windlass.open(tools=[double]) as engine:
        plan = "name: piped\nsteps: [{id: a, tool: double, with: {number: 2}}]\n"
        loaded, _ = await asyncio.gather(asyncio.to_thread(engine.read, pipe), asyncio.to_thread(pipe.write_text, plan))
        execution = await engine.start(loaded)
        await execution.result()
        assert changed_plan(await engine.state(execution.id)) == ""


async def test_d9_what_a_caller_changes_in_its_inputs_after_the_start_changes_nothing(project: Project) -> None:
    @tool
    async def keep(data: dict[str, list[int]]) -> dict[str, list[int]]:
        return data

    plan = Plan(inputs={"data": {}}, steps=[Step(id="a", tool="keep", with_={"data": "{{ inputs.data }}"})])
    given = {"data": {"1": [1, 2]}}
    async with windlass.open(tools=[keep]) as engine:
        execution = await engine.start(plan, inputs=given)
        given["data"]["1"].append(3)
        result = await execution.result()
        assert (await execution.state()).inputs == {"data": {"1": [1, 2]}}
    assert result["steps"][0]["output"] == {"1": [1, 2]}


async def test_d9_what_a_caller_changes_in_its_plan_after_the_start_changes_nothing(project: Project) -> None:
    @tool
    async def keep(data: list[int]) -> list[int]:
        return data

    data, default = [1, 2], [3, 4]
    steps = [
        Step(id="a", tool="keep", with_={"data": "{{ inputs.data }}"}),
        Step(id="b", tool="keep", with_={"data": data}, needs=("a",)),
        Step(id="c", tool="keep", with_={"data": ["{{ item }}"]}, foreach=data, needs=("b",)),
    ]
    plan = Plan(inputs={"data": default}, steps=steps)
    async with windlass.open(tools=[keep]) as engine:
        execution = await engine.start(plan)
        data.append(5)
        default.append(5)
        plan.steps[1].with_["data"].append(6)
        result = await execution.result()
        again = await (await engine.start(Plan(inputs={"data": [3, 4]}, steps=plan.steps[:1]))).result()
    assert [step["output"] for step in result["steps"]] == [[3, 4], [1, 2], [[1], [2]], [1], [2]]
    assert again["steps"][0]["output"] == [3, 4]


async def test_events_come_in_order_without_gaps_and_end_with_the_execution(project: Project) -> None:
    """I5, C1"""
    async with windlass.open(tools=[double]) as engine:
        execution = await engine.start(CHAIN)
        seen = [event async for event in execution.events()]
        again = [event async for event in execution.events()]
        rest = [event async for event in execution.events(after=3)]
    assert [ev.type_of(event) for event in seen] == [
        "execution.created",
        "execution.started",
        "attempt.started",
        "attempt.finished",
        "attempt.started",
        "attempt.finished",
        "execution.finished",
    ]
    assert again == seen, "those that are past can be read again"
    assert rest == seen[3:]
    assert [event.at for event in seen] == sorted(event.at for event in seen)


async def test_every_steps_input_output_error_and_timing_can_be_read_back_later(project: Project) -> None:
    """C1: from another engine, after the first one is closed."""
    plan = Plan(steps=[Step(id="good", tool="double", with_={"number": 3}), Step(id="bad", tool="fail")])
    async with windlass.open(tools=[double, fail]) as engine:
        execution = await engine.start(plan)
        told = await execution.result()
    async with windlass.open() as engine:
        state = await engine.state(execution.id)
        assert await (windlass.Execution(engine, execution.id)).result() == told
    good, bad = told["steps"]
    assert good["input"] == {"number": 3}
    assert good["output"] == 6
    assert good["error"] is None
    assert good["attempts"] == bad["attempts"] == 1
    assert bad["error"]["category"] == "logic"
    assert bad["error"]["message"] == "ValueError: it never works"
    assert bad["error"]["where"] == "bad"
    assert good["started_at"] <= good["finished_at"]
    assert good["duration_s"] >= 0
    assert state.steps["bad"].error is not None


async def test_wait_gives_the_state_and_the_phases_are_told(project: Project) -> None:
    """C1: initialise, execute, done."""
    async with windlass.open(tools=[double]) as engine:
        waiting = await engine.create(CHAIN)
        assert (await engine.state(waiting)).phase == "initialise"
        started = await engine.resume(waiting)
        state = await started.wait()
    assert state.status == "completed"
    assert state.phase == "done"
    events = project.events(state.id)
    phases = [fold(events[:count]).phase for count in range(1, len(events) + 1)]
    assert list(dict.fromkeys(phases)) == ["initialise", "execute", "finalise", "done"]


async def test_ids_are_uuid7_and_grow_with_time(project: Project) -> None:
    """D1"""
    async with windlass.open(tools=[double]) as engine:
        ids = [(await engine.start(CHAIN)).id for _ in range(5)]
        for execution in ids:
            await engine.wait(execution)
    assert [uuid.UUID(i).version for i in ids] == [7] * 5
    assert ids == sorted(ids)
    assert len(set(ids)) == 5


async def test_an_execution_is_found_by_its_unique_beginning_only(project: Project) -> None:
    """D1"""
    async with windlass.open(tools=[double]) as engine:
        with pytest.raises(NotFound, match="no executions here yet"):
            await engine.find("0")
        one, two = [(await engine.start(CHAIN)).id for _ in range(2)]
        common = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        assert (await engine.find(one[: common + 1].upper())).id == one
        with pytest.raises(Ambiguous) as several:
            await engine.find(one[:common])
        assert one in several.value.message
        assert two in several.value.message
        with pytest.raises(NotFound) as none:
            await engine.find("ffff")
        assert one in none.value.message, "the newest are named"
        with pytest.raises(NotFound):
            await engine.find("")
        await engine.wait(one)
        await engine.wait(two)


async def test_inputs_are_given_over_the_defaults_and_checked(project: Project) -> None:
    """B5"""
    async with windlass.open(tools=[double]) as engine:
        execution = await engine.start(CHAIN, {"start": 10})
        assert (await execution.result())["steps"][1]["output"] == 40
        with pytest.raises(PlanInvalid, match="start"):
            await engine.start(CHAIN, {"strat": 10})
        with pytest.raises(PlanInvalid, match="whole number"):
            await engine.start(CHAIN, {"start": "ten"})
        with pytest.raises(PlanInvalid, match="a number of thousands of digits cannot be stored"):
            await engine.start(CHAIN, {"start": 10**5000})
        with pytest.raises(PlanInvalid, match="expected a mapping of names to values, found the text 'start'"):
            await engine.start(CHAIN, "start")  # type: ignore[arg-type]
        with pytest.raises(PlanInvalid, match="the plan has no input `1`"):
            await engine.start(CHAIN, {1: 2})  # type: ignore[dict-item]
        assert len(await engine.executions()) == 1, "what was refused left nothing behind"


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([Step(id="a", tool="double", with_={"number": 1}, needs=["b"])], "`b`"),
        ([Step(id="a", tool="dubble", with_={"number": 1})], "dubble"),
        ([Step(id="a", tool="double", with_={"nmber": 1})], "nmber"),
        ([Step(id="a", tool="double", with_={"number": "{{ steps.c.output }}"})], "steps.c"),
        (
            [
                Step(id="a", tool="double", with_={"number": 1}, needs=["b"]),
                Step(id="b", tool="double", with_={"number": 1}, needs=["a"]),
            ],
            "a → b → a",
        ),
        ([Step(id="a", tool="double", with_={"number": 1})] * 2, "already used"),
        ([Step(id="a", tool="double", with_={"number": object()})], "step a: `with.number`: an object cannot"),
    ],
    ids=["unknown need", "unknown tool", "wrong argument", "unknown step", "cycle", "id twice", "no JSON"],
)
async def test_a_plan_built_in_code_is_refused_before_anything_runs(
    project: Project, steps: list[Step], named: str
) -> None:
    """B3: the same checks as for files, naming the culprit."""
    async with windlass.open(tools=[double]) as engine:
        with pytest.raises(PlanInvalid) as refused:
            await engine.start(Plan(steps=steps))
        assert named in refused.value.message
        assert await engine.executions() == []


@pytest.mark.parametrize("way", ["start", "create"])
async def test_i5_an_unknown_choice_at_a_limit_is_refused_before_anything_is_written(
    project: Project, way: str
) -> None:
    async with windlass.open(tools=[double]) as engine:
        with pytest.raises(UsageError, match=r"`on_overrun` is `ask` or `proceed`.*'stop'"):
            await getattr(engine, way)(CHAIN, on_overrun="stop")
        assert await engine.executions() == []


async def test_a_plan_file_runs_through_the_api_too(project: Project) -> None:
    """I5"""
    path = project.path / project.plan("steps: [{id: a, run: 'echo $((6 * 7))'}]")
    async with windlass.open() as engine:
        execution = await engine.start(path)
        result = await execution.result()
    assert result["steps"][0]["output"]["stdout"] == "42\n"


async def test_two_engines_of_one_home_see_each_others_executions(project: Project) -> None:
    """D2: whoever drives it, every reader reads the same journal."""
    async with windlass.open(tools=[double]) as one, windlass.open() as other:
        execution = await one.start(CHAIN)
        state = await other.wait(execution.id)
        assert state.status == "completed"
        assert [e async for e in one.follow(execution.id)] == [e async for e in other.follow(execution.id)]


async def test_many_executions_run_side_by_side_in_one_engine(project: Project) -> None:
    """I5"""
    async with windlass.open(tools=[double]) as engine:
        started = [await engine.start(CHAIN, {"start": number}) for number in range(30)]
        results = [await execution.result() for execution in started]
    assert [r["steps"][1]["output"] for r in results] == [4 * number for number in range(30)]


async def test_closing_the_engine_leaves_what_runs_resumable(project: Project) -> None:
    """D3"""

    @tool
    async def slow(call: windlass.Call) -> int:
        (project.path / "began").touch()
        if call.attempt == 1:
            await asyncio.Event().wait()
        return call.attempt

    plan = Plan(steps=[Step(id="a", tool="slow")])
    async with windlass.open(tools=[slow]) as engine:
        execution = await engine.start(plan)
        async for event in execution.events():
            if isinstance(event, ev.AttemptStarted):
                break
    async with windlass.open(tools=[slow]) as engine:
        assert (await engine.state(execution.id)).status == "paused"
        resumed = await engine.resume(execution.id)
        assert (await resumed.result())["steps"][0]["output"] == 2


async def test_i5_a_closed_engine_says_so_and_writes_nothing(project: Project) -> None:
    async with windlass.open() as engine:
        pass
    with pytest.raises(UsageError, match="this engine is closed"):
        await engine.start(Plan(steps=[Step(id="a", run="true")]))
    assert project.ids() == []


async def test_settings_are_given_by_name_and_a_wrong_name_is_told(project: Project) -> None:
    """I5"""
    with pytest.raises(UsageError, match=r"`gracee`.*did you mean `grace`"):
        windlass.open(gracee=3)
    async with windlass.open(grace="250ms") as engine:
        assert engine.attempt_runner.grace == 0.25


async def test_two_tools_of_one_name_are_refused(project: Project) -> None:
    """I5"""

    @tool(name="double")
    def another() -> int:
        return 1

    @tool(name="shell")
    def shell() -> int:
        return 1

    for pair in ([double, another], [shell]):
        with pytest.raises(UsageError, match="two tools named"):
            windlass.open(tools=pair)


def test_everything_public_is_there_and_importing_costs_no_adapter() -> None:
    """I5"""
    for name in windlass.__all__:
        assert getattr(windlass, name) is not None
    assert set(windlass.__all__) <= set(dir(windlass))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = windlass.nothing_like_it  # type: ignore[attr-defined]
    script = "import sys, windlass; print([m for m in sys.modules if m.partition('.')[0] in ('pydantic', 'jinja2')])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


async def test_an_edited_copy_of_a_plan_is_another_plan(project: Project) -> None:
    """I5: what runs is the copy, though the original was hashed and run before."""
    async with windlass.open(tools=[double]) as engine:
        await (await engine.start(CHAIN)).wait()
        edited = CHAIN.model_copy(update={"steps": CHAIN.steps[:1]})
        assert edited.digest != CHAIN.digest
        result = await (await engine.start(edited)).result()
    assert [s["id"] for s in result["steps"]] == ["first"]


async def test_the_values_of_a_plan_cannot_be_changed(project: Project) -> None:
    """I5"""
    with pytest.raises(ValueError, match="frozen"):
        CHAIN.name = "other"  # type: ignore[misc]
    copy = Plan.model_validate_json(CHAIN.encoded)
    assert copy == CHAIN
    assert copy.digest == CHAIN.digest


def test_illegal_steps_cannot_be_written() -> None:
    """I5: the constructors refuse them."""
    for wrong in ({"run": "x", "tool": "y"}, {}, {"run": ""}, {"tool": "y", "retry": -1}, {"tool": "y", "oops": 1}):
        with pytest.raises(ValueError, match="validation error"):
            Step(id="a", **wrong)
    assert Step(id="a", tool="t", importance="critical").importance is Importance.CRITICAL
    assert Retry(delay="250ms").delay == 0.25
    with pytest.raises(ValueError, match="parallel"):
        Limits(parallel=0)


async def test_the_home_is_private_and_ignored_by_git(project: Project) -> None:
    """D2: outputs are nobody else's business."""
    async with windlass.open(tools=[double]) as engine:
        await (await engine.start(CHAIN)).wait()
    assert project.home.stat().st_mode & 0o077 == 0
    files = [path for path in project.home.rglob("*") if path.is_file() and path.name != ".gitignore"]
    assert project.home / "windlass.db" in files
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    assert (project.home / ".gitignore").read_text().startswith("*")


async def test_i5_something_else_than_a_plan_or_a_tool_is_refused_in_words(project: Project) -> None:
    async with windlass.open() as engine:
        with pytest.raises(UsageError, match="a plan is a `Plan`, or the path of a file; given is") as refused:
            await engine.start({"steps": [{"id": "a", "run": "true"}]})  # type: ignore[arg-type]
        assert "RunRequest(plan={…})" in refused.value.advice[0]

    def bare() -> None: ...

    class Made:
        name = "made"

        async def execute(self) -> None: ...

    for given, text in (
        (bare, "the function bare cannot be a tool"),
        (3, "an object of int cannot be a tool"),
        (Made, "the class Made cannot be a tool"),
    ):
        with pytest.raises(UsageError, match=text):
            windlass.open(tools=[given])  # type: ignore[list-item]
    assert project.ids() == []


async def test_i5_events_after_a_sequence_that_cannot_be_are_no_sign_of_damage(project: Project) -> None:
    async with windlass.open(tools=[double]) as engine:
        execution = await engine.start(CHAIN)
        await execution.wait()
        for after in (-1, 1.5, "x", 10**30):
            with pytest.raises(UsageError, match="`after` is the `seq` of an event, or 0 for all"):
                _ = [event async for event in execution.events(after)]  # type: ignore[arg-type]


async def test_i5_executions_are_found_by_one_status_and_an_unknown_one_is_told(project: Project) -> None:
    async with windlass.open(tools=[double]) as engine:
        execution = await engine.start(CHAIN)
        await execution.wait()
        assert [head.id for head in await engine.executions("completed")] == [execution.id]
        with pytest.raises(UsageError, match="there is no status 'done'; there are: pending, running"):
            await engine.executions(["done"])
