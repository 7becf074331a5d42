"""Templates: types kept, mistakes told, references seen, and nothing dangerous reached."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.plan.template import (
    Reference,
    TemplateProblem,
    compile_expression,
    compile_value,
    references,
    syntax_problem,
)

SCOPE: dict[str, Any] = {
    "inputs": {"name": "it's", "count": 3, "list": [1, "b"], "items": ["x"], "none": None, "numbered": {"1": "one"}},
    "steps": {"a": {"output": {"items": [1], "ok": True}, "status": "completed"}, "my-step": {"output": 1}},
    "item": {"keys": "k"},
}


def render(value: Any) -> Any:
    return compile_value(value).render(SCOPE)


def refused(value: Any) -> str:
    with pytest.raises(TemplateProblem) as caught:
        render(value)
    return str(caught.value)


# ── Values ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ inputs.list }}", [1, "b"]),
        ("{{ inputs.count + 1 }}", 4),
        ("{{ inputs.none }}", None),
        ("{{ steps.a.output }}", {"items": [1], "ok": True}),
        ("{{ steps.a.output.ok }}", True),
        ("{{ steps['my-step'].output }}", 1),
        ("{{ inputs.list | length }}", 2),
        ("{{ '[1]' | from_json }}", [1]),
    ],
)
def test_a_template_that_stands_alone_keeps_the_type(template: str, value: Any) -> None:
    assert render(template) == value
    assert type(render(template)) is type(value)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("n={{ inputs.count }}", "n=3"),
        ("{{ inputs.count }}{{ inputs.count }}", "33"),
        ("l={{ inputs.list }}", 'l=[1, "b"]'),
        ("t={{ steps.a.output.ok }}, {{ inputs.none }}", "t=true, null"),
        ("q={{ inputs.name | quote }}", "q='it'\"'\"'s'"),
        ("{{ inputs.list | json }}", '[1, "b"]'),
        ("{{ '/a/b.txt' | basename }}", "b.txt"),
        ("a\n{% for x in inputs.list %}{{ loop.index }}{{ x }} {% endfor %}\n", "a\n11 2b \n"),
        ("{# nothing #}x", "x"),
        ("r={{ inputs.list | reverse }}", 'r=["b", 1]'),
        ("k={{ item.items() }}", 'k=[["keys", "k"]]'),
        ("{{ ['a'] | map('upper') | quote }}", "'[\"A\"]'"),
        ("{{ ['a'] | map('upper') | json }}", '["A"]'),
        ("{{ ['a'] | tojson(indent=1) }}", '[\n "a"\n]'),
        ("{{ none | basename }}", "null"),
    ],
)
def test_a_template_inside_text_makes_text(template: str, text: str) -> None:
    assert render(template) == text


def test_keys_of_data_come_before_methods_of_dict() -> None:
    assert render("{{ steps.a.output.items }}") == [1]
    assert render("i={{ inputs.items }} k={{ item.keys }}") == 'i=["x"] k=k'


@pytest.mark.parametrize("path", ["inputs.list.1", "inputs.numbered.1", "inputs.numbered[1]", "inputs.name.1"])
def test_b5_a_number_in_a_path_means_the_same_alone_and_within_text(path: str) -> None:
    alone = render(f"{{{{ {path} }}}}")
    assert alone in ("b", "one", "t")
    assert render(f"x{{{{ {path} }}}}") == f"x{alone}"


@pytest.mark.parametrize("path", ["inputs.list.1st", "inputs.list.١", "inputs.list.²", "inputs.naïve²"])
def test_b5_a_path_that_jinja_cannot_read_is_a_problem_alone_and_within_text(path: str) -> None:
    assert syntax_problem(f"{{{{ {path} }}}}")
    assert syntax_problem(f"x{{{{ {path} }}}}")


def test_structures_are_filled_in_wherever_they_hold_templates() -> None:
    value = {"a": ["{{ inputs.count }}", {"b": "x{{ inputs.count }}"}], "c": 5, "d": None}
    assert render(value) == {"a": [3, {"b": "x3"}], "c": 5, "d": None}


@pytest.mark.parametrize("value", ["text", "{ no template }", 5, None, True, ["a", {"b": 1}], {}])
def test_a_value_without_templates_is_constant(value: Any) -> None:
    assert compile_value(value).constant
    assert render(value) == value


def test_a_value_with_a_template_is_not_constant() -> None:
    assert not compile_value({"a": ["x", "{{ inputs.count }}"]}).constant


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.count > 2", True),
        ("{{ inputs.count > 2 }}", True),
        ("steps.a.status == 'completed' and not inputs.none", True),
        ("inputs.list", [1, "b"]),
        ("range(3)", [0, 1, 2]),
        ("true", True),
    ],
)
def test_expressions_need_no_braces(expression: str, value: Any) -> None:
    assert compile_expression(expression)(SCOPE) == value


# ── What is not there, and what may not be ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "template",
    [
        "{{ nothing }}",
        "{{ inputs.nothing }}",
        "x{{ inputs.nothing }}",
        "{{ steps.b.output }}",
        "{{ inputs.nothing + 1 }}",
    ],
)
def test_what_is_not_there_is_told_and_never_made_up(template: str) -> None:
    assert "nothing" in refused(template) or "'b'" in refused(template)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ ['a', 'b'] | map('upper') }}", ["A", "B"]),
        ("{{ [1, 1, 2] | unique }}", [1, 2]),
        ("{{ {'a': 1}.items() }}", [["a", 1]]),
        ("{{ {'x': [1] | select} }}", {"x": [1]}),
        ("{{ {2.5: 2, none: 3, true: 4} }}", {"2.5": 2, "null": 3, "true": 4}),
    ],
)
def test_b5_whatever_gives_items_is_a_list_and_every_key_is_text(template: str, value: Any) -> None:
    assert compile_value(template).render(SCOPE) == value


def test_b5_a_condition_on_a_filter_that_leaves_nothing_is_false() -> None:
    assert not compile_expression("[1, 2] | select('gt', 2)")(SCOPE)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'nan' | float }}",
        "{{ '[Infinity]' | from_json }}",
        "{{ '\"\\\\ud800\"' | from_json }}",
        "x{{ '\"\\\\ud800\"' | from_json }}",
        "{{ inputs['list'].append }}",
        "{{ 'a'.encode() }}",
        "{{ [inputs.nothing] }}",
        "{{ {1: 'a', '1': 'b'} }}",
        "x{{ 'nan' | float }}",
        "{{ '[NaN]' | from_json | json }}",
        "x{{ 'a'.encode() }}",
        "{{ 'a' | attr('upper') | quote }}",
        "{{ 'a' | center(100000000) }}",
    ],
)
def test_b5_what_json_cannot_hold_is_a_template_problem(template: str) -> None:
    refused(template)


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "x{{ inputs.list + 1 }}", "{{ 'x' | from_json }}"])
def test_whatever_goes_wrong_in_a_template_is_a_template_problem(template: str) -> None:
    assert template in refused(template) or "in " in refused(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "x{{ inputs.__class__.__mro__ }}",
        "{{ inputs['__class__'] }}",
        "{{ inputs.list.append(1) }}",
        "x{{ inputs.update({'a': 1}) }}",
        "x{{ '{0.__class__}'.format(inputs) }}",
        "{{ 'x' * 999999999 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% include 'x' %}",
    ],
)
def test_templates_cannot_leave_their_sandbox(template: str) -> None:
    refused(template)
    assert SCOPE["inputs"]["list"] == [1, "b"]


# ── Grammar ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "{{ x",
        "{{ }}",
        "{% if %}",
        "{% for x in y %}",
        "{{ x | nofilter }}",
        "{{ x is nothing_known }}",
        "{# x",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
    ],
)
def test_a_broken_template_is_known_before_it_runs(text: str) -> None:
    assert syntax_problem(text)
    with pytest.raises(TemplateProblem):
        compile_value(text)


@pytest.mark.parametrize("text", ["", "1 +", "a b", "x }} {{ y", "{% if x %}", "not"])
def test_a_broken_expression_is_known_before_it_runs(text: str) -> None:
    assert syntax_problem(text, expression=True)
    with pytest.raises(TemplateProblem):
        compile_expression(text)


@pytest.mark.parametrize(
    "text", ["", "plain", "{ }", "}}", "{{ a.b | quote }}", "a {{ b }} c", "{% raw %}{{ x{% endraw %}"]
)
def test_a_sound_template_has_no_problem(text: str) -> None:
    assert syntax_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 3000 + " }}",
        "x{{ a" + " + a" * 3000 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "{% for a in b %}" * 25 + "{% endfor %}" * 25,
    ],
)
def test_a_template_that_python_gives_up_on_is_a_problem_like_any_other(text: str) -> None:
    assert syntax_problem(text)


@pytest.mark.parametrize(
    "text", ["x{{ '%99999999d' % 1 }}", "{{ 'x' | center(99999999) | length }}", "{{ 'x' ~ 'y' * 9 }}"]
)
def test_a_template_is_not_computed_while_it_is_only_checked(text: str) -> None:
    tracemalloc.start()
    try:
        assert syntax_problem(text) is None
        assert references(text) == set()
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_range_without_end_is_cut_before_it_is_made() -> None:
    assert len(compile_expression("range(10000000000)")({})) == 100_000


def test_whitespace_control_around_a_template_that_stands_alone_changes_nothing() -> None:
    assert render(" {{- inputs.list -}} ") == [1, "b"]


# ── References ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", set()),
        ("{{ item }}", {("item", None, None)}),
        ("{{ steps.a.output.b.c }}", {("steps", "a", "output")}),
        ("{{ steps['a-b']['output'] }}", {("steps", "a-b", "output")}),
        ("x {{ steps.a.output | quote }} {{ inputs.b }}", {("steps", "a", "output"), ("inputs", "b", None)}),
        ("{{ steps.a.output.list[0].x }}", {("steps", "a", "output")}),
        ("{{ steps[item].output }}", {("steps", None, None), ("item", None, None)}),
        (
            "{% for x in steps.a.output %}{{ x.y }}{{ index }}{% endfor %}",
            {("steps", "a", "output"), ("index", None, None)},
        ),
        ("{% set v = inputs.a %}{{ v }}", {("inputs", "a", None)}),
        ("{{ item.a if steps.b.status == 'x' else 5 }}", {("steps", "b", "status"), ("item", "a", None)}),
        ("{{ 'steps.a' ~ inputs.b | default(steps.c.output) }}", {("inputs", "b", None), ("steps", "c", "output")}),
        ("{{ none }}{{ true }}{{ 5 }}", set()),
        ("{% raw %}{{ steps.a }}{% endraw %}{# {{ steps.b }} #}", set()),
    ],
)
def test_a_template_tells_what_it_looks_at(text: str, seen: set[tuple[str, str | None, str | None]]) -> None:
    assert references(text) == {Reference(*each) for each in seen}


@pytest.mark.parametrize("text", ["steps.a.output == 1", "{{ steps.a.output == 1 }}", " steps.a.output"])
def test_an_expression_tells_what_it_looks_at(text: str) -> None:
    assert references(text, expression=True) == {Reference("steps", "a", "output")}


pieces = st.sampled_from(
    ["steps", "inputs", "item", "true", "none", "not", "a", ".", ".b", ".output", "['c']", " ", "|", "quote", "json"]
) | st.sampled_from(
    ["{", "}", "{{", "}}", "{{ ", " }}", "{{ steps.a.output | quote }}", "{{inputs.b}}", "{%", "x", "\n", "-", "+"]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_the_short_way_of_reading_templates_sees_what_jinja_sees(text: str) -> None:
    # A comment in front leaves the meaning as it is, and only Jinja itself can read past it.
    in_full = "{# #}" + text
    assert (syntax_problem(text) is None) == (syntax_problem(in_full) is None)
    if syntax_problem(text) is None:
        assert references(text) == references(in_full)


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────────

DOUBLED = "{% set x = [1] %}" + "{% set x = [x, x] %}" * 40


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) | map('string') %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% for a in [[],[]] recursive %}{% if loop.depth < 40 %}{{ loop([[],[]]) }}{% endif %}{% endfor %}",
        "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
        + "{% call f() %}" * 40
        + "a"
        + "{% endcall %}" * 40,
        "{% set x = range(100000) * 80 %}{% for i in range(1000) %}{{ x | sort | length }}{% endfor %}",
        "{% set x = range(100000) * 80 %}{% for i in range(1000) %}{{ 'a' in x }}{% endfor %}",
        "{% for a in range(100000) %}{{ 'a' * 8000000 }}{% endfor %}",
        "{% for a in range(90000) %}" + "a" * 100_000 + "{% endfor %}",
        "{{ ('ab ' * 2000000) | wordwrap(1) | length }}x",
    ],
)
def test_b5_a_template_that_computes_without_end_is_refused(template: str) -> None:
    assert "it computes too long: a template may take 1,000,000 turns of its loops" in refused(template)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% set x = 'a' %}" + "{% set x = x + x %}" * 40, "67,108,864 characters"),
        ("{% set x = 'a' %}" + "{% set x = x ~ x %}" * 40, "67,108,864 characters"),
        (DOUBLED + "{{ x }}", "a list may have 10,000,000 values"),
        (DOUBLED + "{{ x | string | length }}", "a list may have 10,000,000 values"),
        ("{% set x = 99999999 %}" + "{% set x = x * x %}" * 40, "a number in a template may not be so long"),
        ("{{ '%999999999d' % 1 }}x", "format a value to more than 1,000,000"),
        ("{{ '%*d' % (999999999, 1) }}x", "format a value to more than 1,000,000"),
        ("{{ '%999999999d' | format(1) }}x", "format a value to more than 1,000,000"),
        ("{{ '{:>999999999}'.format(1) }}x", "format a value to more than 1,000,000"),
        ("{{ '{:>{}}'.format(1, 999999999) }}x", "format a value to more than 1,000,000"),
        ("{{ ('{0}' * 1000).format('a' * 8000000) }}x", "67,108,864 characters"),
        ("{{ 'a'.center(999999999) }}x", "67,108,864 characters"),
        ("{{ 'a' | center(999999999) }}x", "67,108,864 characters"),
        ("{{ 'a'.zfill(999999999) }}x", "67,108,864 characters"),
        ("{{ '\t'.expandtabs(999999999) }}x", "67,108,864 characters"),
        ("{{ 'a' | indent(999999999) }}x", "67,108,864 characters"),
        ("{{ [1] | json(indent=999999999) }}x", "67,108,864 characters"),
        ("{% set x = 'a' * 8000000 %}{{ x.replace('a', x) }}x", "67,108,864 characters"),
        ("{% set x = 'a' * 8000000 %}{{ x | replace('a', x) }}x", "67,108,864 characters"),
        ("{{ range(100000) | join('b' * 8000000) }}x", "67,108,864 characters"),
        ("{{ ('b' * 8000000).join(range(1000) | map('string')) }}x", "67,108,864 characters"),
        ("{{ [1] | slice(999999999) | list }}x", "67,108,864 characters"),
        ("{{ ([[1]] * 100000) | sum(start=[]) | length }}x", "67,108,864 characters"),
        ("{{ 1.5 | round(999999999) }}x", "67,108,864 characters"),
        ("{{ (1).to_bytes(999999999, 'big') | length }}x", "67,108,864 characters"),
    ],
)
def test_b5_what_a_template_would_make_too_long_is_refused_before_it_is_made(template: str, reason: str) -> None:
    tracemalloc.start()
    try:
        assert reason in refused(template)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("{% for a in range(100000) %}{{ a | string | trim }}{% endfor %}", 488_890),
        ("{% for a in range(100000) if a is odd %}{{ loop.last }}{% endfor %}", 250_000 - 1),
        ("{% set x = range(100000) * 2 %}{{ x | sort | unique | join(' ') }}", 588_889),
        ("{{ ('a' * 8000000) | replace('a', 'bb') | upper }}x", 16_000_001),
        ("{{ '%-9s|' % 'a' }}{{ '{:>9}'.format('b') }}{{ ', '.join(['a', 'b']) }}{{ 'a'.ljust(7) }}", 30),
        ("{% for a in range(3) recursive %}{% if a is number %}{{ loop([[]]) }}{% endif %}.{% endfor %}", 6),
    ],
)
def test_b5_templates_with_much_to_do_are_filled_in(template: str, made: int) -> None:
    assert len(render(template)) == made
