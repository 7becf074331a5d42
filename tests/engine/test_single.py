"""One use of a tool, or one program, as an execution: it gets the given values as they are, or is refused (G2, H1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Engine, Plan, tool
from windlass.engine.single import plan_of_program, plan_of_tool, tool_named
from windlass.errors import NotFound, PlanInvalid, UsageError
from windlass.testing import Simulation

if TYPE_CHECKING:
    from conftest import Project

VALUES: dict[str, Any] = {
    "text": "plain",
    "template": "{{ steps.gone.output }}",
    "statement": '{% for x in y %}"quoted"\\n{% endfor %}',
    "comment": "{# a note #}\r\nand } a rest",
    "all marks": "{{ a }} {% b %} {# c #}",
    "path": "C:\\new {folder}",
    "list": ["{{ a }}", 1, 2.5, None, True, {"inner": "{{ b }}"}],
}


@tool(name="test.echo")
async def echo(value: Any, times: int = 1) -> Any:
    """Give it back."""
    return [value] * times


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with windlass.open(tools=[echo]) as engine:
        yield engine


async def output(engine: Engine, plan: Plan) -> Any:
    (step,) = (await (await engine.start(plan)).result())["steps"]
    assert step["status"] == "completed", step["error"]
    return step["output"]


async def test_h1_a_tool_that_is_used_once_gets_exactly_the_arguments_that_were_given(engine: Engine) -> None:
    plan = plan_of_tool(engine, "test.echo", {"value": VALUES, "times": 2})
    assert plan.name == "test.echo"
    assert await output(engine, plan) == [VALUES, VALUES]


async def test_h1_arguments_that_the_tool_cannot_take_are_refused_before_anything_is_written(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"test.echo cannot take these arguments:\n  .*`?value") as refused:
        plan_of_tool(engine, "test.echo", {"valu": 1})
    assert refused.value.advice == ("see its arguments: windlass tools show test.echo",)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match=r"the arguments of test\.echo are nested too deep"):
        plan_of_tool(engine, "test.echo", {"value": deep})


async def test_h1_a_merge_and_an_agent_cannot_be_run_as_a_tool(engine: Engine) -> None:
    with pytest.raises(UsageError, match="`merge` cannot be run as a tool"):
        plan_of_tool(engine, "merge", {})
    with pytest.raises(UsageError, match="an agent cannot be run as a tool: it needs a role") as refused:
        plan_of_tool(engine, "agent", {})
    assert refused.value.advice[0] == "windlass run --task TEXT"


async def test_h1_a_tool_that_is_not_there_is_not_found_and_the_nearest_name_is_told(engine: Engine) -> None:
    assert tool_named(engine, "test.echo").name == "test.echo"
    with pytest.raises(NotFound, match=r"there is no tool named 'test\.ecko'") as refused:
        plan_of_tool(engine, "test.ecko", {})
    assert refused.value.advice == ("did you mean 'test.echo'?",)
    with pytest.raises(NotFound) as refused:
        plan_of_tool(engine, "##", {})
    assert refused.value.advice == ("list all: windlass tools",)


def given_to(plan: Plan) -> Any:
    """The arguments of the one attempt that the plan starts."""
    run = Simulation(plan)
    run.start()
    (started,) = run.performed
    return started.input


def test_g2_a_program_that_is_run_once_gets_its_values_and_what_it_may_call_and_use() -> None:
    source = "return args"
    assert given_to(plan_of_program(source, VALUES, ["files.*", "http.get"], {"wall": "5s"})) == {
        "source": source,
        "args": VALUES,
        "grants": ["files.*", "http.get"],
        "limits": {"wall": 5.0},
    }
    assert given_to(plan_of_program(source, grants=[]))["grants"] == [], "it may call nothing"
    assert given_to(plan_of_program(source)) == {"source": source}, "it may call every tool"


def test_g2_a_program_that_cannot_run_is_refused_with_its_problems() -> None:
    with pytest.raises(PlanInvalid, match=r"steps\.gone"):
        plan_of_program("return steps.gone.output")
    with pytest.raises(PlanInvalid, match="limits"):
        plan_of_program("return 1", limits={"wall": "for ever"})
