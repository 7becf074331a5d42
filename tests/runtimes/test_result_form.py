"""K3: schemas of `output` as runtimes and model APIs take them, and the `cli` runtime that asks an API for data."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeHost
from model_api_world import READ, scripted

from windlass.runners.model_api import target, wire
from windlass.runners.result_form import is_closed, tool_form
from windlass.schemas import misfits
from windlass.testing import Reply

CLOSED = {
    "type": "object",
    "required": ["tasks"],
    "additionalProperties": False,
    "properties": {"tasks": {"type": "array", "items": {"type": "string"}}},
}
OPEN = {**CLOSED, "additionalProperties": True}
FITS = '{"tasks": ["a"]}'


def obj(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


@pytest.mark.parametrize(
    ("form", "kept"),
    [
        (CLOSED, CLOSED),
        (obj(**{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "x-y": 1}), obj()),
        (obj(anyOf=[{"required": ["a"]}], allOf=[{}], oneOf=[{}], **{"not": {}}), obj()),
        (
            obj(properties={"a": {"oneOf": [{"type": "string", "format": "date"}, {"const": 1}]}}),
            obj(properties={"a": {"anyOf": [{"type": "string"}, {"const": 1}]}}),
        ),
        (obj(properties={"pattern": {"pattern": "^a"}}), obj(properties={"pattern": {}})),
        (obj(properties={"a": {"items": [{}, {}]}}), obj(properties={"a": {}})),
        (
            obj(properties={"a": {"prefixItems": [{"type": "number"}], "items": False}}),
            obj(properties={"a": {}}),
        ),
        (obj(patternProperties={"^x-": {"type": "string"}}, additionalProperties=False), obj()),
        (obj(**{"$defs": {"a/b": {}}, "items": {"$ref": "#/$defs/a~1b"}}),) * 2,
        (obj(items={"$ref": "#"}),) * 2,
        (obj(items={"$ref": "#/x-own/a"}, **{"x-own": {"a": {}}}), None),
        (obj(items={"$ref": "other.json"}), None),
        ({"type": "array"}, None),
        ({"properties": {}}, None),
        (None, None),
    ],
)
def test_k3_a_tool_gets_the_part_of_a_schema_that_every_validator_knows(
    form: dict[str, Any] | None, kept: dict[str, Any] | None
) -> None:
    assert tool_form(form) == kept


NUMBER, TEXT = {"type": "number"}, {"type": "string"}
KEYWORDS: list[tuple[dict[str, list[Any]], list[Any]]] = [
    (
        {"prefixItems": [[NUMBER], [NUMBER, TEXT]], "items": [True, False, NUMBER, TEXT]},
        [[], [1], [1, 2], [1, "x"], ["x"]],
    ),
    (
        {
            "properties": [{"a": NUMBER}],
            "patternProperties": [{"^a": NUMBER}, {"^a": TEXT, "b": NUMBER}],
            "additionalProperties": [True, False, TEXT],
        },
        [{}, {"a": 1}, {"ab": 1}, {"ab": "x"}, {"b": 1}, {"b": "x"}, {"a": 1, "c": "x"}],
    ),
]


@pytest.mark.parametrize(("keywords", "values"), KEYWORDS, ids=["list", "object"])
def test_k3_a_tool_takes_all_data_that_the_whole_schema_takes(
    keywords: dict[str, list[Any]], values: list[Any]
) -> None:
    """Each combination of the keywords, each of them also left out."""
    for chosen in product(*([(), *((name, one) for one in ones)] for name, ones in keywords.items())):
        form = obj(properties={"a": dict(filter(None, chosen))})
        loose = tool_form(form)
        assert loose is not None
        fitting = [value for value in values if not misfits(form, {"a": value})]
        assert not [value for value in fitting if misfits(loose, {"a": value})], form


def test_k3_a_schema_is_closed_if_every_object_in_it_is() -> None:
    assert is_closed(CLOSED)
    assert not is_closed(OPEN)
    assert not is_closed({**CLOSED, "properties": {"a": obj()}})
    assert not is_closed({**CLOSED, "$defs": {"a": {"anyOf": [obj(), {"type": "null"}]}}})
    assert not is_closed({**CLOSED, "properties": {"a": {"enum": [1]}}})
    assert not is_closed({**CLOSED, "properties": {"a": {"type": ["object", "null"]}}})
    assert not is_closed({**CLOSED, "patternProperties": {"^x-": {"type": "string"}}})


NO_FORM_OF_ANTHROPIC = [
    {"type": ["string", "null"]},
    True,
    {"type": "array", "items": True},
    {"type": "array", "items": False},
    {"type": "array", "items": [TEXT]},
    {"type": "array", "prefixItems": [TEXT], "items": TEXT},
    {"anyOf": [TEXT, True]},
]


@pytest.mark.parametrize("part", NO_FORM_OF_ANTHROPIC, ids=str)
async def test_k3_a_schema_that_anthropics_client_cannot_give_is_left_to_the_prompt(tmp_path: Path, part: Any) -> None:
    form = obj(additionalProperties=False, properties={"n": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": part}})
    async with scripted("anthropic", tmp_path, [Reply.say("{}")]) as (world, model):
        result = await world.run(form=form)
    assert (result.success, result.output, result.adjustments) == (True, "{}", ())
    assert ["output_config" in request.body for request in model.requests] == [False]


async def test_k3_anthropics_api_holds_the_model_to_a_closed_schema(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say(FITS), Reply.say(FITS)]) as (world, model):
        closed = await world.run(FakeHost(tools=[READ]), form=CLOSED)
        await world.run(FakeHost(tools=[READ]), form=OPEN)
    assert closed.output == FITS
    config = [request.body.get("output_config", {}).get("format") for request in model.requests]
    assert config == [{"type": "json_schema", "schema": CLOSED}, None]
    assert all(request.body["tools"] for request in model.requests)


@pytest.mark.parametrize("form", [CLOSED, OPEN])
async def test_k3_openais_api_gets_the_schema_and_other_servers_do_not(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted("openai", tmp_path, [Reply.say(FITS), Reply.say(FITS)]) as (world, model):
        await world.run(FakeHost(tools=[READ]), form=form)
        monkeypatch.setattr(target, "ADDRESSES", {**target.ADDRESSES, "openai": world.url})
        held = await world.run(FakeHost(tools=[READ]), form=form)
    assert held.output == FITS
    other, own = (request.body.get("response_format") for request in model.requests)
    assert other is None
    assert own["json_schema"]["schema"] == form
    assert own["json_schema"]["strict"] is (form is CLOSED)


async def test_k3_an_api_that_refuses_a_schema_is_asked_without_it(tmp_path: Path) -> None:
    refusal = Reply.error(400, "output_config.format.schema: too complex")
    async with scripted("anthropic", tmp_path, [refusal, Reply.say(FITS)]) as (world, model):
        result = await world.run(form=CLOSED)
    assert (result.success, result.output) == (True, FITS)
    assert ["output_config" in request.body for request in model.requests] == [True, False]
    assert "does not take the schema" in result.adjustments[0]


async def test_k3_a_request_that_was_refused_for_its_schema_is_no_turn(tmp_path: Path) -> None:
    refusal = Reply.error(400, "output_config.format.schema: too complex")
    async with scripted("anthropic", tmp_path, [refusal, Reply.say(FITS)]) as (world, _):
        result = await world.run(form=CLOSED, max_turns=1)
    assert (result.success, result.output, result.metadata["turns"]) == (True, FITS, 1)


async def test_k3_a_client_that_fails_over_a_schema_is_asked_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "is_closed", lambda form: True)
    form = {**CLOSED, "properties": {"tasks": {"type": ["array", "null"]}}}
    async with scripted("anthropic", tmp_path, [Reply.say(FITS)]) as (world, model):
        result = await world.run(form=form, max_turns=1)
    assert (result.success, result.output) == (True, FITS)
    assert ["output_config" in request.body for request in model.requests] == [False]
    assert "does not take the schema" in result.adjustments[0]


async def test_k3_another_refusal_is_a_failure_as_ever(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.error(400, "prompt is empty")]) as (world, model):
        result = await world.run(form=CLOSED)
    assert not result.success
    assert len(model.requests) == 1
