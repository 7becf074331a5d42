"""The public API as a typed program uses it. `mypy --strict` must accept every line (I5).

Where a `type: ignore` stands, the types must refuse the line: an unused one is an error, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import windlass
from windlass import (
    AgentRequest,
    AgentResult,
    Amount,
    Budget,
    Call,
    Category,
    Effect,
    Engine,
    Execution,
    Failure,
    Health,
    Host,
    Importance,
    Limits,
    Permits,
    Plan,
    PlanInvalid,
    Retry,
    Runner,
    RunRequest,
    Step,
    Tool,
    ToolError,
    Usage,
    WindlassError,
    tool,
)


@tool
def count(text: str) -> int:
    return len(text.split())


def renew() -> None:
    """Credentials, before the one retry after a permission failure."""


@tool(name="slow.count", description="Counts slowly", effect=Effect.NONE, refresh=renew)
async def slow_count(text: str, call: Call) -> dict[str, int]:
    call.output("stdout", f"attempt {call.attempt} in {call.workdir}, reduced {call.reduced} times\n")
    if call.stopping.is_set():
        raise ToolError("stopped", category=Category.TRANSIENT, advice=["try again"], retry_after=1.5)
    return {"words": len(text.split())}


@tool(effects="none")  # type: ignore[call-overload, untyped-decorator]
def misspelt() -> None: ...


PLAN = Plan(
    name="typed",
    inputs={"text": "a b c"},
    limits=Limits(parallel=2),
    steps=(
        Step(id="count", tool="count", with_={"text": "{{ inputs.text }}"}, importance=Importance.CRITICAL),
        Step(id="shell", run=("echo", "hello"), retry=Retry(max=1), effect=Effect.ONCE),
    ),
)


def trust(folder: Path, files: list[Path]) -> bool:
    return folder.name == "mine" and len(files) == 1


async def use(path: Path) -> None:
    async with windlass.open(tools=[count, slow_count], ask=trust, grace=2.0) as engine:
        assert_type(engine, Engine)
        execution = await engine.start(PLAN, {"text": "x"}, workdir=path)
        assert_type(execution, Execution)
        async for event in execution.events():
            assert_type(event.at, float)
        state = await execution.wait()
        for step in state.steps.values():
            assert_type(step.error, Failure | None)
            if step.error is not None:
                assert_type(step.error.category, Category)
                assert_type(step.error.advice, tuple[str, ...])
        assert_type(await execution.result(), dict[str, Any])
        assert_type(await engine.checkpoint(execution.id), Path)
        assert_type(await engine.restore(path), str)
        new = await engine.fork(execution.id, from_step="shell", inputs={"text": "y"})
        resumed = await engine.resume(new, accept_changes=True)
        await resumed.approve("shell", allow=False, note="no")
        await resumed.pause(now=True)
        await resumed.cancel()
        await engine.start(3)  # type: ignore[arg-type]
        await engine.resume()  # type: ignore[call-arg]


class Upper(Tool):
    """A tool of one's own: a name, a description, `execute`, and the hooks that it needs (H1)."""

    name = "upper"
    description = "A text in capitals"
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.NONE

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> str:
        return str(arguments["text"]).upper()

    async def health(self) -> Health:
        return Health(True)


class Lower:
    """The same without the base class: what a tool must have."""

    name = "lower"
    description = "A text in small letters"
    schema: dict[str, Any] = {"type": "object"}

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.NONE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> str:
        return str(arguments["text"]).lower()


class Unfinished(Tool):
    name = "unfinished"
    description = "It does nothing"


async def with_own_tools() -> None:
    Unfinished()  # type: ignore[abstract]
    async with windlass.open(tools=[Upper(), Lower(), count]) as engine:
        assert_type(Upper().terms.timeout, float | None)
        await engine.start(PLAN)
    windlass.open(tools=["upper"])  # type: ignore[list-item]


async def refused(engine: Engine, path: Path) -> int:
    try:
        await engine.start(path)
    except PlanInvalid as invalid:
        return sum(problem.line or 0 for problem in invalid.problems)
    except WindlassError as error:
        assert_type(error.message, str)
        return error.exit_code
    return 0


class Echo:
    """A runner of one's own: one class with a name and five methods (A1)."""

    @property
    def name(self) -> str:
        return "echo"

    async def available(self) -> Health:
        return Health(True, "always here")

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        return Amount(usd=0.0, tokens=prompt)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        host.text(request.task)
        return AgentResult(request.task, usage=Usage(tokens_in=1, tokens_out=1, usd=0.0, source="runtime"))

    async def interrupt(self, request: str) -> None:
        """Nothing to interrupt."""

    async def close(self) -> None:
        """Nothing to close."""


async def with_own_runner() -> None:
    runner: Runner = Echo()
    step = Step(id="say", prompt="hello", runtime="echo", budget=Budget(usd=1), permissions=Permits(mode="deny"))
    async with windlass.open(runners=[runner]) as engine:
        execution = await engine.start(Plan(name="own", steps=(step,), budget=Budget(tokens=1000)))
        assert_type(execution, Execution)
        await engine.allow_budget(execution.id, usd=2.0, by="me")


async def request(engine: Engine) -> Execution:
    asked = RunRequest(task="Sum it up", role="developer", budget=0.5, on_overrun="ask", files=["report.md"])
    return await asked.start(engine)
