"""Tools of one's own as classes: derived from `Tool`, or with the members of one (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Effect, Plan, Step, Tool, ToolError
from windlass.errors import Category, UsageError
from windlass.ports import Estimate, Terms, as_tool
from windlass.tools import built_in
from windlass.tools.built_in import Registry

if TYPE_CHECKING:
    from conftest import Project


class Plain(Tool):
    name, description = "plain", "It has nothing but what is needed"
    closed = 0

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        return dict(arguments)

    async def close(self) -> None:
        self.closed += 1


class Duck:
    """Not derived from anything."""

    name, description, schema = "duck", "It has the members of a tool", {"type": "object"}
    terms = Terms(timeout=3.0)
    closed = renewed = 0

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.NONE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return ["`n` is missing"] if "n" not in arguments else []

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        return Estimate(seconds=2.0)

    async def refresh(self) -> None:
        self.renewed += 1

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if not self.renewed:
            raise ToolError("the key is too old", category=Category.PERMISSION)
        return arguments["n"]

    def close(self) -> None:
        self.closed += 1


async def use(tool: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    plan = Plan(steps=[Step(id="a", tool=tool.name, with_=arguments, retry={"delay": 0.01})])
    async with windlass.open(tools=[tool]) as engine:
        return (await (await engine.start(plan)).result())["steps"][0]


async def test_h1_a_tool_that_overrides_no_hook_works_and_is_closed_with_the_engine(project: Project) -> None:
    tool = Plain()
    assert (await use(tool, {"n": 1}))["output"] == {"n": 1}
    assert tool.closed == 1
    assert (tool.effect({}), tool.validate({}), tool.circuit({}), await tool.health()) == (
        Effect.ONCE,
        [],
        "plain",
        None,
    )


@pytest.mark.parametrize(("hangs", "why"), [(False, "RuntimeError('no more')"), (True, "took longer than")])
async def test_h1_a_tool_that_cannot_be_closed_is_a_warning_and_the_others_are_closed(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hangs: bool, why: str
) -> None:
    class Stuck(Plain):
        name = "stuck"

        async def close(self) -> None:
            if hangs:
                await asyncio.Event().wait()
            raise RuntimeError("no more")

    monkeypatch.setattr(built_in, "CLOSING", 0.01)
    tool = Plain()
    async with windlass.open(tools=[Stuck(), tool]):
        pass
    assert tool.closed == 1
    assert f"the tool stuck could not be closed: {'it ' * hangs}{why}" in caplog.text


async def test_h1_an_object_with_the_members_of_a_tool_is_one_with_the_hooks_that_it_has(project: Project) -> None:
    duck = Duck()
    assert (await use(duck, {"n": 1}))["output"] == 1
    assert (duck.renewed, duck.closed) == (1, 0)
    adapted = as_tool(duck)
    assert (adapted.terms.timeout, adapted.estimate({}).seconds, adapted.circuit({})) == (3.0, 2.0, "duck")
    assert adapted.validate({}) == ["`n` is missing"]
    assert as_tool(adapted) is adapted


def test_h1_two_tools_of_one_name_are_refused_and_a_built_in_one_is_not_built_for_that(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two tools named 'plain'"):
        Registry([Plain(), Plain()])
    with pytest.raises(UsageError, match="two tools named 'shell'"):
        windlass.open(tmp_path / "home", tools=[_named("shell")], make=False)


async def test_h1_a_tool_of_ones_own_takes_the_place_of_one_for_the_web(project: Project) -> None:
    async with windlass.open(tools=[_named("http.get")]) as engine:
        assert engine.attempt_runner.tools.get("http.get").description == Plain.description


def _named(name: str) -> Tool:
    tool = Plain()
    tool.name = name
    return tool
