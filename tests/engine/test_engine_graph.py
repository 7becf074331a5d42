"""What runs, in which order, and what a failure costs (B3, B5, C2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Limits, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project


class Bench:
    """Tools that keep a record of what ran, what ran at once, and in which order."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.now: set[str] = set()
        self.most = 0
        self.together: dict[str, set[str]] = {}
        self.gate = asyncio.Event()
        self.gate.set()

        @tool
        async def work(call: Call, value: Any = None, fails: bool = False) -> Any:
            self.ran.append(call.step)
            self.now.add(call.step)
            self.most = max(self.most, len(self.now))
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
                await self.gate.wait()
                self.together[call.step] = set(self.now)
                if fails:
                    raise ToolError(f"{call.step} was told to fail")
                return value
            finally:
                self.now.discard(call.step)

        self.tool = work


@pytest.fixture
def bench() -> Bench:
    return Bench()


def step(name: str, value: Any = None, **more: Any) -> Step:
    arguments = {"value": value, "fails": more.pop("fails", False)}
    return Step(id=name, tool="work", with_=arguments, **more)


async def run(bench: Bench, *steps: Step, parallel: int = 4, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    plan = Plan(steps=steps, limits=Limits(parallel=parallel), inputs=inputs or {})
    async with windlass.open(tools=[bench.tool]) as engine:
        return await (await engine.start(plan)).result()


def statuses(result: dict[str, Any]) -> dict[str, str]:
    return {s["id"]: s["status"] for s in result["steps"]}


def outputs(result: dict[str, Any]) -> dict[str, Any]:
    return {s["id"]: s["output"] for s in result["steps"]}


def skips(result: dict[str, Any]) -> dict[str, str]:
    return {s["id"]: s["skipped_because"] for s in result["steps"] if s["skipped_because"]}


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


async def test_b3_a_step_runs_after_all_it_needs_and_results_stand_in_the_order_of_dependencies(
    project: Project, bench: Bench
) -> None:
    result = await run(
        bench,
        step("last", needs=["left", "right"]),
        step("left", needs=["root"]),
        step("right", needs=["root"]),
        step("root"),
    )
    assert result["status"] == "completed"
    assert bench.ran == ["root", "left", "right", "last"]
    assert [s["id"] for s in result["steps"]] == ["root", "left", "right", "last"]


async def test_b3_reading_a_steps_output_is_enough_to_wait_for_it(project: Project, bench: Bench) -> None:
    result = await run(bench, step("b", "{{ steps.a.output + 1 }}"), step("a", 41))
    assert bench.ran == ["a", "b"]
    assert outputs(result) == {"a": 41, "b": 42}


@pytest.mark.parametrize("parallel", [1, 2, 3, 20])
async def test_b3_no_more_steps_run_at_once_than_the_limit_and_no_fewer_when_there_is_work(
    project: Project, bench: Bench, parallel: int
) -> None:
    await run(bench, *[step(f"s{n}") for n in range(12)], parallel=parallel)
    assert bench.most == min(parallel, 12)
    assert len(bench.ran) == 12


async def test_b3_a_dependent_starts_as_soon_as_its_own_prerequisites_are_done(project: Project, bench: Bench) -> None:
    """Not in waves: `c` does not wait for the slow `b`."""
    late = asyncio.Event()

    @tool
    async def slow() -> str:
        await late.wait()
        return "slow"

    @tool
    async def release() -> None:
        late.set()

    plan = Plan(
        steps=[
            step("a"),
            Step(id="b", tool="slow"),
            Step(id="c", tool="release", needs=["a"]),
        ]
    )
    async with windlass.open(tools=[bench.tool, slow, release]) as engine:
        result = await (await engine.start(plan)).result()
    assert result["status"] == "completed"


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────


async def test_b3_a_failed_prerequisite_skips_its_dependents_and_nothing_else(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("bad", fails=True),
        step("child", needs=["bad"]),
        step("grandchild", needs=["child", "good"]),
        step("good"),
        step("other", needs=["good"]),
    )
    assert statuses(result) == {
        "bad": "failed",
        "child": "skipped",
        "grandchild": "skipped",
        "good": "completed",
        "other": "completed",
    }
    assert skips(result) == {"child": "dependency failed: bad", "grandchild": "dependency failed: child"}
    assert sorted(bench.ran) == ["bad", "good", "other"]


async def test_c2_partial_says_what_the_result_lacks(project: Project, bench: Bench) -> None:
    result = await run(bench, step("good"), step("bad", fails=True), step("child", needs=["bad"]))
    assert result["status"] == "partial"
    assert result["lacks"] == ["bad", "child"]
    assert result["error"]["message"] == "bad was told to fail"
    assert result["error"]["where"] == "bad"


async def test_c2_an_execution_of_which_nothing_completed_has_failed(project: Project, bench: Bench) -> None:
    result = await run(bench, step("bad", fails=True), step("child", needs=["bad"]))
    assert result["status"] == "failed"
    assert result["error"]["category"] == "logic"


async def test_c2_an_optional_step_that_fails_gives_null_and_the_execution_completes(
    project: Project, bench: Bench
) -> None:
    result = await run(
        bench,
        step("extra", fails=True, importance="optional"),
        step("main", "{{ steps.extra.output }}"),
        step("text", "got {{ steps.extra.output }}"),
    )
    assert result["status"] == "completed"
    assert statuses(result) == {"extra": "failed", "main": "completed", "text": "completed"}
    assert outputs(result) == {"extra": None, "main": None, "text": "got null"}
    assert result["lacks"] == ["extra"]
    assert result["error"] is None


async def test_c2_what_an_optional_step_printed_before_it_failed_does_not_reach_dependents(
    project: Project,
) -> None:
    plan = Plan(
        steps=[
            Step(id="extra", run="echo half; exit 3", importance="optional"),
            Step(id="main", run=["echo", "{{ steps.extra.output }}"]),
        ]
    )
    async with windlass.open() as engine:
        extra, main = (await (await engine.start(plan)).result())["steps"]
    assert extra["output"]["stdout"] == "half\n", "it is kept with the step"
    assert main["output"]["stdout"] == "null\n"


async def test_c2_an_optional_step_skipped_for_a_failure_degrades_too(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("bad", fails=True),
        step("extra", needs=["bad"], importance="optional"),
        step("main", "{{ steps.extra.output }}"),
    )
    assert statuses(result) == {"bad": "failed", "extra": "skipped", "main": "completed"}
    assert result["status"] == "partial"


async def test_c2_a_critical_failure_stops_what_runs_and_skips_the_rest(project: Project) -> None:
    stopped: list[str] = []
    running = asyncio.Event()

    @tool
    async def endless(call: Call) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(call.step)

    @tool
    async def fatal() -> None:
        await running.wait()
        raise ToolError("this was essential")

    plan = Plan(
        steps=[
            Step(id="vital", tool="fatal", importance="critical"),
            Step(id="busy", tool="endless"),
            Step(id="later", tool="endless", needs=["busy"]),
        ]
    )
    async with windlass.open(tools=[endless, fatal]) as engine:
        result = await (await engine.start(plan)).result()
    assert result["status"] == "failed"
    assert result["error"]["message"] == "this was essential"
    assert statuses(result) == {"vital": "failed", "busy": "skipped", "later": "skipped"}
    assert set(skips(result).values()) == {"critical step vital failed"}
    assert stopped == ["busy"]


async def test_c2_what_was_done_before_a_critical_failure_is_kept(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("a", "done"),
        step("b", needs=["a"], fails=True, importance="critical"),
        step("c", needs=["a", "b"]),
    )
    assert result["status"] == "failed"
    assert outputs(result)["a"] == "done"
    assert result["lacks"] == ["b", "c"]


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────


async def test_b5_a_false_condition_skips_the_step_and_what_needs_it_without_harm(
    project: Project, bench: Bench
) -> None:
    result = await run(
        bench,
        step("a", 1),
        step("b", when="steps.a.output > 1"),
        step("c", needs=["b"]),
        step("d", when="{{ steps.a.output == 1 }}"),
        step("e", when="inputs.wanted"),
        step("f", when=False),
        inputs={"wanted": False},
    )
    assert result["status"] == "completed", "nothing failed, and nothing is lacking"
    assert result["lacks"] == []
    assert sorted(bench.ran) == ["a", "d"]
    assert skips(result)["b"] == "condition was false: steps.a.output > 1"
    assert skips(result)["c"] == "dependency skipped: b"


async def test_b5_a_condition_on_a_steps_status_takes_charge_of_its_failure(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("risky", fails=True),
        step("repair", "{{ steps.risky.error.message }}", when="steps.risky.status == 'failed'"),
        step("celebrate", when="steps.risky.status == 'completed'"),
        step("plain", needs=["risky"]),
    )
    assert statuses(result) == {
        "risky": "failed",
        "repair": "completed",
        "celebrate": "skipped",
        "plain": "skipped",
    }
    assert outputs(result)["repair"] == "risky was told to fail"
    assert skips(result)["celebrate"].startswith("condition was false")
    assert result["lacks"] == ["risky", "plain"]


async def test_b5_a_condition_sees_a_skipped_step(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("off", when=False),
        step("instead", "used", when="steps.off.status == 'skipped'"),
    )
    assert outputs(result)["instead"] == "used"


async def test_b5_a_condition_that_cannot_be_read_fails_the_step_and_says_why(project: Project, bench: Bench) -> None:
    result = await run(bench, step("a", {"x": 1}), step("b", when="steps.a.output.y.z"), step("c"))
    assert statuses(result) == {"a": "completed", "b": "failed", "c": "completed"}
    error = result["steps"][1]["error"]
    assert error["category"] == "logic"
    assert "'y'" in error["message"]
    assert error["advice"]


async def test_b5_a_condition_that_is_text_and_says_no_fails_the_step(project: Project, bench: Bench) -> None:
    texts = ["False\n", "no", "0", "OFF", "null", "None", "", "true", "nothing"]
    result = await run(
        bench, *(step(f"s{n}", when=f"{{{{ inputs.texts[{n}] }}}}") for n in range(len(texts))), inputs={"texts": texts}
    )
    assert list(statuses(result).values()) == ["failed"] * 6 + ["skipped", "completed", "completed"]
    assert bench.ran == ["s7", "s8"]
    said = "`when` needs true or false, but '{{ inputs.texts[0] }}' gives the text 'False\\n', and a text is true; "
    assert said + "compare it: inputs.texts[0] == 'true'" in result["steps"][0]["error"]["message"]


# ── fan-out ──────────────────────────────────────────────────────────────────────────────────────────


async def test_b5_foreach_runs_once_for_each_item_and_keeps_their_order(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("list", ["c", "a", "b"]),
        step("each", "{{ index }}{{ item }}", foreach="steps.list.output"),
        step("after", "{{ steps.each.output }}"),
        parallel=2,
    )
    assert outputs(result)["each"] == ["0c", "1a", "2b"]
    assert outputs(result)["after"] == ["0c", "1a", "2b"]
    assert [s["id"] for s in result["steps"]] == ["list", "each", "each[0]", "each[1]", "each[2]", "after"]
    assert bench.most == 2


async def test_b5_foreach_takes_a_list_that_is_written_out_and_keeps_the_items_types(
    project: Project, bench: Bench
) -> None:
    items = [1, "two", {"three": 3}, [4], None, "{{ inputs.five }}"]
    result = await run(bench, step("each", "{{ item }}", foreach=items), inputs={"five": 5})
    assert outputs(result)["each"] == [1, "two", {"three": 3}, [4], None, 5]


async def test_b5_foreach_over_an_empty_list_completes_with_an_empty_list(project: Project, bench: Bench) -> None:
    result = await run(bench, step("each", foreach=[]), step("after", "{{ steps.each.output }}"))
    assert result["status"] == "completed"
    assert outputs(result)["after"] == []
    assert bench.ran == ["after"]


async def test_b5_an_item_that_fails_fails_the_whole_and_the_others_still_run(project: Project, bench: Bench) -> None:
    plan = [
        Step(id="each", tool="work", with_={"value": "{{ item }}", "fails": "{{ item == 2 }}"}, foreach=[1, 2, 3]),
        step("after", needs=["each"]),
    ]
    result = await run(bench, *plan)
    assert statuses(result) == {
        "each": "failed",
        "each[0]": "completed",
        "each[1]": "failed",
        "each[2]": "completed",
        "after": "skipped",
    }
    error = result["steps"][0]["error"]
    assert error["message"] == "1 of 3 items failed, first each[1]: each[1] was told to fail"


async def test_b5_foreach_over_what_is_no_list_fails_and_says_so(project: Project, bench: Bench) -> None:
    result = await run(bench, step("a", {"k": 1}), step("each", foreach="steps.a.output"))
    assert statuses(result) == {"a": "completed", "each": "failed"}
    assert "needs a list" in result["steps"][1]["error"]["message"]


async def test_d8_an_optional_foreach_that_fails_gives_what_its_items_gave(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("each", fails=True, foreach=[1, 2], importance="optional"),
        step("after", "{{ steps.each.output }}"),
    )
    assert result["status"] == "completed"
    assert outputs(result)["after"] == [None, None]


async def test_b5_a_critical_foreach_stops_the_execution(project: Project, bench: Bench) -> None:
    result = await run(
        bench,
        step("each", fails=True, foreach=[1, 2], importance="critical"),
        step("after", when="steps.each.status == 'failed'"),
    )
    assert result["status"] == "failed"
    assert statuses(result)["after"] == "skipped"


async def test_b5_a_false_condition_skips_a_foreach_before_its_list_is_looked_at(
    project: Project, bench: Bench
) -> None:
    result = await run(bench, step("a", 1), step("each", foreach="steps.a.output", when="steps.a.output > 1"))
    assert statuses(result)["each"] == "skipped"
    assert result["status"] == "completed"


# ── templates ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value", [1, 1.5, True, None, "text", "", [1, [2]], {"a": {"b": [None]}}, "{not a template}", "ünï ✓"], ids=repr
)
async def test_b5_a_template_that_stands_alone_keeps_the_type(project: Project, bench: Bench, value: Any) -> None:
    result = await run(bench, step("a", value), step("b", "{{ steps.a.output }}"), step("c", ["{{steps.b.output}}"]))
    assert outputs(result) == {"a": value, "b": value, "c": [value]}


async def test_b5_text_around_a_template_makes_text_without_python_spelling(project: Project, bench: Bench) -> None:
    value = {"list": [True, None, "ü"]}
    result = await run(bench, step("a", value), step("b", "<{{ steps.a.output }}|{{ steps.a.output.list[0] }}>"))
    assert outputs(result)["b"] == '<{"list": [true, null, "ü"]}|true>'


HOSTILE = "a'b\"c $(touch pwned) `touch pwned`; touch pwned\n* \\ -n"


async def test_b5_quote_makes_any_text_one_word_for_the_shell(project: Project) -> None:
    plan = Plan(
        inputs={"text": HOSTILE},
        steps=[
            Step(id="line", run="printf '%s' {{ inputs.text | quote }}"),
            Step(id="argv", run=["printf", "%s", "{{ inputs.text }}"]),
        ],
    )
    async with windlass.open() as engine:
        result = await (await engine.start(plan)).result()
    assert [s["output"]["stdout"] for s in result["steps"]] == [HOSTILE, HOSTILE]
    assert not (project.path / "pwned").exists()


async def test_b5_a_template_without_its_value_fails_the_step_only(project: Project, bench: Bench) -> None:
    result = await run(bench, step("a", {}), step("b", "{{ steps.a.output.missing }}"), step("c"))
    assert statuses(result) == {"a": "completed", "b": "failed", "c": "completed"}
    assert "'missing'" in result["steps"][1]["error"]["message"]


async def test_b5_a_template_sees_the_execution(project: Project, bench: Bench) -> None:
    text = "{{ execution.id }} {{ execution.workdir }} {{ execution.plan }}"
    plan = Plan(name="mine", steps=[step("a", text)])
    async with windlass.open(tools=[bench.tool]) as engine:
        execution = await engine.start(plan, workdir=project.path)
        result = await execution.result()
    assert outputs(result)["a"] == f"{execution.id} {project.path} mine"


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────


async def test_c8_a_steps_timeout_stops_the_attempt(project: Project) -> None:
    plan = Plan(
        steps=[
            Step(id="slow", run="sleep 600", timeout="50ms", retry={"max": 0}),
            Step(id="quick", run="true", timeout="1h"),
        ]
    )
    async with windlass.open(grace=0.1) as engine:
        result = await (await engine.start(plan)).result()
    assert statuses(result) == {"slow": "failed", "quick": "completed"}
    assert result["steps"][0]["error"]["category"] == "resource"
    assert "timeout of 0.05 s" in result["steps"][0]["error"]["message"]


async def test_c8_the_executions_time_limit_ends_it(project: Project, clock: FakeClock) -> None:
    plan = Plan(
        limits=Limits(timeout="1h"),
        steps=[Step(id="slow", run="sleep 600"), Step(id="later", run="true", needs=["slow"])],
    )
    async with windlass.open(grace=0.1) as engine:
        execution = await engine.start(plan)
        async for event in execution.events():
            if isinstance(event, ev.AttemptStarted):
                break
        clock.advance(3600)
        result = await execution.result()
        events = [e async for e in execution.events()]
    assert result["status"] == "failed"
    assert "limit of 3600 s" in result["error"]["message"]
    assert statuses(result) == {"slow": "skipped", "later": "skipped"}
    assert [e for e in events if isinstance(e, ev.AttemptStopped)]


async def test_b3_a_deep_chain_and_a_wide_plan_end_alike(project: Project, bench: Bench) -> None:
    chain = [step("c0", 0)] + [step(f"c{n}", f"{{{{ steps.c{n - 1}.output + 1 }}}}") for n in range(1, 120)]
    wide = [step(f"w{n}", n) for n in range(120)]
    total = step("sum", "{{ steps.c119.output + steps.w119.output }}")
    result = await run(bench, *chain, *wide, total)
    assert result["status"] == "completed"
    assert outputs(result)["sum"] == 238
    assert result["progress"] == 100.0
