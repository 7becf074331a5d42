"""Which failures are tried again, when, how often, and that a restart does not forget it (C3)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from waiting import settled

import windlass
from windlass import Call, Category, Limits, Plan, Retry, Step, ToolError, tool
from windlass.core import events as ev
from windlass.engine.execution import Execution
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project

SOON = Retry(delay="10ms")
FAR = Retry(delay="1h", max_delay="1h")
"""A backoff that does not end by itself while a test runs."""


class Flaky:
    """A tool that fails as it is told, and says how it was called."""

    def __init__(self, *failures: Exception | str) -> None:
        self.failures = list(failures)
        self.calls: list[Call] = []
        self.refreshed = 0

        async def refresh() -> None:
            self.refreshed += 1

        @tool(refresh=refresh)
        async def flaky(call: Call) -> str:
            self.calls.append(call)
            if len(self.calls) <= len(self.failures):
                failure = self.failures[len(self.calls) - 1]
                raise ToolError("not yet", category=failure) if isinstance(failure, str) else failure
            return f"attempt {call.attempt}"

        self.tool = flaky

    @property
    def attempts(self) -> list[int]:
        return [call.attempt for call in self.calls]


def plan_of(retry: Retry | int = SOON, **more: Any) -> Plan:
    return Plan(steps=[Step(id="a", tool="flaky", retry=retry, **more)])


async def run(flaky: Flaky, retry: Retry | int = SOON) -> dict[str, Any]:
    async with windlass.open(tools=[flaky.tool]) as engine:
        return (await (await engine.start(plan_of(retry))).result())["steps"][0]


async def waits_for_retry(execution: Execution) -> ev.StepWaiting:
    """Follow it until a step stands in a backoff."""
    async for event in execution.events():
        if isinstance(event, ev.StepWaiting) and event.reason == "retry":
            return event
    raise AssertionError("no attempt was to be tried again")


@pytest.mark.parametrize(
    ("category", "tries"),
    [("transient", 4), ("permission", 2), ("resource", 3), ("configuration", 1), ("logic", 1)],
)
async def test_c3_each_category_has_its_own_number_of_tries(project: Project, category: str, tries: int) -> None:
    flaky = Flaky(*[category] * 10)
    step = await run(flaky)
    assert step["status"] == "failed"
    assert step["attempts"] == tries
    assert flaky.attempts == list(range(1, tries + 1))
    assert step["error"]["category"] == category


@pytest.mark.parametrize("category", ["transient", "permission", "resource"])
async def test_c3_a_retry_that_works_completes_the_step(project: Project, category: str) -> None:
    step = await run(Flaky(category))
    assert (step["status"], step["output"], step["error"]) == ("completed", "attempt 2", None)


@pytest.mark.parametrize(
    ("error", "category", "tries"),
    [
        (TimeoutError("slow"), "transient", 4),
        (ConnectionResetError("gone"), "transient", 4),
        (PermissionError("no"), "permission", 2),
        (MemoryError(), "resource", 3),
        (OSError(28, "No space left on device"), "resource", 3),
        (OSError(24, "Too many open files"), "resource", 3),
        (FileNotFoundError("where"), "configuration", 1),
        (NotADirectoryError("where"), "configuration", 1),
        (ImportError("no module"), "configuration", 1),
        (ValueError("nonsense"), "logic", 1),
        (KeyError("k"), "logic", 1),
        (AssertionError(), "logic", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_c3_an_exception_of_a_tool_has_the_category_of_its_type(
    project: Project, error: Exception, category: str, tries: int
) -> None:
    step = await run(Flaky(*[error] * 9))
    assert (step["error"]["category"], step["attempts"]) == (category, tries)
    assert step["error"]["message"], "an exception without a text still says what it was"


async def test_c3_a_permission_failure_is_tried_once_more_after_the_credentials_are_refreshed(
    project: Project,
) -> None:
    flaky = Flaky("permission")
    assert (await run(flaky))["status"] == "completed"
    assert (len(flaky.calls), flaky.refreshed) == (2, 1)
    never = Flaky("permission", "permission", "permission")
    assert (await run(never))["status"] == "failed"
    assert (len(never.calls), never.refreshed) == (2, 1)
    other = Flaky("transient")
    await run(other)
    assert other.refreshed == 0, "only a permission failure asks for it"


async def test_c3_a_refresh_that_fails_is_a_failure_of_the_attempt(project: Project) -> None:
    def refresh() -> None:
        raise ConnectionError("the login server is away")

    @tool(refresh=refresh)
    def guarded(call: Call) -> None:
        raise ToolError("who are you?", category="permission")

    async with windlass.open(tools=[guarded]) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="guarded", retry=SOON)]))
        step = (await execution.result())["steps"][0]
    assert step["status"] == "failed"
    assert "the login server is away" in step["error"]["message"]


async def test_c3_a_resource_failure_is_tried_again_with_reduced_usage(project: Project) -> None:
    flaky = Flaky("transient", "resource", "transient", "resource")
    assert (await run(flaky))["status"] == "completed"
    assert [call.reduced for call in flaky.calls] == [0, 0, 1, 1, 2], "after a resource failure alone"


async def test_c3_a_shell_command_sees_its_attempt_and_how_far_to_reduce(project: Project) -> None:
    script = 'echo "$WINDLASS_ATTEMPT $WINDLASS_REDUCED" >> seen; [ "$WINDLASS_ATTEMPT" -gt 2 ] || kill -9 $$'
    async with windlass.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run=script, retry=SOON)]))
        result = await execution.result()
    assert result["status"] == "completed"
    assert project.lines("seen") == ["1 0", "2 1", "3 2"]


class Solo:
    """A greedy tool and a modest one that notice when a reduced attempt has company."""

    def __init__(self, hangs_at: int = 0) -> None:
        self.busy: set[str] = set()
        self.company: list[tuple[str, set[str]]] = []
        self.reduced: list[int] = []
        self.hanging = asyncio.Event()

        @tool
        async def greedy(call: Call) -> None:
            self.reduced.append(call.reduced)
            self._enter(call)
            try:
                if call.attempt == hangs_at:
                    self.hanging.set()
                    await asyncio.Event().wait()
                await settled(10)
                if call.reduced < 2:
                    raise ToolError("too much", category="resource")
            finally:
                self.busy.discard(call.step)

        @tool
        async def modest(call: Call) -> None:
            self._enter(call)
            await settled(10 + 3 * int(call.step.removeprefix("m")))  # so that they do not end together
            self.busy.discard(call.step)

        self.tools = [greedy, modest]

    def _enter(self, call: Call) -> None:
        if self.busy and (call.reduced or ("greedy" in self.busy and len(self.reduced) > 1)):
            self.company.append((call.step, set(self.busy)))
        self.busy.add(call.step)

    def plan(self) -> Plan:
        many = [Step(id=f"m{n}", tool="modest") for n in range(20)]
        steps = [Step(id="greedy", tool="greedy", retry=SOON), *many]
        return Plan(steps=steps, limits=Limits(parallel=3))


async def test_c3_a_resource_retry_runs_alone(project: Project) -> None:
    solo = Solo()
    async with windlass.open(tools=solo.tools) as engine:
        result = await (await engine.start(solo.plan())).result()
    assert result["status"] == "completed"
    assert solo.reduced == [0, 1, 2]
    assert solo.company == []


async def test_c3_a_resource_retry_that_was_interrupted_runs_alone_after_the_resume(project: Project) -> None:
    solo = Solo(hangs_at=2)
    async with windlass.open(tools=solo.tools) as engine:
        execution = await engine.start(solo.plan())
        await solo.hanging.wait()
        await execution.interrupt()
        result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert solo.reduced == [0, 1, 1, 2]
    assert solo.company == []


async def test_c3_a_bare_number_of_retries_counts_for_any_failed_run(project: Project) -> None:
    flaky = Flaky("logic", "logic")
    plan = Plan.model_validate({"steps": [{"id": "a", "tool": "flaky", "retry": 2}]})
    fast = plan.model_copy(update={"steps": (plan.steps[0].model_copy(update={"retry": _quick(plan)}),)})
    async with windlass.open(tools=[flaky.tool]) as engine:
        result = await (await engine.start(fast)).result()
    assert result["status"] == "completed"
    assert flaky.attempts == [1, 2, 3]


def _quick(plan: Plan) -> Retry:
    retry = plan.steps[0].retry
    assert Category.LOGIC in retry.on
    assert Category.CONFIGURATION not in retry.on
    return retry.model_copy(update={"delay": 0.01})


async def test_c3_no_retries_means_none(project: Project) -> None:
    flaky = Flaky("transient")
    assert (await run(flaky, Retry(max=0)))["attempts"] == 1


async def test_c3_the_waits_grow_and_are_spread(project: Project) -> None:
    """Exponential backoff with jitter, as it was journalled."""
    flaky = Flaky(*["transient"] * 99)
    flaky.tool.circuit = lambda arguments: None  # no breaker: it would keep them apart by itself
    async with windlass.open(tools=[flaky.tool]) as engine:
        retry = Retry(max=5, delay="8ms", max_delay="50ms")
        started = [await engine.start(plan_of(retry)) for _ in range(3)]
        for execution in started:
            await execution.wait()
    waits = [[e for e in project.events(one.id) if isinstance(e, ev.StepWaiting)] for one in started]
    lengths = [[wait.until - wait.at for wait in of_one if wait.until is not None] for of_one in waits]
    for of_one in lengths:
        for length, longest in zip(of_one, [0.008, 0.016, 0.032, 0.05, 0.05], strict=True):
            assert longest / 2 - 1e-6 <= length <= longest + 1e-6
    assert len({of_one[4] for of_one in lengths}) == 3, "those that failed together do not come back together"


async def test_c3_retry_after_is_honoured(project: Project) -> None:
    """What the other side asked for wins over a shorter backoff, and is journalled with the failure."""
    flaky = Flaky(ToolError("busy", category="transient", retry_after=0.3))
    async with windlass.open(tools=[flaky.tool]) as engine:
        execution = await engine.start(plan_of())
        assert (await execution.result())["status"] == "completed"
    events = project.events(execution.id)
    failed = next(e for e in events if isinstance(e, ev.AttemptFailed))
    again = [e for e in events if isinstance(e, ev.AttemptStarted)][1]
    assert failed.failure.retry_after == 0.3
    assert again.at - failed.at >= 0.3


async def test_c3_retry_after_does_not_shorten_a_longer_backoff(project: Project) -> None:
    flaky = Flaky(ToolError("busy", category="transient", retry_after=0.001))
    async with windlass.open(tools=[flaky.tool]) as engine:
        execution = await engine.start(plan_of(FAR))
        waiting = await waits_for_retry(execution)
        await execution.cancel()
    assert waiting.until is not None
    assert waiting.until - waiting.at >= 1800


async def test_c3_a_backoff_holds_no_worker(project: Project) -> None:
    """With `parallel: 1`, the others go on while one waits."""
    flaky = Flaky("transient")

    @tool
    async def other() -> None:
        """Goes on."""

    steps = [Step(id="a", tool="flaky", retry=FAR), *[Step(id=f"o{n}", tool="other") for n in range(3)]]
    async with windlass.open(tools=[flaky.tool, other]) as engine:
        execution = await engine.start(Plan(steps=steps, limits=Limits(parallel=1)))
        finished: list[str] = []
        async for event in execution.events():
            if isinstance(event, ev.AttemptFinished):
                finished.append(event.step)
            if len(finished) == 3:
                break
        state = await execution.cancel()
    assert finished == ["o0", "o1", "o2"]
    assert state.steps["a"].attempts == 1


async def test_c3_attempts_are_counted_across_restarts(project: Project, clock: FakeClock) -> None:
    """Paused in each backoff, taken up by another engine: the numbers go on and the limit holds."""
    flaky = Flaky(*["transient"] * 9)
    async with windlass.open(tools=[flaky.tool]) as engine:
        execution = await engine.start(plan_of(FAR))
        await waits_for_retry(execution)
        assert (await execution.pause()).status == "paused"
    for attempt in (2, 3):
        clock.advance(3600)
        async with windlass.open(tools=[flaky.tool]) as engine:
            resumed = await engine.resume(execution.id)
            async for event in resumed.events(after=len(project.events(execution.id)) - 1):
                if isinstance(event, ev.StepWaiting):
                    break
            assert (await resumed.pause()).steps["a"].attempts == attempt
    clock.advance(3600)
    async with windlass.open(tools=[flaky.tool]) as engine:
        result = await (await engine.resume(execution.id)).result()
    assert flaky.attempts == [1, 2, 3, 4]
    assert (result["status"], result["steps"][0]["attempts"]) == ("failed", 4)


async def test_c3_a_permission_failure_before_a_restart_is_not_granted_another_refresh(
    project: Project, clock: FakeClock
) -> None:
    flaky = Flaky(*["permission"] * 9)
    async with windlass.open(tools=[flaky.tool]) as engine:
        execution = await engine.start(plan_of(FAR))
        await waits_for_retry(execution)
        await execution.pause()
    clock.advance(3600)
    async with windlass.open(tools=[flaky.tool]) as engine:
        result = await (await engine.resume(execution.id)).result()
    assert (flaky.attempts, flaky.refreshed) == ([1, 2], 1)
    assert result["status"] == "failed"


async def test_c3_an_interrupted_attempt_does_not_count_as_a_failure(project: Project) -> None:
    """It is stopped, not failed: all the retries are still there afterwards."""
    began = asyncio.Event()
    flaky = Flaky()

    @tool(name="flaky")
    async def stubborn(call: Call) -> None:
        flaky.calls.append(call)
        if call.attempt <= 3:
            began.set()
            await asyncio.Event().wait()
        raise ToolError("no", category="transient")

    async with windlass.open(tools=[stubborn]) as engine:
        execution = await engine.start(plan_of())
        for attempt in (1, 2, 3):
            await began.wait()
            began.clear()
            await execution.interrupt()
            await engine.resume(execution.id)
            assert len(flaky.calls) >= attempt
        result = await execution.result()
    assert flaky.attempts == [1, 2, 3, 4, 5, 6, 7]
    assert result["steps"][0]["status"] == "failed"


async def test_c3_a_resource_retry_that_is_due_together_with_others_runs_alone(
    project: Project, clock: FakeClock
) -> None:
    """Both backoffs end while the execution is paused: the transient one does not take the other along."""
    busy: set[str] = set()
    company: list[set[str]] = []

    @tool
    async def fails_as(category: str, call: Call) -> None:
        if call.attempt == 1:
            raise ToolError("no", category=category)
        if call.reduced or "greedy" in busy:
            company.append(set(busy))
        busy.add(call.step)
        await settled(10)
        busy.discard(call.step)

    steps = [
        Step(id="quick", tool="fails_as", with_={"category": "transient"}, retry=FAR),
        Step(id="greedy", tool="fails_as", with_={"category": "resource"}, retry=FAR),
    ]
    async with windlass.open(tools=[fails_as]) as engine:
        execution = await engine.start(Plan(steps=steps))
        waits = 0
        async for event in execution.events():
            waits += isinstance(event, ev.StepWaiting)
            if waits == 2:
                break
        await execution.pause()
        clock.advance(3600)
        result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert company == [set()]
