"""What tools say that they give back is what they give back (G2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import pytest

import windlass
from windlass import Plan, Step, tool
from windlass.schemas import misfits, unusable
from windlass.tools.files.tools import file_tools
from windlass.tools.function import FunctionTool
from windlass.tools.shell import Shell

if TYPE_CHECKING:
    from conftest import Project

RETURNS: dict[str, Any] = {built_in.name: built_in.returns for built_in in [Shell(), *file_tools()]}


async def outputs(*steps: Step, tools: tuple[FunctionTool, ...] = ()) -> list[Any]:
    """What the steps gave, one after the other."""
    plan = Plan(steps=[step.model_copy(update={"id": f"s{n}"}) for n, step in enumerate(steps)], limits={"parallel": 1})
    async with windlass.open(tools=tools, grace=0.2) as engine:
        result = await (await engine.start(plan)).result()
    assert result["status"] == "completed", result
    return [step["output"] for step in result["steps"]]


def use(name: str, **arguments: Any) -> Step:
    return Step(id="a", tool=name, with_=arguments)


def test_g2_every_built_in_tool_says_what_it_returns() -> None:
    assert set(RETURNS) == {built_in.name for built_in in [Shell(), *file_tools()]}
    for name, schema in RETURNS.items():
        assert unusable(schema) == [], name


CHANGES = [
    {"do": "write", "path": "b.txt", "content": "x"},
    {"do": "edit", "path": "b.txt", "edits": [{"old": "x", "new": "y"}]},
    {"do": "move", "from": "b.txt", "to": "c.txt"},
    {"do": "delete", "path": "c.txt"},
    {"do": "delete", "path": "none", "missing_ok": True},
]


@pytest.mark.parametrize(
    "step",
    [
        use("shell", line="echo out; echo err >&2"),
        use("shell", line="exit 3", ok=[3]),
        use("shell", argv=["seq", "1000"], max_output=10),
        use("files.read", path="a.txt"),
        use("files.read", path="a.txt", max_bytes=2, encoding="base64"),
        use("files.list"),
        use("files.list", recursive=True, max_entries=1),
        use("files.write", path="new/b.txt", content="ü"),
        use("files.write", path="a.txt", content="more", mode="append"),
        use("files.edit", path="a.txt", edits=[{"old": "l", "new": "L", "all": True}, {"old": "h", "new": "H"}]),
        use("files.move", **{"from": "a.txt", "to": "b.txt"}),
        use("files.move", **{"from": "sub", "to": "sub2"}),
        use("files.delete", path="a.txt"),
        use("files.delete", path="link"),
        use("files.delete", path="none", missing_ok=True),
        use("files.apply", changes=CHANGES),
    ],
    ids=lambda step: f"{step.tool} {dict(step.with_)}"[:60],
)
async def test_g2_the_result_of_a_built_in_tool_fits_its_schema_and_names_nothing_else(
    project: Project, step: Step
) -> None:
    project.file("a.txt", "hello\n")
    project.file("sub/inner.txt", "x")
    (project.path / "link").symlink_to("a.txt")
    (output,) = await outputs(step)
    schema = RETURNS[str(step.tool)]
    assert misfits(schema, output) == []
    assert set(output) == set(schema["properties"]), "neither more nor less than it says"
    assert misfits(schema, {**output, "more": 1}), "the schema is not one that fits everything"


# ── your own functions ───────────────────────────────────────────────────────────────────────────────


class Colour(StrEnum):
    RED = "red"


@dataclass
class Spot:
    colour: Colour
    on: date
    size: tuple[int, int] = (1, 2)


@dataclass
class Row:
    name: str
    next: Row | None = None


class Opaque:
    pass


def functions() -> list[FunctionTool]:
    @tool
    def number() -> int:
        return 7

    @tool
    async def later() -> float | None:
        return 2.5

    @tool
    def spot() -> list[Spot]:
        return [Spot(Colour.RED, date(2026, 1, 2))]

    @tool
    def row() -> Row:
        return Row("a", Row("b"))

    @tool
    def by_number() -> dict[int, Literal["x"]]:
        return {1: "x"}

    @tool
    def nothing() -> None:
        return None

    return [number, later, spot, row, by_number, nothing]


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.name)
async def test_g2_a_function_says_what_it_returns_by_its_annotation(project: Project, function: FunctionTool) -> None:
    assert function.returns is not None
    assert unusable(function.returns, of_arguments=False) == []
    (output,) = await outputs(use(function.name), tools=(function,))
    assert misfits(function.returns, output) == []
    assert misfits(function.returns, [["neither"]])


def test_g2_a_function_whose_annotation_gives_no_schema_says_nothing() -> None:
    @tool
    def silent():  # type: ignore[no-untyped-def]
        return 1

    @tool
    def anything() -> Any:
        return 1

    @tool
    def opaque() -> Opaque:
        return Opaque()

    @tool
    def some() -> list[Opaque]:
        return []

    assert [function.returns for function in (silent, anything, opaque, some)] == [None] * 4
