"""JSON Schema in plain words: what is said of values that do not fit, and which schemas are refused (G3)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE

from windlass.schemas import misfits, unusable
from windlass.schemas.patterns import BadPattern, read_pattern

ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number", "multipleOf": 0.5},
        "price": {"multipleOf": 0.01},
        "mode": {"enum": ["read", "write", None]},
        "exact": {"type": ["boolean", "null"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "uniqueItems": True},
        "slug": {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
        "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        "kind": {"const": "v1"},
        "shape": {
            "oneOf": [
                {"type": "object", "properties": {"side": {"type": "number"}}, "required": ["side"]},
                {"type": "string"},
            ]
        },
        "labels": {"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {
        "edit": {
            "type": "object",
            "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["old"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"path": "a"}, []),
        ({"path": "a", "count": 9, "share": 1.5, "mode": None, "exact": None, "note": None, "kind": "v1"}, []),
        ({"path": "a", "tags": ["a", "b"], "slug": "a-b-c", "pair": [1, "x"], "labels": {"x-y": "z"}}, []),
        ({"path": "a", "count": 2.0}, []),
        ({"path": "a", "price": 19.99}, []),
        ({"path": "a", "price": 19.995}, ["'price': must be a multiple of 0.01, found the number 19.995"]),
        ({}, ["argument 'path' is missing"]),
        ([], ["expected a mapping, found an empty list"]),
        (None, ["expected a mapping, found null"]),
        ({"path": 3}, ["'path': expected text, found the number 3"]),
        ({"path": ""}, ["'path': must have at least 1 characters, found the text ''"]),
        ({"path": "a", "pth": "b"}, ["'pth' is not an argument; did you mean 'path'?"]),
        ({"path": "a", "count": "x"}, ["'count': expected a whole number, found the text 'x'"]),
        ({"path": "a", "count": True}, ["'count': expected a whole number, found true"]),
        ({"path": "a", "count": 10}, ["'count': must be at most 9, found the number 10"]),
        ({"path": "a", "share": 0.3}, ["'share': must be a multiple of 0.5, found the number 0.3"]),
        (
            {"path": "a", "mode": "append"},
            ["'mode': expected one of 'read', 'write', null, found the text 'append'"],
        ),
        ({"path": "a", "exact": 1}, ["'exact': expected true or false or null, found the number 1"]),
        ({"path": "a", "note": []}, ["'note': expected text or null, found an empty list"]),
        ({"path": "a", "tags": ["a", 1]}, ["'tags[1]': expected text, found the number 1"]),
        ({"path": "a", "tags": ["a", "a"]}, ["'tags': must not have the same entry twice, found a list of 2"]),
        ({"path": "a", "tags": list("abcd")}, ["'tags': must have at most 3 entries, found a list of 4"]),
        ({"path": "a", "slug": "A"}, ["'slug': must look like '^[a-z]+(-[a-z]+)*$', found the text 'A'"]),
        ({"path": "a", "edits": [{}]}, ["'edits[0]': 'old' is missing"]),
        (
            {"path": "a", "edits": [{"old": "", "odl": ""}]},
            ["'edits[0].odl' is not known here; did you mean 'old'?"],
        ),
        ({"path": "a", "pair": [1, "x", 2]}, ["'pair[2]': the number 2 is not allowed here"]),
        ({"path": "a", "kind": "v2"}, ["'kind': expected the text 'v1', found the text 'v2'"]),
        ({"path": "a", "shape": {"side": "x"}}, ["'shape.side': expected a number, found the text 'x'"]),
        ({"path": "a", "shape": 5}, ["'shape': expected a mapping or text, found the number 5"]),
        ({"path": "a", "labels": {"y": "z"}}, ["'labels.y' is not known here; there are none"]),
        ({"path": "a", "labels": {"x-y": 1}}, ["'labels.x-y': expected text, found the number 1"]),
    ],
    ids=str,
)
def test_g3_what_does_not_fit_is_said_in_plain_words_with_its_place(value: Any, said: list[str]) -> None:
    assert misfits(ARGUMENTS, value) == said


def test_g3_every_mistake_is_told_and_never_more_than_twenty_nor_at_length() -> None:
    several = misfits(ARGUMENTS, {"pth": 1, "count": "x", "tags": [1]})
    assert len(several) == 4
    many = misfits({"type": "object", "additionalProperties": {"type": "string"}}, {str(n): n for n in range(1000)})
    assert len(many) == 20
    name = "n" * 5000
    assert all(len(said) <= 300 for said in misfits(ARGUMENTS, {name: name, "path": name * 10, "count": name}))


def test_g3_lists_and_mappings_of_other_kinds_are_taken_for_what_they_mean() -> None:
    assert misfits(MappingProxyType(ARGUMENTS), MappingProxyType({"path": "a", "tags": ("b", "c")})) == []
    assert misfits(ARGUMENTS, MappingProxyType({"path": "a", "tags": ("b", 1)})) == [
        "'tags[1]': expected text, found the number 1"
    ]


def nested(levels: int, leaf: Any = None) -> Any:
    value: Any = leaf
    for _ in range(levels):
        value = [value]
    return value


TREE = {
    "type": "object",
    "properties": {"child": {"$ref": "#"}, "tags": {"type": "array", "uniqueItems": True}},
    "additionalProperties": False,
}


def test_g3_a_value_ten_thousand_levels_deep_is_one_complaint() -> None:
    for value in (nested(10_000), {"tags": nested(10_000)}):
        (said,) = misfits(TREE, value)
        assert "levels deep" in said
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"child": deep}
    (said,) = misfits(TREE, deep)
    assert "levels deep" in said


def test_g3_a_recursive_schema_checks_a_value_of_bearable_depth() -> None:
    deep: dict[str, Any] = {"child": 5}
    for _ in range(40):
        deep = {"child": deep}
    (said,) = misfits(TREE, deep)
    assert said.endswith("expected a mapping, found the number 5")


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 10**5000, {1: 2}, {"a": object()}, {"a": b"x"}, "\ud800", {"\ud800": 1}],
    ids=["nan", "inf", "long", "name", "object", "bytes", "surrogate", "surrogate name"],
)
def test_g3_what_is_no_json_is_a_complaint_and_no_error(value: Any) -> None:
    assert misfits(ARGUMENTS, value)
    for inner in ({"multipleOf": 0.1}, {"uniqueItems": True}):
        assert isinstance(misfits({"type": "object", "properties": {"a": inner}}, {"a": value}), list)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_g3_no_json_value_makes_it_raise(value: Any) -> None:
    for where in (value, {"path": value}, dict.fromkeys(ARGUMENTS["properties"], value)):
        assert all(isinstance(said, str) and len(said) <= 300 for said in misfits(ARGUMENTS, where))


@given(JSON)
def test_g3_no_json_value_as_a_schema_makes_it_raise(value: Any) -> None:
    for schema in (value, {"type": "object", "properties": value}, {"type": "object", "properties": {"a": value}}):
        reasons = unusable(schema)
        assert all(isinstance(said, str) and len(said) <= 300 for said in reasons)
        if isinstance(schema, dict):
            misfits(schema, {"a": value})


# ── work without end ─────────────────────────────────────────────────────────────────────────────────


def test_g3_a_web_of_refs_that_asks_for_two_to_the_sixty_checks_is_given_up() -> None:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(14)}
    wide = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 20} for n in range(14)}
    for web in (defs, wide):
        schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**web, "d14": {"const": 1}}}
        assert unusable(schema) == []
        assert misfits(schema, {"a": 2})
    (said,) = misfits(schema, {"a": 2})
    assert "could not be checked" in said


def test_g3_a_large_value_and_a_schema_of_many_forms_come_to_an_end() -> None:
    forms = [{"type": "string", "maxLength": n} for n in range(500)]
    schema = {"type": "object", "properties": {"a": {"anyOf": forms}, "b": {"uniqueItems": True}}}
    assert unusable(schema) == []
    assert misfits(schema, {"a": list(range(100_000))})
    assert misfits(schema, {"a": "x" * 1_000_000})
    assert misfits(schema, {"b": [{"n": n} for n in range(20_000)]}) == []


def test_g3_many_complaints_about_a_form_of_many_names_come_to_an_end_and_are_told() -> None:
    form = {"properties": {f"name{n}": {} for n in range(1000)}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, form]}}}
    said = misfits(schema, {"a": {f"nam{n}": 1 for n in range(5_000)}})
    assert len(said) == 20
    assert said[0] == "'a.nam0' is not known here; did you mean 'name0'?"


def test_g3_patterns_with_many_states_or_long_sets_come_to_an_end_on_long_texts() -> None:
    letters = "".join(chr(200 + n) for n in range(900))
    for pattern in (".{2000}x", f"[{letters}]+x"):
        assert misfits({"type": "object", "properties": {"a": {"pattern": pattern}}}, {"a": "a" * 300_000})


def test_g3_a_large_value_that_fits_is_checked_to_its_end() -> None:
    row = {"type": "object", "properties": {n: {"type": "integer"} for n in "abcde"}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": row}}}
    rows = [dict.fromkeys("abcde", 1) for _ in range(5_000)]
    assert misfits(schema, {"rows": rows}) == []
    rows[-1]["e"] = "x"  # type: ignore[assignment]
    assert misfits(schema, {"rows": rows}) == ["'rows[4999].e': expected a whole number, found the text 'x'"]


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "^(a|a)*$", "(a|aa)+$", "a*a*a*a*a*a*a*a*b", "(.*)*x", "^(([a-z])+.)+[A-Z]$"]
)
def test_g3_patterns_that_explode_elsewhere_are_matched_in_no_time_here(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": pattern}}, "patternProperties": {pattern: True}}
    assert unusable(schema) == []
    assert misfits(schema, {"a": "a" * 5000 + "!"})
    assert misfits(schema, {"a" * 5000 + "!": 1}) == []


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────

PATTERNS = [
    "",
    "a",
    "^a$",
    "a|b",
    "^(?:ab|a)b$",
    "[a-c]+",
    "[^a-c]",
    r"\d{2,3}",
    r"^\w+@\w+\.[a-z]{2,}$",
    r"\bab\b",
    r"\Bb",
    "(a?){3}b",
    "^a*?b",
    "^[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*$",
    r"[\]\-x]",
    "[-a]",
    "[a-]",
    "^.{2}$",
    "(a*)*b",
    "x{0}",
    "x{2,}",
    r"^\s*$",
    "(^a|b$)",
    "^$",
    r"\x61[b]",
    "a||b",
    "()",
    "(" * 50 + "a" + ")" * 50,
    "[:a[]",
    "(?:a{1,1000}){1}",
]


@given(st.sampled_from(PATTERNS), st.text("ab-c_1.@x] \n", max_size=8))
def test_g3_a_pattern_finds_what_it_finds_elsewhere(pattern: str, text: str) -> None:
    theirs = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert read_pattern(pattern).found_in(text) is theirs


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)b",
        "(?<=a)b",
        r"(a)\1",
        "(?i)a",
        "(",
        ")",
        "a)",
        "[a",
        "*a",
        "a**",
        "a{2,1}",
        "a{99999}",
        "a{x}",
        "((a{1000}){1000}){1000}",
        r"\p{Letter}",
        "[]",
        r"[a-\d]",
        "\\",
        r"\u12",
        "[z-a]",
        "a" * 1001,
        "^*",
    ],
)
def test_g3_a_pattern_that_is_none_or_asks_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        read_pattern(pattern)
    (said,) = unusable({"type": "object", "properties": {"a": {"pattern": pattern}}})
    assert "pattern" in said


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        (r"^\s$", "\u2003", "\u2013"),
        (r"^[\s-]$", "-", "a"),
        (r"^[\S]$", "\u2013", "\u00a0"),
        (r"^\cC$", "\x03", "C"),
        (r"^[\b]$", "\b", "b"),
        (r"^\uD83D\uDE00$", "\U0001f600", "\ud83d"),
        (r"^\u{1F600}$", "\U0001f600", "u"),
        (r"^\p{Lu}\P{Lu}$", "Éa", "éa"),
        (r"^\p{Script=Greek}$", "α", "a"),
        ("^.$", "\U0001f600", "\u2028"),
        ("^(?<year>[0-9]{4})$", "2026", "202"),
        ("^a{1,2500}$", "a" * 2500, "a" * 2501),
    ],
)
def test_g3_patterns_are_read_as_javascript_reads_them(pattern: str, found: str, missed: str) -> None:
    assert misfits({"pattern": pattern}, found) == []
    assert misfits({"pattern": pattern}, missed)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("a(?!b)", "lookahead, lookbehind and flags"), (r"(a)\1", "backreferences are not supported")],
)
def test_g3_what_a_linear_matcher_cannot_do_is_refused_by_name(pattern: str, said: str) -> None:
    (reason,) = unusable({"type": "object", "properties": {"a": {"pattern": pattern}}})
    assert said in reason


# ── JSON Schema's own test suite ─────────────────────────────────────────────────────────────────────

SUITE = Path(sys.prefix) / "json-schema-suite" / "tests" / "draft2020-12"
"""Comes with `make dev`. Without it, these tests fail."""


@pytest.mark.parametrize(
    ("files", "least_right"),
    [("*.json", 926), ("optional/ecmascript-regex.json", 52), ("optional/non-bmp-regex.json", 12)],
)
def test_g3_every_answer_to_the_official_suite_is_right_or_the_schema_is_refused_by_name(
    files: str, least_right: int
) -> None:
    right, refused, wrong = 0, 0, []
    for file in sorted(SUITE.glob(files)):
        for case in json.loads(file.read_text()):
            reasons = unusable(case["schema"], of_arguments=False)
            for test in case["tests"]:
                if reasons:
                    refused += 1
                elif (not misfits(case["schema"], test["data"])) is test["valid"]:
                    right += 1
                else:
                    wrong.append((file.name, case["description"], test["description"]))
    print(f"{files}: {right} right, {refused} refused by name, {len(wrong)} wrong")
    assert wrong == []
    assert right >= least_right, "install the suite with: make dev"


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────


def with_a(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **more}


def deep_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "not a mapping"),
        ([], "not a mapping"),
        (True, "not a mapping"),
        ({}, '`type` is not "object"'),
        ({"type": "string"}, '`type` is not "object"'),
        ({"type": ["object", "null"]}, '`type` is not "object"'),
        (with_a({"type": "text"}), "not a valid JSON Schema"),
        (with_a({"minimum": "1"}), "properties/a/minimum"),
        (with_a(5), "not a valid JSON Schema"),
        ({"type": "object", "required": "a"}, "not a valid JSON Schema"),
        ({"type": "object", "properties": {1: {}}}, "not text"),
        (with_a({"$ref": "https://example.com/x"}), "points outside the schema"),
        (with_a({"$ref": "file:///etc/passwd"}), "points outside the schema"),
        (with_a({"$ref": "other.json#/a"}), "points outside the schema"),
        (with_a({"$ref": "#anchor"}), "points outside the schema"),
        (with_a({"$ref": "#/$defs/none"}), "points to no schema"),
        (with_a({"$ref": "#/x-mine", "default": 1}, **{"x-mine": 5}), "points to no schema"),
        (with_a({"$dynamicRef": "#a"}), "not supported"),
        (with_a({"dependencies": {"a": ["b"]}}), "use dependentRequired"),
        (with_a({}, **{"$schema": "https://example.com/dialect"}), "`$schema`"),
        (with_a({"$id": "https://example.com/x", "type": "string"}), "not supported"),
        ({"type": "object", "unevaluatedProperties": False}, "use additionalProperties"),
        ({"type": "object", "$ref": "#"}, "endless loop"),
        (with_a({"$ref": "#/properties/a"}), "endless loop"),
        (
            with_a(
                {"$ref": "#/$defs/x"},
                **{"$defs": {"x": {"allOf": [{"$ref": "#/$defs/y"}]}, "y": {"not": {"$ref": "#/$defs/x"}}}},
            ),
            "endless loop",
        ),
        (deep_schema(20), "levels deep"),
        (with_a({"description": "x" * 70_000}), "larger than 64 KiB"),
        (with_a({"default": float("nan")}), "not finite"),
        (with_a({"default": object()}), "plain data"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_g3_a_schema_that_cannot_be_used_is_told_why(schema: Any, said: str) -> None:
    reasons = unusable(schema)
    assert len(reasons) == 1
    assert said in reasons[0]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        ARGUMENTS,
        TREE,
        deep_schema(15),
        with_a({"$ref": "#/definitions/x"}, definitions={"x": {"type": "string"}}),
        with_a({"$ref": "#/$defs/a~1b%20c"}, **{"$defs": {"a/b c": True}}),
        with_a({"$ref": "#/properties/b"}, **{"$schema": "http://json-schema.org/draft-07/schema#"})
        | {"properties": {"a": {"$ref": "#/properties/b"}, "b": False}},
        {"type": "object", "$id": "https://example.com/tool", "title": "T", "x-mine": {"$ref": "anything"}},
    ],
    ids=lambda value: str(value)[:40],
)
def test_g3_a_schema_that_can_be_used_is_used(schema: dict[str, Any]) -> None:
    assert unusable(schema) == []
    assert isinstance(misfits(schema, {}), list)


def test_g3_a_schema_deeper_than_any_stack_is_told_so() -> None:
    (said,) = unusable(deep_schema(100_000))
    assert "levels deep" in said


def test_g3_what_could_not_be_checked_on_a_full_stack_is_checked_anew_later() -> None:
    schema = {"type": "object", "properties": {"full": {"type": "string"}}}

    def from_below(levels: int) -> list[str]:
        return from_below(levels - 1) if levels else misfits(schema, {"full": 1})

    for levels in range(sys.getrecursionlimit() - 150, 0, -50):
        try:
            assert from_below(levels)
        except RecursionError:
            continue  # not even this function could be called
    assert misfits(schema, {"full": 1}) == ["'full': expected text, found the number 1"]


def test_g3_a_schema_of_results_need_not_be_one_of_an_object() -> None:
    assert unusable({"type": "string"}, of_arguments=False) == []
    assert misfits({"type": "string"}, 3) == ["expected text, found the number 3"]


def test_g3_a_value_for_a_schema_that_cannot_be_used_is_told_that() -> None:
    (said,) = misfits({"type": "object", "$ref": "#"}, {})
    assert said.startswith("its schema cannot be used")


def test_g3_a_schema_that_is_changed_later_is_another_schema() -> None:
    schema = with_a({"type": "string"})
    assert misfits(schema, {"a": 1})
    schema["properties"]["a"]["type"] = "integer"
    assert misfits(schema, {"a": 1}) == []


def test_g3_a_missing_library_is_told_with_the_command_that_brings_it() -> None:
    code = """
import sys
sys.modules["jsonschema"] = None
from windlass.errors import UsageError
from windlass.schemas import misfits
try:
    misfits({"type": "object"}, {})
except UsageError as error:
    print(error.advice[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "pip install 'windlass[code]'"


def test_g3_importing_schemas_does_not_import_the_slow_library() -> None:
    code = "import sys, windlass.schemas, json; print(json.dumps('jsonschema' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert json.loads(done.stdout) is False
