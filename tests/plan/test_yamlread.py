"""Reading: YAML 1.2 and JSON become plain data, or problems with their place, and never anything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import PlanInvalid, Problem
from windlass.plan import yaml_tokens
from windlass.plan.yamlread import MAX_DEPTH, Document, FilePosition, plain, read


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def either_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML with its C parser, and where that is missing."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_tokens, "_Loader", getattr(yaml, request.param))


def refusals(text: str, *, as_json: bool = False) -> tuple[Problem, ...]:
    """The problems of a text, whether or not they end the reading."""
    try:
        return read(text, as_json=as_json).problems
    except PlanInvalid as error:
        return error.problems


# ── What words mean ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("true", True),
        ("TRUE", True),
        ("False", False),
        ("0", 0),
        ("-17", -17),
        ("+5", 5),
        ("017", 17),
        ("0o17", 15),
        ("0xFF", 255),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1e3", -1000.0),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_a_plain_word_is_what_the_core_schema_says(word: str, value: object) -> None:
    found = plain(word)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "word",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "No",
        "ON",
        "nUll",
        "tRue",
        "2024-01-01",
        "12:30",
        "1_000",
        "0b11",
        "1.2.3",
        "-",
        "+",
        ".",
        "-.",
        "e5",
        "0x",
        "0o8",
        ".info",
        "=",
    ],
)
def test_a_word_outside_the_core_schema_stays_text(word: str) -> None:
    assert plain(word) == word


@pytest.mark.parametrize(
    "word", [".inf", "-.INF", ".nan", "1e999", "-1e999", "9" * 20, "-" + "9" * 5000, "0x" + "f" * 17]
)
def test_a_number_that_cannot_be_held_exactly_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"a plan can hold|64 bits"):
        plain(word)
    [problem] = refusals(f"a: 1\nb: {word}\n")
    assert (problem.line, problem.column) == (2, 4)
    assert "quotes" in problem.hint


@pytest.mark.usefixtures("either_loader")
def test_quotes_and_core_tags_decide_the_type() -> None:
    document = read("""
a: "1"
b: '~'
c: !!str 5
d: !!float 5
e: !!int "7"
f: ! 8
g: !!map {h: !!seq [!!null "", !!bool true]}
""")
    assert document.problems == ()
    assert document.data == {"a": "1", "b": "~", "c": "5", "d": 5.0, "e": 7, "f": "8", "g": {"h": [None, True]}}
    assert isinstance(document.data["d"], float)


# ── What is refused ──────────────────────────────────────────────────────────────────────────────────

REFUSED = {
    "an indentation that fits nowhere": ("a:\n  - b\n c: 1\n", "not valid YAML", 3),
    "a tab for indentation": ("a:\n\tb: 1\n", "cannot start any token", 2),
    "a second colon": ("a: 1\nb: c: d\n", "mapping values are not allowed", 2),
    "a quote that is never closed, where it opens": ("a: 1\nb: 'x\nc: 1\n", "quoted scalar", 2),
    "a bracket that is never closed, where it opens": ("a: 1\nb: [x\nc: 1\n", "flow sequence", 2),
    "an asterisk that is no alias": ("a: *.py\n", "alias", 1),
    "a template without quotes": ("a: 1\nrun: {{ inputs.x }}\n", "must be in quotes", 2),
    "a template without quotes and more": ("a: 1\nrun: {{ inputs.x }} now\n", "must be in quotes", 2),
    "a key given twice": ("a: 1\nb: 2\na: 3\n", "`a` is already on line 1", 3),
    "a key given twice further in": ("a:\n  - b: 1\n    b: 2\n", "`b` is already on line 2", 3),
    "a number for a key": ("a:\n  1: x\n", "the key 1 is not text", 2),
    "true for a key": ("true: x\n", "the key true is not text", 1),
    "nothing for a key": ("a: 1\n~: x\n", "the key null is not text", 2),
    "a list for a key": ("a: 1\n? [b]\n: c\n", "a key must be text", 2),
    "an alias of a list for a key": ("a: &x [1]\n*x : 2\n", "a key must be text", 2),
    "a Python object": ("a: 1\nb: !!python/object:os.system x\n", "!!python/object:os.system", 2),
    "a tag of one's own": ("a: !secret x\n", "the tag !secret", 1),
    "a tag on a mapping": ("a: !!set {b, c}\n", "the tag !!set", 1),
    "a tag that is declared": ("%TAG ! tag:x.org,2000:\n---\na: !b c\n", "tag:x.org,2000:b", 3),
    "a value that does not fit its tag": ("a: !!int five\n", "does not fit its tag !!int", 1),
    "a whole number tagged as truth": ("a: !!bool 1\n", "does not fit its tag !!bool", 1),
    "truth tagged as a number": ("a: !!int true\n", "does not fit its tag !!int", 1),
    "an alias of nothing": ("a: 1\nb: *c\n", "*c has no anchor", 2),
    "an alias inside of what it names": ("a: &x\n  - *x\n", "*x has no anchor", 2),
    "a second document": ("a: 1\n---\nb: 2\n", "several documents", 2),
    "a merge of something else than a mapping": ("a:\n  <<: 5\n", "`<<` merges mappings only", 2),
    "a control character": ("a: 1\nb: \x07\n", "'\\x07' is not allowed in YAML", 2),
    "nothing": ("", "the file is empty", None),
    "only comments": ("# a plan\n\n# to come\n", "the file is empty", None),
    "only a document's start": ("---\n", "the file is empty", None),
    "only null": ("~", "the file is empty", None),
}


@pytest.mark.usefixtures("either_loader")
@pytest.mark.parametrize("name", REFUSED)
def test_yaml_is_refused_with_its_line_for(name: str) -> None:
    text, message, line = REFUSED[name]
    [problem] = refusals(text)
    assert message in problem.message + problem.hint
    assert problem.line == line
    assert (problem.column is None) == (line is None)


REFUSED_JSON = {
    "a colon too few": ('{"a": 1,\n"b" 2}', "not valid JSON", 2),
    "a key without quotes": ("{a: 1}", "not valid JSON", 1),
    "NaN": ('{\n"a": NaN}', "NaN is not a JSON value", 2),
    "infinity": ('{\n"a": [-Infinity]}', "-Infinity is not a JSON value", 2),
    "too large a number": ('{"a": 1,\n"b": 1e999}', "not a number that a plan can hold", 2),
    "too long a number": ('{\n"a": ' + "1" * 5000 + "}", "64 bits", 2),
    "a key given twice": ('{"a": 1,\n "b": {}, "a": 2}', "`a` is already on line 1", 2),
    "a key given twice in other letters": ('{"a": 1,\n "\\u0061": 2}', "`a` is already on line 1", 2),
    "half a character": ('{\n"a": "\\ud800"}', "not a valid character", 2),
    "nothing": (" \n", "the file is empty", None),
    "null": ("null", "the file is empty", None),
    "YAML": ("a: 1\n", "not valid JSON", 1),
}


@pytest.mark.parametrize("name", REFUSED_JSON)
def test_json_is_refused_with_its_line_for(name: str) -> None:
    text, message, line = REFUSED_JSON[name]
    [problem] = refusals(text, as_json=True)
    assert message in problem.message
    assert problem.line == line


def test_everything_that_does_not_end_the_reading_is_told_at_once() -> None:
    lines = [problem.line for problem in refusals("a: !x 1\na: 2\n3: *b\nc: .nan\nd: [1\n")]
    assert lines == [1, 2, 3, 3, 4, 5]


def test_half_a_character_is_refused_without_the_c_parser_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_tokens, "_Loader", yaml.SafeLoader)
    [problem] = refusals('a: 1\nb: "\\ud800"\n')
    assert problem.line == 2


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("as_json", [False, True])
def test_nesting_is_allowed_to_the_limit_and_no_deeper(as_json: bool) -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read(deepest, as_json=as_json).problems == ()
    [problem] = refusals(f"[{deepest}]", as_json=as_json)
    assert f"nested deeper than {MAX_DEPTH}" in problem.message
    assert (problem.line, problem.column) == (1, MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000, '{"a":' * 100_000, "\n".join(" " * n + "a:" for n in range(2000))]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_nesting_without_end_is_refused_and_exhausts_nothing(text: str, as_json: bool) -> None:
    assert refusals(text, as_json=as_json)


def test_nesting_cannot_be_hidden_behind_an_alias() -> None:
    half = "[" * 30 + "]" * 30
    assert read(f"a: &x {half}\nb: {{c: *x}}\n").problems == ()
    [problem] = refusals(f"a: &x {half}\nb: {'[' * 25}*x{']' * 25}\n")
    assert "nested deeper than 50 levels by *x" in problem.message
    assert problem.line == 2


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    [problem] = refusals("\n".join(rows))
    assert "more than 1,000,000 values" in problem.message
    assert problem.line == 6


def test_an_alias_bomb_of_long_text_is_refused_too() -> None:
    [problem] = refusals(f"a: &a {'x' * 100_000}\nb: [{'*a, ' * 2000}]")
    assert "more than 1,000,000 values" in problem.message


def test_a_list_under_a_bounded_key_ends_at_its_bound() -> None:
    text = "other: [1, 2, 3, 4]\nsteps:\n- 1\n- [1, 2, 3, 4]\n- 3\n"
    assert read(text, longest={"steps": 3}).problems == ()
    with pytest.raises(PlanInvalid) as caught:
        read(text + "- 4\n", longest={"steps": 3})
    [problem] = caught.value.problems
    assert problem.message == "a plan may have at most 3 steps"
    assert problem.line == 6


# ── Aliases and merges ───────────────────────────────────────────────────────────────────────────────


def test_aliases_repeat_what_they_name() -> None:
    assert read("a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n").data["d"] == [{"b": [1]}, {"b": [1]}]


def test_the_newest_anchor_of_a_name_counts() -> None:
    assert read("[&x 1, *x, &x 2, *x]").data == [1, 1, 2, 2]


def test_merged_keys_stand_beneath_a_mappings_own() -> None:
    data = read("""
base: &base {a: 1, b: 1, c: 1}
more: &more {b: 2, d: 2}
one: {<<: *base, a: 9}
many: {<<: [*more, *base], a: 9}
text: {"<<": 5}
""").data
    assert data["one"] == {"a": 9, "b": 1, "c": 1}
    assert data["many"] == {"a": 9, "b": 2, "c": 1, "d": 2}
    assert data["text"] == {"<<": 5}


# ── Places ───────────────────────────────────────────────────────────────────────────────────────────

PLACED = {
    ("yaml", "name: x\nsteps:\n  - id: a\n    needs: [b, 'c']\n  - {id: b}\n"): {
        (): (1, 1),
        ("name",): (1, 1),
        ("steps",): (2, 1),
        ("steps", 0): (3, 5),
        ("steps", 0, "id"): (3, 5),
        ("steps", 0, "needs"): (4, 5),
        ("steps", 0, "needs", 1): (4, 16),
        ("steps", 1): (5, 5),
        ("steps", 1, "id"): (5, 6),
    },
    ("json", '{"name": "x\\n😀",\n "steps": [\n  {"id": "a", "needs": ["b",\n   "c"]},\n  {"id": 5}]}'): {
        (): (1, 1),
        ("name",): (1, 2),
        ("steps",): (2, 2),
        ("steps", 0): (3, 3),
        ("steps", 0, "needs"): (3, 15),
        ("steps", 0, "needs", 1): (4, 4),
        ("steps", 1, "id"): (5, 4),
    },
}


@pytest.mark.parametrize(("language", "text"), PLACED)
def test_keys_and_items_are_found_where_they_stand(language: str, text: str) -> None:
    document = read(text, as_json=language == "json")
    for path, place in PLACED[language, text].items():
        assert document.locate(path) == place, path


def test_what_has_no_place_of_its_own_is_found_by_what_is_around_it() -> None:
    document = read("a: &x {b: 1}\nc:\n  <<: *x\n")
    assert document.locate(("c", "b")) == FilePosition(2, 1)
    assert document.locate(("c", "nothing", 3)) == FilePosition(2, 1)
    assert document.locate(("nothing",)) == FilePosition(1, 1)


# ── Against PyYAML and json ──────────────────────────────────────────────────────────────────────────

TRICKY = [
    "no",
    "yes",
    "null",
    "~",
    "true",
    "1",
    "1.0",
    "1e3x",
    ".5",
    "2024-01-01",
    "<<",
    "=",
    "-",
    "?",
    ":",
    "#",
    "&",
    "*",
    "!",
    "|",
    ">",
    "%x",
    "@",
    "`",
    "{}",
    "[]",
    "'x",
    '"x',
    "a:b",
]
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
# PyYAML writes YAML 1.1, where 0o7 and 1e3 are text that needs no quotes.
texts = (st.text() | st.sampled_from(TRICKY)).filter(lambda text: _is_text(text) or _is_quoted(text))
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


def _is_text(word: str) -> bool:
    try:
        return isinstance(plain(word), str)
    except ValueError:
        return False


def _is_quoted(word: str) -> bool:
    return yaml.safe_dump(word)[0] in "'\""


@given(st.dictionaries(texts, anything, min_size=1), st.booleans(), st.sampled_from([None, True, False]))
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(data: dict[str, Any], unicode: bool, flow: bool | None) -> None:
    text = yaml.safe_dump(data, allow_unicode=unicode, default_flow_style=flow)
    document = read(text)
    assert document.problems == ()
    assert document.data == yaml.safe_load(text)


@given(st.dictionaries(st.text(), anything, min_size=1), st.booleans(), st.sampled_from([None, 2]))
def test_what_json_writes_is_read_as_json_reads_it(data: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(data, ensure_ascii=ascii_only, indent=indent)
    document = read(text, as_json=True)
    assert document.problems == ()
    assert document.data == data
    assert all(document.locate((key,)) is not None for key in data)


yaml_like = st.lists(
    st.sampled_from(
        [*"{}[]:,-?&*!|>'\"%@#\n\t ~<", ": ", "- ", "\n  ", "&a ", "*a", "<<: ", "!!int ", "a", "1", "---\n"]
    ),
    max_size=40,
).map("".join)


@given(st.text() | yaml_like, st.booleans())
def test_any_text_at_all_is_read_or_refused(text: str, as_json: bool) -> None:
    try:
        document = read(text, as_json=as_json)
    except PlanInvalid:
        return
    assert isinstance(document, Document)
    assert document.locate(("a", 0)) is not None


def test_numbers_come_back_as_the_type_they_were_written_in() -> None:
    data = read("[1, 1.0, 1e0, -0.0]").data
    assert [type(value) for value in data] == [int, float, float, float]
    assert math.copysign(1, data[3]) == -1
