"""The order in a plan: who waits for whom."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.plan.graph import Graph, find_cycle, step_references, templates_of
from windlass.plan.model import Plan, Step
from windlass.plan.template import Reference


def graph_of(*steps: Step) -> Graph:
    return Graph.of(Plan(steps=steps))


def test_a_step_waits_for_its_needs_and_for_what_its_templates_look_at() -> None:
    graph = graph_of(
        Step(id="a", run="x"),
        Step(id="b", run="x"),
        Step(id="c", run="x"),
        Step(id="d", run="echo {{ steps.c.output | quote }}", when="steps.b.output", needs=("a",)),
    )
    assert graph.needs["d"] == ("a", "b", "c")
    assert graph.dependents == {"a": ("d",), "b": ("d",), "c": ("d",), "d": ()}


def test_a_step_that_reads_a_status_in_its_condition_is_in_charge_of_it() -> None:
    graph = graph_of(
        Step(id="a", run="x"),
        Step(id="b", run="x"),
        Step(id="tidy", run="x", when="steps.a.status == 'failed' and steps.b.output"),
        Step(id="tell", run=("echo", "{{ steps.a.status }}")),
    )
    assert graph.in_charge == {"tidy": frozenset({"a"})}


def test_every_template_of_a_step_is_found_with_its_place() -> None:
    step = Step.model_validate(
        {
            "id": "a",
            "tool": "t",
            "when": "x",
            "foreach": ["{{ a }}", 1],
            "with": {"k": {"l": ["no", "{{ b }}"]}, "m": "{% c %}", "n": 5},
        }
    )
    assert list(templates_of(step)) == [
        ("when", "x", True),
        ("foreach[0]", "{{ a }}", False),
        ("with.k.l[1]", "{{ b }}", False),
        ("with.m", "{% c %}", False),
    ]


def test_the_references_of_a_step_are_those_of_all_its_templates() -> None:
    step = Step(id="a", run=("{{ inputs.x }}", "{{ steps.b.output.y }}"), foreach="steps.c.output")
    assert step_references(step) == {
        Reference("inputs", "x", None),
        Reference("steps", "b", "output"),
        Reference("steps", "c", "output"),
    }


def test_descendants_are_listed_once_and_nearest_first() -> None:
    graph = graph_of(
        Step(id="a", run="x"),
        Step(id="b", run="x", needs=("a",)),
        Step(id="c", run="x", needs=("a",)),
        Step(id="d", run="x", needs=("b", "c")),
        Step(id="e", run="x"),
    )
    assert graph.descendants("a") == ["b", "c", "d"]
    assert graph.descendants("e") == []


def test_the_order_keeps_to_the_plan_where_it_may() -> None:
    graph = graph_of(
        Step(id="late", run="x", needs=("b",)),
        Step(id="a", run="x"),
        Step(id="b", run="x"),
    )
    assert graph.order == ("a", "b", "late")


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({}, None),
        ({"a": [], "b": ["a"], "c": ["a", "b"]}, None),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"]),
        ({"a": ["unknown"]}, None),
    ],
)
def test_a_cycle_is_given_whole_or_not_at_all(needs: dict[str, list[str]], cycle: list[str] | None) -> None:
    assert find_cycle(dict(needs)) == cycle


def test_a_chain_of_20000_steps_does_not_exhaust_the_stack() -> None:
    needs = {str(n): [str(n + 1)] for n in range(20_000)}
    assert find_cycle({**needs, "20000": []}) is None
    found = find_cycle({**needs, "20000": ["0"]})
    assert found is not None
    assert len(found) == 20_002


@given(st.dictionaries(st.integers(0, 8).map(str), st.lists(st.integers(0, 8).map(str), max_size=4)))
def test_a_cycle_is_found_exactly_when_there_is_no_order(needs: dict[str, list[str]]) -> None:
    known = {step: [need for need in of if need in needs] for step, of in needs.items()}
    cycle = find_cycle(dict(needs))
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert all(after in known[before] for before, after in pairwise(cycle))
    settled: set[str] = set()
    while ready := {s for s, of in known.items() if s not in settled and settled.issuperset(of)}:
        settled |= ready
    assert (cycle is None) == (settled == set(known))


def test_b5_a_step_waits_for_a_step_that_its_protected_files_look_at() -> None:
    graph = graph_of(
        Step(id="find", run="x"),
        Step(id="fix", prompt="p", check=("true",), protect=("{{ steps.find.output.stdout }}",)),
    )
    assert graph.needs["fix"] == ("find",)


def test_b5_the_page_of_plans_lists_every_key_that_takes_templates() -> None:
    text = "{{ inputs.x }}"
    agent = {"prompt": text, "files": [text], "check": [text], "protect": [text], "question": text, "workdir": text}
    steps = [
        {"prompt": text, "model": text, "workspace": {"kind": "worktree", "files": [text]}},
        {"prompt": text, "models": [text, text], "check": "true"},
        agent | {"when": text, "foreach": text, "pick": {"check": [text]}, "approve": "always"},
        {"run": text, "with": {"stdin": text}, "env": {"A": text}, "service": {"port": text}},
        {"run": "x", "foreach": [text]},
        {"merge": "a", "only": text},
    ]
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for step in steps:
        for where, _text, expression in templates_of(Step.model_validate({"id": "b", **step})):
            found[expression].add(re.split(r"[.\[]", where)[0])
    page = (Path(__file__).parents[2] / "docs" / "plans.md").read_text()
    filled, expressions = page.partition("## Templates\n")[2].partition("The language")[0].split("foreach` list.")
    assert set(re.findall(r"`([a-z]+)`", filled + "foreach`")) == found[False]
    assert set(re.findall(r"`([a-z]+)`", expressions)) == found[True]
