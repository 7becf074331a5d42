"""A lone template keeps its type, and is text where a tool takes text alone; what stands around it stays (B5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step, tool
from windlass.engine.as_text import nulls_for_text, with_texts
from windlass.plan.template import compile_value

if TYPE_CHECKING:
    from conftest import Project


@tool
def give(value: Any) -> Any:
    return value


@tool
def note(text: str, labels: dict[str, str] | None = None, times: int = 1) -> str:
    return f"{text!r} {labels!r} {times!r}"


async def outcome(value: Any, *steps: Step) -> dict[str, dict[str, Any]]:
    plan = Plan(
        name="types", inputs={"v": value}, steps=[Step(id="v", tool="give", with_={"value": "{{ inputs.v }}"}), *steps]
    )
    async with windlass.open(tools=[give, note]) as engine:
        result = await (await engine.start(plan)).result()
    return {step["id"]: step for step in result["steps"]}


@pytest.mark.parametrize(("value", "text"), [(6, "6"), (1.5, "1.5"), (True, "true"), ("a", "a"), (-0.0, "-0.0")])
async def test_b5_a_scalar_becomes_text_where_a_tool_takes_text(project: Project, value: Any, text: str) -> None:
    steps = await outcome(
        value,
        Step(id="write", tool="files.write", with_={"path": "a.txt", "content": "{{ steps.v.output }}"}),
        Step(id="note", tool="note", with_={"text": "{{ steps.v.output }}", "labels": {"l": "{{ steps.v.output }}"}}),
        Step(id="run", run=["echo", "{{ steps.v.output }}"], with_={"env": {"X": "{{ steps.v.output }}"}}),
    )
    assert (project.path / "a.txt").read_text() == text
    assert steps["note"]["output"] == f"{text!r} {{'l': {text!r}}} 1"
    assert steps["run"]["output"]["stdout"] == f"{text}\n"


async def test_b5_null_for_text_is_an_error_that_says_so(project: Project) -> None:
    steps = await outcome(None, Step(id="note", tool="note", with_={"text": "{{ steps.v.output }}"}))
    assert "`text` needs text, and {{ steps.v.output }} is null" in steps["note"]["error"]["message"]


async def test_b5_a_number_of_the_plan_itself_stays_a_mistake(project: Project) -> None:
    plan = Plan(
        name="types", inputs={"v": 2}, steps=[Step(id="a", tool="note", with_={"text": 5, "times": "{{ inputs.v }}"})]
    )
    async with windlass.open(tools=[note]) as engine:
        result = await (await engine.start(plan)).result()
    assert "text" in result["steps"][0]["error"]["message"]


TEXTS: dict[str, Any] = {
    "{{ v }}": [1],
    "{{ v }}\n": "[1]\n",
    " {{ v }}": " [1]",
    "{{ v | length }}\n": "1\n",
    "{{ v | length }}": 1,
    "{{- v -}}": [1],
    "a {{ v }}\n\n": "a [1]\n\n",
}


@pytest.mark.parametrize("template", TEXTS)
def test_b5_text_around_a_template_is_kept(template: str) -> None:
    assert compile_value(template).render({"v": [1]}) == TEXTS[template]


SCHEMAS: dict[str, tuple[Any, Any]] = {
    "text": ({"type": "string"}, "3"),
    "text or null": ({"type": ["string", "null"]}, "3"),
    "any of text and null": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "3"),
    "text or a number": ({"type": ["string", "integer"]}, 3),
    "one of some texts": ({"enum": ["3", "4"]}, "3"),
    "a reference to text": ({"$ref": "#/$defs/t"}, "3"),
    "a reference to nowhere": ({"$ref": "#/$defs/no/where"}, 3),
    "anything": ({}, 3),
    "a number": ({"type": "number"}, 3),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_b5_only_a_schema_that_takes_text_alone_makes_text(kind: str) -> None:
    inner, expected = SCHEMAS[kind]
    schema = {"type": "object", "properties": {"a": inner, "b": {"items": inner}}, "$defs": {"t": {"type": "string"}}}
    given = {"a": 3, "b": [3, 3], "c": 3}
    found = with_texts(schema, {"a": "{{ x }}", "b": ["{{ x }}", 3], "c": "{{ x }}"}, given)
    assert found == {"a": expected, "b": [expected, 3], "c": 3}
    assert with_texts(schema, {"a": 3, "b": "{{ x }}", "c": 3}, given) == {"a": 3, "b": [expected, expected], "c": 3}


def test_b5_text_is_made_at_any_place_that_the_schema_describes() -> None:
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "rows": {"items": {"allOf": [{"$ref": "#/$defs/a~1b/properties/row"}]}},
            "either": {"oneOf": [{"properties": {"x": text}}, {"properties": {"y": text}}]},
            "null": {"type": ["string", "null"]},
        },
        "additionalProperties": text,
        "$defs": {"a/b": {"properties": {"row": {"additionalProperties": text}}}},
    }
    written = {
        "rows": [{"n": "{{ x }}", "m": 2}, "{{ x }}"],
        "either": {"x": "{{ x }}", "y": "{{ x }}", "z": "{{ x }}"},
        "null": "{{ x }}",
        "own": "{{ x }}",
        "plain": 7,
    }
    given = {
        "rows": [{"n": 1, "m": 2}, {"n": 3}, {"n": 4}],
        "either": {"x": 1, "y": 2, "z": 3},
        "null": None,
        "own": 5,
        "plain": 7,
    }
    assert with_texts(schema, written, given) == {
        "rows": [{"n": "1", "m": 2}, {"n": "3"}, {"n": 4}],
        "either": {"x": "1", "y": "2", "z": 3},
        "null": None,
        "own": "5",
        "plain": 7,
    }


def test_b5_what_lies_deeper_than_32_levels_stays_as_it_is() -> None:
    schema = {"type": "string", "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}

    def nested(levels: int, inner: Any) -> Any:
        return {"a": [nested(levels - 2, inner)]} if levels else inner

    assert with_texts(schema, "{{ x }}", nested(32, 3)) == nested(32, "3")
    assert with_texts(schema, "{{ x }}", [nested(32, 3)]) == [nested(32, 3)]


def test_b5_only_null_from_a_template_is_told_where_text_is_needed() -> None:
    text, either = {"type": "string"}, {"type": ["string", "null"]}
    schema = {"properties": {"told": text, "own": text, "given": text, "either": either}}
    written = {"told": "{{ x }}", "own": None, "given": "{{ y }}", "either": "{{ x }}"}
    given = {"told": None, "own": None, "given": "z", "either": None}
    assert nulls_for_text(schema, written, given) == ["`told` needs text, and {{ x }} is null"]


def test_b5_a_strangers_schema_with_a_web_of_references_is_read_once() -> None:
    levels = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 4} for n in range(14)}
    last = {"properties": {"deeper": {"$ref": "#/$defs/l0"}}, "type": "string"}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": {**levels, "l14": last}}
    assert with_texts(schema, {"a": "{{ x }}"}, {"a": {"deeper": {"deeper": 3}}}) == {"a": {"deeper": {"deeper": "3"}}}
    assert with_texts({"$ref": "#"}, {"a": "{{ x }}"}, {"a": 3}) == {"a": 3}


@pytest.mark.parametrize("given", ["['a'] | map('upper')", "steps.v.output | from_json"])
async def test_b5_a_value_that_no_journal_can_hold_does_not_end_the_execution(project: Project, given: str) -> None:
    steps = await outcome(
        '["A", "\\ud800"]' if "from_json" in given else "",
        Step(id="use", tool="give", with_={"value": f"{{{{ {given} }}}}"}, needs="v"),
        Step(id="each", foreach=given, tool="give", with_={"value": "{{ item }}"}, needs="v"),
        Step(id="ids", tool="give", with_={"value": "{{ steps }}"}),
    )
    assert steps["ids"]["output"] == ["v", "use", "each", "ids"]
    if "from_json" in given:
        assert "half a character" in steps["use"]["error"]["message"]
        assert "half a character" in steps["each"]["error"]["message"]
    else:
        assert steps["use"]["output"] == steps["each"]["output"] == ["A"]


@pytest.mark.parametrize("name", ["__class__", "_output", "__getitem__", "items", "__proto__", "not"])
async def test_b5_whatever_a_step_or_an_input_may_be_called_it_can_be_read(project: Project, name: str) -> None:
    plan = Plan(
        inputs={name: "in"},
        steps=[
            Step(id=name, tool="give", with_={"value": "out"}),
            Step(id="sole", tool="give", with_={"value": f"{{{{ steps.{name}.output }}}}"}),
            Step(id="text", tool="give", with_={"value": f"{{{{ inputs.{name} }}}} {{{{ steps.{name}.output }}}}"}),
            Step(id="when", tool="give", with_={"value": 1}, when=f"steps.{name}.status == 'completed'"),
            Step(id="program", code=f"return [inputs.{name}, steps.{name}.output]"),
        ],
    )
    async with windlass.open(tools=[give]) as engine:
        result = await (await engine.start(plan)).result()
    assert [step["output"] for step in result["steps"][1:]] == ["out", "in out", 1, ["in", "out"]]
