"""Declarations of tools (G2): what becomes of each schema, and that nothing in one breaks out of its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.engine.code.typings import (
    LONGEST_LITERAL,
    LONGEST_NOTE,
    MOST_CHARACTERS,
    MOST_LITERALS,
    Typing,
    declarations,
)
from windlass.tools.files.tools import file_tools
from windlass.tools.shell import Shell


@dataclass
class Made:
    """A tool as far as it is told of."""

    name: str = "t"
    description: str = ""
    schema: Any = field(default_factory=lambda: {"type": "object"})
    returns: Any = None


def argument(schema: Any, **more: Any) -> str:
    """The type of the one argument `a`."""
    made: Any = Made(schema={"type": "object", "properties": {"a": schema}, "required": ["a"], **more})
    found = re.search(r"\(args: \{ (?:/\*\*.*?\*/ )?a: (.*) \}\) => Promise<any>;", declarations([made]))
    assert found, declarations([made])
    return found[1]


TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>/\*\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<word>[A-Za-z_$][\w$]*)"""
    r"""|(?P<number>-?\d[\d.]*(?:e[+-]?\d+)?)|(?P<mark>=>|\.\.\.|[{}()\[\]<>:;,?|&=])""",
    re.DOTALL | re.ASCII,
)
WORDS = {
    "declare",
    "const",
    "tools",
    "args",
    "Promise",
    "any",
    "string",
    "number",
    "boolean",
    "null",
    "never",
    "key",
} | {
    "true",
    "false",
}


def tokens(text: str) -> list[str]:
    """The declaration in pieces, comments left out; every piece must be known and every bracket closed."""
    found, at, brackets = [], 0, []
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token, f"no TypeScript: {text[at : at + 60]!r}"
        at = token.end()
        if token.lastgroup in ("space", "comment"):
            continue
        found.append(token[0])
        if token[0] in "([{<":
            brackets.append(token[0])
        elif token[0] in ")]}>":
            assert brackets.pop() + token[0] in ("()", "[]", "{}", "<>")
    assert not brackets
    return found


# ── types ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "number", "minimum": 3}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"type": "gibberish"}, "any"),
        ({}, "any"),
        (True, "any"),
        (False, "never"),
        (None, "any"),
        ({"enum": ["a", 1, None, True, -2.5]}, '"a" | 1 | null | true | -2.5'),
        ({"enum": []}, "never"),
        ({"enum": [{"a": 1}]}, "any"),
        ({"enum": [f"v{n}" for n in range(100)]}, "string"),
        ({"enum": list(range(MOST_LITERALS))}, " | ".join(map(str, range(MOST_LITERALS)))),
        ({"enum": list(range(MOST_LITERALS + 1))}, "any"),
        ({"const": 'x"y\n'}, '"x\\"y\\n"'),
        ({"const": "x" * LONGEST_LITERAL}, f'"{"x" * LONGEST_LITERAL}"'),
        ({"const": "x" * (LONGEST_LITERAL + 1)}, "string"),
        ({"const": 2**53 - 1}, "9007199254740991"),
        ({"const": 2**53}, "number"),
        ({"const": [1]}, "any"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
        ({"items": {"type": "string"}}, "string[]"),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "minItems": 2, "maxItems": 2},
            "[string, number]",
        ),
        ({"prefixItems": [{"type": "string"}, {"enum": [1, 2]}], "minItems": 1, "items": False}, "[string, (1 | 2)?]"),
        ({"prefixItems": [{"type": "string"}], "minItems": 1, "items": {"type": "null"}}, "[string, ...null[]]"),
        ({"prefixItems": [{"type": "string"}], "items": False}, "[string?]"),
        ({"type": "object"}, "{ [key: string]: any }"),
        ({"type": "object", "properties": {}}, "{ [key: string]: any }"),
        ({"type": "object", "additionalProperties": False}, "{}"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "{ [key: string]: string }"),
        (
            {"properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "number"}},
            "{ b?: string; [key: string]: any }",
        ),
        (
            {"type": "object", "properties": {"b": {}, "c-d": {}, "1": {}, "delete": {}}, "required": ["b"]},
            '{ b: any; "c-d"?: any; "1"?: any; delete?: any }',
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "string"}, {}]}, "any"),
        (
            {"allOf": [{"properties": {"b": {"type": "null"}}}, {"anyOf": [{"type": "string"}, {"type": "null"}]}]},
            "{ b?: null } & (string | null)",
        ),
        ({"type": "array", "items": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "(string & null)[]"),
        ({"$ref": "#/$defs/x"}, "string | number"),
        ({"$ref": "#/$defs/tree"}, "{ children?: any[] }"),
        ({"$ref": "#/$defs/list/anyOf/1"}, "null"),
        ({"$ref": "#/$defs/list/anyOf/2"}, "any"),
        ({"anyOf": [{"items": {"$ref": "#/$defs/x"}}, {"$ref": "#/$defs/x"}]}, "(string | number)[] | string | number"),
        ({"$ref": "#/$defs/none"}, "any"),
        ({"$ref": "https://example.com/x"}, "any"),
        ({"$ref": "#/$defs/me"}, "any"),
        ({"type": "string", "description": "What */ it \n is"}, "string"),
    ],
    ids=str,
)
def test_g2_a_schema_becomes_a_type(schema: Any, text: str) -> None:
    defs = {
        "x": {"type": ["string", "integer"]},
        "tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
        "list": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "me": {"$ref": "#/$defs/me"},
    }
    assert argument(schema, **{"$defs": defs}) == text


def test_g2_names_with_dots_are_nested_and_descriptions_are_comments() -> None:
    tools: list[Any] = [
        Made("b.c.d", "Deep\nand more"),
        Made("a", "First", {"type": "object", "properties": {"x": {"type": "string", "description": "An x"}}}),
        Made("b.e-f", returns={"type": "integer"}),
        Made("b", "Both", {"type": "object", "required": ["x"], "properties": {"x": {}}}),
    ]
    assert declarations(tools) == (
        "declare const tools: {\n"
        "  /** First */\n"
        "  a: (args?: { /** An x */ x?: string }) => Promise<any>;\n"
        "  /** Both */\n"
        "  b: ((args: { x: any }) => Promise<any>) & {\n"
        "    c: {\n"
        "      /**\n"
        "       * Deep\n"
        "       * and more\n"
        "       */\n"
        "      d: (args?: { [key: string]: any }) => Promise<any>;\n"
        "    };\n"
        '    "e-f": (args?: { [key: string]: any }) => Promise<number>;\n'
        "  };\n"
        "};\n"
    )
    assert declarations([]) == "declare const tools: {\n};\n"
    assert declarations(tools) == declarations(tools[::-1])


def test_g2_the_built_in_tools_are_declared_with_what_they_return() -> None:
    text = declarations([Shell(), *file_tools()])
    tokens(text)
    assert "Promise<any>" not in text
    shell = re.search(r"  shell: (.*)", text)
    assert shell
    assert shell[1].endswith("Promise<{ exit_code: number; stdout: string; stderr: string; truncated: boolean }>;")


# ── hostile ones ─────────────────────────────────────────────────────────────────────────────────────

BREAKING = [
    "*/ }; evil(); /*",
    "**/ evil",
    "*\n/ evil",
    "*\u2028/ evil",
    "*\0/ evil",
    "*\u200b/ evil",
    "`${evil}`",
    '" | evil | "',
    "'\\",
    "\\",
    "\ud800*/",
    "// evil",
    "x\r\n*/evil",
    "*" * 3000 + "/",
    "*/" * 3000,
    "__proto__",
    "",
]


def hostile(text: str) -> Made:
    return Made(
        f"a.{text}",
        text,
        {
            "type": "object",
            "description": text,
            "properties": {text: {"description": text, "enum": [text]}, "b": {"const": text, "description": text}},
            "required": [text],
        },
        {"type": "object", "properties": {text: {"type": text, "description": text}}},
    )


@pytest.mark.parametrize("text", BREAKING, ids=lambda text: ascii(text)[:20])
def test_g2_no_text_breaks_out_of_its_comment_or_its_quotes(text: str) -> None:
    made: Any = hostile(text)
    found = tokens(declarations([made]))
    words = {token for token in found if token[0] not in '"{}()[]<>:;,?|&=.-0123456789'}
    assert words <= WORDS | {"a", "b", "__proto__"}


@given(st.text())
def test_g2_whatever_a_text_is_the_declaration_has_the_same_form(text: str) -> None:
    made: Any = hostile(text.replace(".", ""))
    pieces = [token for token in tokens(declarations([made])) if token[0] in "{}()[]<>:;=|"]
    plain: Any = hostile("z" * 3)
    if text.replace(".", "") not in ("b", "string", "number", "integer", "boolean", "null", "object", "array"):
        assert pieces == [token for token in tokens(declarations([plain])) if token[0] in "{}()[]<>:;=|"]


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


WEB = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 20} for n in range(50)},
}
WIDE = {"type": "object", "properties": {f"name{n}": {"type": "string", "description": "x" * 50} for n in range(3000)}}
LARGE = {
    "deep": deep(500),
    "web": WEB,
    "wide": WIDE,
    "long": {"type": "object", "properties": {"x" * 10_000: {}, "y": {"enum": ["x" * 10_000]}}},
    "noted": {"type": "object", "properties": {f"n{n}": {"description": "word " * 100} for n in range(30)}},
}


@pytest.mark.parametrize("kind", LARGE)
def test_g2_what_is_too_large_is_cut_off(kind: str) -> None:
    made: Any = Made("t", "word\n" * 5000, LARGE[kind], LARGE[kind])
    text = declarations([made])
    tokens(text)
    assert len(text) <= 4000 + len("declare const tools: {\n};\n")
    if kind == "noted":
        assert "n29?: any" in text, "descriptions go before types do"


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"items": inner},
        lambda inner: {"prefixItems": [inner], "items": False},
        lambda inner: {"prefixItems": [{}], "items": inner},
        lambda inner: {"anyOf": [inner]},
        lambda inner: {"allOf": [inner]},
    ],
    ids=["properties", "more properties", "items", "first items", "further items", "any of", "all of"],
)
def test_g2_a_schema_inside_another_is_one_level_deeper(around: Any) -> None:
    schema = around(around({"type": "null"}))
    assert "null" in Typing(schema, 2, told=True).text()
    assert "null" not in Typing(schema, 1, told=True).text()


@pytest.mark.parametrize(
    ("name", "description"),
    [("t", "word " * 200), ("a." * 40 + "t", "word"), ("t-" + "x" * 600, "word")],
    ids=["a long description", "many groups", "a long name"],
)
def test_g2_a_declaration_is_within_its_bound_with_all_that_is_beside_its_types(name: str, description: str) -> None:
    lengths = set()
    for size in range(2_800, 4_000, 10):
        made: Any = Made(name, description, {"type": "object", "properties": {"x" * size: {}}})
        lines = declarations([made]).splitlines(keepends=True)
        (at,) = [number for number, line in enumerate(lines) if "Promise" in line]
        lengths.add(len(lines[at - 1]) + len(lines[at]))
    assert MOST_CHARACTERS - 40 < max(lengths) <= MOST_CHARACTERS


def test_g2_a_description_of_a_property_is_cut_off_only_where_it_is_too_long() -> None:
    def told(text: str) -> str:
        return Typing({"properties": {"a": {"description": text}}}, 8, told=True).text()

    longest = "x" * LONGEST_NOTE
    assert told(longest) == f"{{ /** {longest} */ a?: any }}"
    assert told(f"{longest}x") == f"{{ /** {longest}… */ a?: any }}"


def test_g2_of_a_schema_no_more_parts_are_looked_at_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"prefixItems": [{"type": "string"}] * 4, "minItems": 4, "items": False}
    for most, text in ((6, "[string, string, string, string]"), (5, "[string, string, string, any]")):
        monkeypatch.setattr("windlass.engine.code.typings.MOST_PARTS", most)
        assert argument(schema) == text, "the schema of the arguments counts, and that of the one argument"
    monkeypatch.setattr("windlass.engine.code.typings.MOST_PARTS", 4)
    several = {"properties": {name: {"type": "null"} for name in "bcde"}}
    assert argument(several) == "{ b?: null; c?: null; d?: any; [key: string]: any }"


@pytest.mark.parametrize(
    ("depth", "told"), [(8, True), (4, True), (4, False), (2, False), (1, False), (0, False)], ids=str
)
def test_g2_a_schema_that_is_too_large_loses_depth_and_descriptions_until_it_fits(depth: int, told: bool) -> None:
    """What is deeper than `depth` does not fit; nor do the descriptions, unless they are `told`."""
    schema: dict[str, Any] = {"type": "object", "properties": {"x" * MOST_CHARACTERS: {}}}
    for _ in range(depth + 1):
        schema = {"type": "object", "properties": {"a": schema}}
    note = "x" * (9 if told else LONGEST_NOTE)
    schema["properties"] |= {f"n{number}": {"description": note} for number in range(30)}
    made: Any = Made(schema=schema)
    assert f"  t: (args?: {Typing(schema, depth, told).text()}) => Promise<any>;\n" in declarations([made])


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {"type": 5},
        {"type": [5, None]},
        {"type": "object", "properties": []},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "properties": {"a": 5}, "required": "a"},
        {"enum": 5},
        {"anyOf": 5, "allOf": None, "oneOf": []},
        {"$ref": 5},
        {"type": "array", "prefixItems": 5, "items": [], "minItems": "x"},
        {"type": "array", "prefixItems": [{}], "minItems": "x"},
        {"const": float("inf")},
        {"const": 10**400},
    ],
    ids=str,
)
def test_g2_a_malformed_schema_is_declared_somehow(schema: Any) -> None:
    made: Any = Made(schema=schema, returns=schema)
    assert tokens(declarations([made]))


def test_g2_literals_read_as_the_values_that_they_are() -> None:
    for value in ("ü", "\u2028", "\ud800", "\x7f", "a\\b", 1e21, 1e-7, 0.1, -5):
        assert json.loads(argument({"const": value})) == value
    assert argument({"const": "ü"}) == '"ü"'
    assert argument({"const": "\u2028"}) == '"\\u2028"', "what cannot be seen is spelled out"
