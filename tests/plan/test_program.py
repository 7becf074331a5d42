"""The text of a program: what it plainly reads, whatever else stands in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.plan.program import MAX_SOURCE, program_reads, source_problem, steps_read, tokens

READS = {
    "a member": ("return steps.log.output", ["log:1"]),
    "a member in brackets": ("return steps['my-log'].output + steps[\"b\"].output", ["my-log:1", "b:1"]),
    "a member that may be missing": ("return steps?.a?.output ?? steps?.['b']", ["a:1", "b:1"]),
    "a member on its own line": ("return 1 +\n  steps\n    // why\n    .log.output", ["log:2"]),
    "parts taken out": ("const {a, b: {output}, 'c-d': e, ...rest} = steps;", ["a:1", "b:1", "c-d:1"]),
    "parts of a part": ("const {output} = steps.a;", ["a:1"]),
    "line comments": ("// steps.a\nreturn steps.b // steps.c", ["b:2"]),
    "block comments": ("/* steps.a\n * steps.b */ return steps.c /* steps.d", ["c:2"]),
    "texts": ("return 'steps.a' + \"steps.b\" + 'it\\'s steps.c' + steps.d", ["d:1"]),
    "a quote in the other quotes": ("""return "it's" + steps.a + '"' + steps.b""", ["a:1", "b:1"]),
    "template literals": ("return `steps.a\n${steps.b.output} $steps.c \\${steps.d}`", ["b:2"]),
    "template literals in each other": (
        "return `${`${steps.a} steps.b` + {c: steps.d}.c} steps.e` + steps.f",
        list("adf"),
    ),
    "a template literal in brackets": ("return steps[`a`]", ["a:1"]),
    "a computed name": ("return steps[name] + steps['a' + b] + steps[`a${b}`]", []),
    "an escape in a name": ("return steps['a\\x62']", []),
    "a regular expression": ("return /steps.a['\"`]/.test(x) && steps.b", ["b:1"]),
    "a slash in a class of a regular expression": ("x = /[/'`]/g; return steps.b", ["b:1"]),
    "a regular expression after a condition": ("if (x) /`'/.test(y);\nreturn steps.b", ["b:2"]),
    "divisions": ("return a / steps.b.output / c(1) / steps.d / 2", ["b:1", "d:1"]),
    "a division after a count": ("return i++ / steps.b / 2", ["b:1"]),
    "a property called steps": ("return x.steps.a + x?.steps.b", []),
    "a key called steps": ("return {steps: {a: 1}}", []),
    "other names": ("return mysteps.a + steps2.b + $steps.c + steps_.d", []),
    "a spread": ("return [...steps.a.output]", ["a:1"]),
    "a text that never ends": ("x = 'steps.a\nreturn steps.b", ["b:2"]),
    "a comment that never ends": ("steps.a /* steps.b", ["a:1"]),
    "a template literal that never ends": ("steps.a `${steps.b} steps.c", ["a:1", "b:1"]),
    "a hole that never ends": ("`${ steps.a", ["a:1"]),
    "a regular expression that never ends": ("x = /[steps.a\nsteps.b", ["a:1", "b:2"]),
    "brackets that do not match": (")]}` steps.a` ({[ steps.b }) steps.c", ["b:1", "c:1"]),
    "half a thing": ("steps. ; steps[ ; steps['a' ; steps", []),
    "nothing": ("", []),
}


@pytest.mark.parametrize("name", READS)
def test_the_steps_that_a_program_reads_are_found_among(name: str) -> None:
    source, wanted = READS[name]
    found = [f"{read.name}:{read.line}" for read in steps_read(source)]
    assert found == [word if ":" in word else f"{word}:1" for word in wanted]


def test_a_read_has_its_field_and_its_place() -> None:
    [log, since] = program_reads("const a = 1;\n  return steps.log.output.x + inputs.since.length")
    assert (log.root, log.name, log.field, log.line, log.column) == ("steps", "log", "output", 2, 10)
    assert (since.root, since.name, since.field, since.line, since.column) == ("inputs", "since", "length", 2, 31)


OWN = [
    "const steps = [];",
    "let x, y; var steps = 1;",
    "steps = [];",
    "const {steps} = args;",
    "const {list: [steps]} = args;",
    "const [a, steps] = args.list;",
    "xs.map(steps => 1);",
    "xs.map((a, steps) => 1);",
    "xs.map(({steps}) => 1);",
    "function f(a, steps) { }",
    "try { } catch (steps) { }",
    "class steps { }",
]


@pytest.mark.parametrize("source", OWN)
def test_a_program_with_steps_of_its_own_is_not_sure_to_read_the_plans(source: str) -> None:
    [read] = steps_read(f"{source}\nreturn steps.a")
    assert not read.sure


@pytest.mark.parametrize(
    "source",
    [
        "for (const name of Object.keys(steps)) { }",
        "if (steps) { }",
        "f({steps});",
        "const all = steps;",
        "const copy = {...steps};",
        "if (steps == null) { }",
        "f(steps, () => { });",
    ],
)
def test_a_program_that_hands_all_steps_on_still_reads_the_plans(source: str) -> None:
    [read] = steps_read(f"{source}\nreturn steps.a")
    assert read.sure


def test_what_every_object_has_is_not_sure_to_be_a_step() -> None:
    [read] = steps_read("return steps.hasOwnProperty(x)")
    assert not read.sure


def test_a_text_is_a_program_unless_it_is_empty_or_too_long() -> None:
    assert source_problem(" \n\t") == "is empty"
    assert source_problem("é" * (MAX_SOURCE // 2)) is None
    assert "256 KiB" in str(source_problem("é" * (MAX_SOURCE // 2) + "x"))


HOSTILE = {
    "brackets in brackets": "(" * 60_000 + "steps" + ")" * 60_000,
    "calls in calls": "f(steps," * 20_000 + ")" * 20_000,
    "objects in objects": "{steps," * 20_000 + "}" * 20_000,
    "parts of parts": "{" * 25_000 + "} = steps" * 25_000,
    "regular expressions that never end": "steps" + "=/[" * 85_000,
    "holes in holes": "steps" + "`${" * 85_000,
    "backslashes": "steps" + "\\" * 250_000,
    "stars": "steps /*" + "*" * 250_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_of_full_length_comes_apart(name: str) -> None:
    assert len(HOSTILE[name]) <= MAX_SOURCE
    assert program_reads(HOSTILE[name]) == ()


brackets = st.sampled_from(["[", "]", "(", ")", "{", "}", "${", "'", '"', "`", "/*", "*/", "//", "/", "\\"])
marks = brackets | st.sampled_from([".", "?.", "...", "=", "=>", ",", ":", "++", "*", "#"])
pieces = marks | st.sampled_from(["steps", "inputs", "a", "1.5", "é", " ", "\n", "\u2028", "const ", "return ", "if"])


@given(st.lists(pieces, max_size=40).map("".join) | st.text(max_size=40))
def test_any_text_comes_apart_in_order_and_every_read_stands_where_it_says(source: str) -> None:
    starts = [token.start for token in tokens(source)]
    assert starts == sorted(set(starts))
    lines = source.split("\n")
    for read in program_reads(source):
        at = lines[read.line - 1][read.column - 1 :].lstrip("'\"`")
        assert at.startswith((read.root, read.name))
