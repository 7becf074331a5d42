"""Checks: every mistake is found at once, told once, in plain words, with its line.

In the plans below, `#!` marks the line that the problem must name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import PlanInvalid, Problem
from windlass.plan.check import check_data
from windlass.plan.load import check_plan, load_text
from windlass.plan.model import MAX_STEPS, Plan, Step
from windlass.plan.schema import plan_schema
from windlass.schemas import misfits


class Catalogue:
    """Two tools, one of which is particular about its arguments."""

    def names(self) -> list[str]:
        return ["shell", "files.write"]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        if name == "files.write" and "path" not in arguments:
            return ["`path` is missing"]
        return []

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        return [f"{key!r} is not an argument" for key in given if key == "pth"]


def problems_of(text: str, file: str = "plan.yaml") -> tuple[Problem, ...]:
    with pytest.raises(PlanInvalid) as caught:
        load_text(dedent(text), file=file, tools=Catalogue())
    return caught.value.problems


def warnings_of(text: str) -> tuple[Problem, ...]:
    return load_text(dedent(text), file="plan.yaml", tools=Catalogue()).warnings


BAD = {
    # ── the plan ──
    "a list": ("- id: a #!\n  run: x\n", "a plan is a mapping with `steps`, but this is a list"),
    "only text": ("hello #!\n", "but this is the text 'hello'"),
    "no steps": ("name: x #!\n", "`steps` is missing"),
    "empty steps": ("steps: [] #!\n", "`steps` is empty"),
    "null steps": ("name: x\nsteps: #!\n", "`steps`: expected a list, found nothing"),
    "steps as a mapping": ("steps: #!\n  a: {run: x}\n", "`steps`: expected a list, found a mapping"),
    "an unknown plan key": ("nmae: x #!\nsteps: [{id: a, run: x}]\n", "unknown key `nmae`", "`name`"),
    "a misspelt steps": ("name: x\nstep: #!\n  - {id: a, run: x}\n", "unknown key `step`", "`steps`"),
    "a key of limits at the top": (
        "parallel: 2 #!\nsteps: [{id: a, run: x}]\n",
        "unknown key `parallel`",
        "belongs in the plan's `limits`",
    ),
    "a key of a step at the top": (
        "run: ls #!\nsteps: [{id: a, run: x}]\n",
        "unknown key `run`",
        "belongs in a step",
    ),
    "a key like nothing known": (
        "zzzz: 1 #!\nsteps: [{id: a, run: x}]\n",
        "unknown key `zzzz`",
        "known here: name, description, inputs",
    ),
    "a number for a name": (
        "name: 5 #!\nsteps: [{id: a, run: x}]\n",
        "`name`: expected text, found the number 5",
        "quotes",
    ),
    "an empty name": ("name: '' #!\nsteps: [{id: a, run: x}]\n", "`name` is empty"),
    "a name without end": (f"name: {'x' * 201} #!\nsteps: [{{id: a, run: x}}]\n", "longer than 200 characters"),
    "inputs as a list": (
        "inputs: [a] #!\nsteps: [{id: a, run: 'echo {{ inputs.b }}'}]\n",
        "`inputs`: expected a mapping, found a list",
    ),
    "an input that cannot be named": (
        "inputs:\n  a b: 1 #!\nsteps: [{id: a, run: x}]\n",
        "'a b' is not a valid name",
        "letters",
    ),
    "a budget below nothing": ("budget: {usd: -2} #!\nsteps: [{id: a, run: x}]\n", "`budget.usd` must be at least 0"),
    "an unknown unit of money": ("budget:\n  eur: 2 #!\nsteps: [{id: a, run: x}]\n", "unknown key `eur` in `budget`"),
    "an unknown limit": (
        "limits:\n  paralel: 2 #!\nsteps: [{id: a, run: x}]\n",
        "unknown key `paralel` in `limits`",
        "`parallel`",
    ),
    "a limit below its bound": (
        "limits:\n  parallel: 0 #!\nsteps: [{id: a, run: x}]\n",
        "`limits.parallel` must be at least 1, not 0",
    ),
    "a limit above its bound": ("limits:\n  parallel: 1001 #!\nsteps: [{id: a, run: x}]\n", "must be at most 1000"),
    "a limit that is text": (
        "limits:\n  parallel: many #!\nsteps: [{id: a, run: x}]\n",
        "expected a whole number, found the text 'many'",
    ),
    "half a limit": (
        "limits:\n  parallel: 1.5 #!\nsteps: [{id: a, run: x}]\n",
        "expected a whole number, found the number 1.5",
    ),
    "limits as a number": ("limits: 5 #!\nsteps: [{id: a, run: x}]\n", "`limits`: expected a mapping"),
    "a limit that is no duration": (
        "limits:\n  timeout: soon #!\nsteps: [{id: a, run: x}]\n",
        "'soon' is not a duration",
    ),
    # ── a step ──
    "a step that is text": (
        "steps:\n  - {id: a, run: x}\n  - build #!\n",
        "step 2: expected a mapping, found the text 'build'",
    ),
    "a step without an id": ("steps:\n  - run: x #!\n", "step 1: `id` is missing"),
    "a misspelt id": ("steps:\n  - ids: a #!\n    run: x\n", "step 1: unknown key `ids`", "`id`"),
    "a number for an id": ("steps:\n  - id: 5 #!\n    run: x\n", "`id`: expected text, found the number 5"),
    "an id with a space": ("steps:\n  - id: a b #!\n    run: x\n", "'a b' is not a valid name"),
    "an empty id": ("steps:\n  - id: '' #!\n    run: x\n", "`id` is empty"),
    "an unknown step key": (
        "steps:\n  - id: a\n    run: x\n    retrys: 3 #!\n",
        "step a: unknown key `retrys`",
        "`retry`",
    ),
    "a step key by another name": (
        "steps:\n  - id: a\n    run: x\n    depends_on: [] #!\n",
        "unknown key `depends_on`",
        "`needs`",
    ),
    "nothing to do": (
        "steps:\n  - id: a #!\n",
        "step a: a step has exactly one of `run`, `tool`, `agent`, `code` and `merge`",
    ),
    "two things to do": (
        "steps:\n  - id: a #!\n    run: x\n    tool: shell\n",
        "exactly one of `run`, `tool`, `agent`, `code` and `merge`",
    ),
    "an empty run": ("steps:\n  - id: a\n    run: '' #!\n", "`run` is empty"),
    "a number to run": ("steps:\n  - id: a\n    run: 5 #!\n", "`run`: expected text or a list, found the number 5"),
    "a number in a run list": (
        "steps:\n  - id: a\n    run:\n      - head\n      - -5 #!\n",
        "`run[1]`: expected text, found the number -5",
        "quotes",
    ),
    "arguments as a list": (
        "steps:\n  - id: a\n    tool: shell\n    with: [1] #!\n",
        "`with`: expected a mapping, found a list",
    ),
    "empty needs": (
        "steps:\n  - id: a\n    needs: #!\n    run: x\n",
        "`needs`: expected text or a list, found nothing",
    ),
    "a number for when": (
        "steps:\n  - id: a\n    when: 5 #!\n    run: x\n",
        "`when`: expected text, true or false, found the number 5",
    ),
    "a word for approve": (
        "steps:\n  - id: a\n    run: x\n    approve: yes #!\n",
        "`approve`: expected always, sensitive, auto or never, found the text 'yes'",
    ),
    "a misspelt importance": (
        "steps:\n  - id: a\n    run: x\n    importance: criticl #!\n",
        "expected critical, normal or optional",
        "`critical`",
    ),
    "a timeout of nothing": (
        "steps:\n  - id: a\n    run: x\n    timeout: 0 #!\n",
        "`timeout`: a duration must be more than 0",
    ),
    "an unknown retry key": (
        "steps:\n  - id: a\n    run: x\n    retry:\n      dely: 3 #!\n",
        "unknown key `dely` in `retry`",
        "`delay`",
    ),
    "fewer retries than none": ("steps:\n  - id: a\n    run: x\n    retry: -1 #!\n", "`retry.max` must be at least 0"),
    "an agent without a prompt": (
        "steps:\n  - id: a #!\n    agent: dev\n",
        "step a: an agent needs a `prompt`",
    ),
    "tries without anything to try": (
        "steps:\n  - id: a\n    prompt: hi\n    tries: 2 #!\n",
        "this step has neither",
    ),
    "a check of pick without an agent": (
        "steps:\n  - id: a\n    run: ls\n    foreach: [1]\n    pick: {check: ls} #!\n",
        "`pick.check` is for agents",
    ),
    "an empty check of pick": (
        "steps:\n  - id: a\n    prompt: hi\n    foreach: [1]\n    pick: {check: []} #!\n",
        "`pick.check` is empty",
    ),
    "a pick by another word": (
        "steps:\n  - id: a\n    prompt: hi\n    foreach: [1]\n    pick: best #!\n",
        "`pick`: expected 'first' or a mapping, found the text 'best'",
    ),
    "only without a merge": (
        "steps:\n  - id: a\n    prompt: hi\n    only: 1 #!\n",
        "`only` names the items that a `merge` takes",
    ),
    "only of a step with one branch": (
        "steps:\n  - id: a\n    prompt: hi\n    workspace: worktree\n  - id: b\n    merge: a\n    only: 0 #!\n",
        "`only` chooses among items, and step `a` has one branch",
    ),
    "only of a step that is not there": (
        "steps:\n  - id: a\n    prompt: hi\n    foreach: [1]\n    workspace: worktree\n"
        "  - id: b\n    merge: a\n    only: steps.judge.output #!\n",
        "refers to `steps.judge`, which is not a step of this plan",
    ),
    "a merge with tries": (
        "steps:\n  - id: a\n    prompt: hi\n    workspace: worktree\n  - id: b\n    merge: a\n    tries: 2 #!\n",
        "`tries` is for agents",
    ),
    "a pick without items": (
        "steps:\n  - id: a\n    run: x\n    pick: first #!\n",
        "`pick` takes one of the items of a `foreach`",
    ),
    "protected files without a check": (
        "steps:\n  - id: a\n    prompt: hi\n    protect: tests/ #!\n",
        "`protect` names files that `check` needs",
    ),
    "a protected file outside": (
        "steps:\n  - id: a\n    prompt: hi\n    check: x\n    protect: tests/../../a #!\n",
        "`protect` names files in the working directory, and 'tests/../../a' is none",
    ),
    "a protected file of a home": (
        "steps:\n  - id: a\n    prompt: hi\n    check: x\n    protect: [tests, ~/a] #!\n",
        "`protect` names files in the working directory, and '~/a' is none",
    ),
    "a protected file without a name": (
        "steps:\n  - id: a\n    prompt: hi\n    check: x\n    protect: '' #!\n",
        "`protect` names files in the working directory, and '' is none",
    ),
    "several models and one": (
        "steps:\n  - id: a\n    prompt: hi\n    check: x\n    model: m #!\n    models: [m, n]\n",
        "`model` and `models` are both given",
    ),
    "several models without a check": (
        "steps:\n  - id: a\n    prompt: hi\n    models: [m, n] #!\n",
        "this step has neither",
    ),
    "several models and too few tries": (
        "steps:\n  - id: a #!\n    prompt: hi\n    check: x\n    tries: 3\n    models: [m, n, o]\n",
        "never comes to the last of `models`: it takes 5",
    ),
    "an agent whose prompt says nothing": (
        "steps:\n  - id: a #!\n    prompt: '  '\n",
        "step a: an agent needs a `prompt`",
    ),
    "an agent with arguments": (
        "steps:\n  - id: a\n    agent: dev\n    prompt: hi\n    with: {x: 1} #!\n",
        "`with` is for tools",
    ),
    "a prompt beside a command": (
        "steps:\n  - id: a #!\n    run: x\n    prompt: hi\n",
        "exactly one of `run`, `tool`, `agent`, `code` and `merge`",
    ),
    "a runtime without an agent": (
        "steps:\n  - id: a\n    run: x\n    runtime: cli #!\n",
        "`runtime` is for agents",
    ),
    "a model without an agent": ("steps:\n  - id: a\n    run: x\n    model: y #!\n", "`model` is for agents"),
    "skills without an agent": ("steps:\n  - id: a\n    run: x\n    skills: [y] #!\n", "`skills` is for agents"),
    "an unknown permission": (
        "steps:\n  - id: a\n    prompt: hi\n    permissions:\n      mood: ask #!\n",
        "unknown key `mood` in `permissions`",
        "`mode`",
    ),
    "a handoff from nobody": (
        "steps:\n  - id: a\n    prompt: hi\n    handoff: [b] #!\n",
        "it needs `b`, which is not a step of this plan",
    ),
    "files without an agent": ("steps:\n  - id: a\n    run: x\n    files: [y] #!\n", "`files` is for agents"),
    # ── steps together ──
    "an id taken twice": (
        "steps:\n  - id: a\n    run: x\n  - run: y\n    id: a #!\n",
        "step a: this id is already used on line 2",
    ),
    "a need of an unknown step": (
        "steps:\n  - id: build\n    run: x\n  - id: b\n    run: x\n    needs:\n      - biuld #!\n",
        "step b: it needs `biuld`, which is not a step of this plan",
        "`build`",
    ),
    "a need that is not in a list": (
        "steps:\n  - {id: build, run: x}\n  - id: b\n    run: x\n    needs: biuld #!\n",
        "it needs `biuld`",
    ),
    "a need of itself": ("steps:\n  - id: a\n    needs: [a] #!\n    run: x\n", "step a: it depends on itself"),
    "a cycle": (
        "steps:\n  - {id: z, run: x}\n  - id: a\n    needs: [c] #!\n    run: x\n"
        "  - {id: b, run: x, needs: [a, z]}\n  - {id: c, run: x, needs: [b]}\n",
        "these steps wait for each other: a → c → b → a",
    ),
    "a cycle through templates": (
        "steps:\n  - {id: a, run: ['{{ steps.b.output }}']} #!\n  - {id: b, run: ['{{ steps.a.output }}']}\n",
        "these steps wait for each other: a → b → a",
    ),
    # ── templates ──
    "a template that does not end": (
        "steps:\n  - id: a\n    run: echo {{ inputs.x #!\n",
        "`run` is not a valid template",
    ),
    "a template with an unknown filter": (
        "inputs: {x: 1}\nsteps:\n  - id: a\n    run: echo {{ inputs.x | qoute }} #!\n",
        "No filter named 'qoute'",
    ),
    "a word for dollars": (
        "steps: [{id: a, run: x}]\nbudget: two #!\n",
        "`budget`: expected dollars like 2.50 or a mapping like {usd: 2.50, tokens: 500000}, found the text 'two'",
    ),
    "a word for a number of retries": (
        "steps:\n  - id: a\n    run: x\n    retry: many #!\n",
        "step a: `retry`: expected a whole number like 3 or a mapping like {max: 3, delay: 2s}, found the text 'many'",
    ),
    "a patience that is none": (
        "steps:\n  - id: a\n    prompt: x\n    retry: {patience: soon} #!\n",
        "step a: `retry.patience`: 'soon' is not a duration",
    ),
    "a condition that is none": ("steps:\n  - id: a\n    when: 1 + #!\n    run: x\n", "`when` is not a valid template"),
    "a look at an unknown step": (
        "steps:\n  - {id: build, run: x}\n  - id: b\n    run: ['{{ steps.biuld.output }}'] #!\n",
        "`run[0]` refers to `steps.biuld`, which is not a step of this plan",
        "`steps.build`",
    ),
    "a look at its own step": (
        "steps:\n  - id: a\n    run: ['{{ steps.a.output }}'] #!\n",
        "`run[0]` refers to its own step",
    ),
    "a look at an unknown field": (
        "steps:\n  - {id: a, run: x}\n  - id: b\n    tool: files.write\n    with:\n      path: x\n      content:\n"
        "        text: '{{ steps.a.stdout }}' #!\n",
        "`with.content.text` refers to `steps.a.stdout`, but a step has only output, status, error, errors, id",
        "`steps.a.output.stdout`",
    ),
    "a look at a misspelt field": (
        "steps:\n  - {id: a, run: x}\n  - id: b\n    when: steps.a.staus == 'failed' #!\n    run: x\n",
        "refers to `steps.a.staus`",
        "`steps.a.status`",
    ),
    "a look at an unknown part of a command's output": (
        "steps:\n  - {id: a, run: x}\n  - id: b\n    run: ['{{ steps.a.output.stdot | trim }}'] #!\n",
        "`run[0]` refers to `steps.a.output.stdot`, but the output of a command has only exit_code, stdout, stderr,",
        "`steps.a.output.stdout`",
    ),
    "a key that a closed schema of an agent does not have": (
        "steps:\n  - id: j\n    prompt: x\n    output: {properties: {approved: {}}, additionalProperties: false}\n"
        "  - id: b\n    when: steps.j.output.aproved #!\n    run: x\n",
        "`when` refers to `steps.j.output.aproved`, but its schema has only approved",
        "did you mean `steps.j.output.approved`?",
    ),
    "items of a command": (
        "steps:\n  - {id: a, run: x}\n  - id: b\n    foreach: steps.a.output #!\n    run: x\n",
        "step b: `foreach` needs a list, and `steps.a.output` of a command is none",
        "steps.a.output.stdout | from_json",
    ),
    "items of a command's text": (
        "steps:\n  - {id: a, run: x}\n  - id: b\n    foreach: '{{ steps.a.output.stdout }}' #!\n    run: x\n",
        "step b: `foreach` needs a list, and `steps.a.output.stdout` of a command is none",
    ),
    "items of a number": (
        "steps:\n  - id: b\n    foreach: '3' #!\n    run: x\n",
        "step b: `foreach` needs a list, and `3` is none",
    ),
    "items of a text": (
        "steps:\n  - id: b\n    foreach: \"'a, b'\" #!\n    run: x\n",
        "step b: `foreach` needs a list, and `'a, b'` is none",
    ),
    "items of a mapping": (
        "inputs: {n: 1}\nsteps:\n  - id: b\n    foreach: \"{{ {'a': inputs.n} }}\" #!\n    run: x\n",
        "step b: `foreach` needs a list, and `{{ {'a': inputs.n} }}` is none",
    ),
    "items of a comparison": (
        "inputs: {n: 1}\nsteps:\n  - id: b\n    foreach: inputs.n > 1 #!\n    run: x\n",
        "step b: `foreach` needs a list, and `inputs.n > 1` is none",
    ),
    "items of an input that is no list": (
        "inputs: {hosts: 'a, b'}\nsteps:\n  - id: b\n    foreach: inputs.hosts #!\n    run: x\n",
        "step b: `foreach` needs a list, and the input `hosts` is the text 'a, b'",
    ),
    "a look at an unknown input": (
        "inputs: {since: v1}\nsteps:\n  - id: a\n    run: ['{{ inputs.sinse }}'] #!\n",
        "refers to `inputs.sinse`, which is not an input of this plan",
        "`inputs.since`",
    ),
    "a look at the environment": (
        "steps:\n  - id: a\n    run: ['{{ env.HOME }}'] #!\n",
        "templates cannot read the environment",
        "$NAME",
    ),
    "a look at something unknown": (
        "steps:\n  - id: a\n    run: ['{{ input.x }}'] #!\n",
        "refers to `input`, which does not exist",
        "`inputs`",
    ),
    "a look at a step by its bare name": (
        "steps:\n  - {id: build, run: x}\n  - id: b\n    run: ['{{ build }}'] #!\n",
        "refers to `build`, which does not exist",
        "`steps.build.output`",
    ),
    "a look at an input by its bare name": (
        "inputs: {since: v1}\nsteps:\n  - id: a\n    run: ['{{ since }}'] #!\n",
        "refers to `since`, which does not exist",
        "`inputs.since`",
    ),
    "a look at an unknown part of the execution": (
        "steps:\n  - id: a\n    run: ['{{ execution.user }}'] #!\n",
        "an execution has only id, workdir, plan",
    ),
    "an item without foreach": (
        "steps:\n  - id: a\n    run: ['{{ item }}'] #!\n",
        "refers to `item`, which only a step with `foreach` has",
    ),
    "an item in the condition of a foreach": (
        "steps:\n  - id: a\n    foreach: [1]\n    when: item > 1 #!\n    run: x\n",
        "`when` refers to `item`, but is evaluated before the items exist",
    ),
    "a hyphen that reads as a minus": (
        "steps:\n  - {id: my-step, run: x}\n  - id: b\n    run: ['{{ steps.my-step.output }}'] #!\n",
        "a hyphen that is read as a minus",
        'steps["my-step"]',
    ),
    # ── tools ──
    "an unknown tool": (
        "steps:\n  - id: a\n    tool: file.write #!\n    with: {path: x}\n",
        "there is no tool `file.write`",
        "`files.write`",
    ),
    "arguments that a tool refuses": (
        "steps:\n  - id: a\n    tool: files.write\n    with: {content: x} #!\n",
        "step a: `path` is missing",
    ),
    # ── the text ──
    "a key given twice": ("steps:\n  - id: a\n    run: x\n    run: y #!\n", "`run` is already on line 3"),
    "a key that is no text": ("steps:\n  - id: a\n    run: x\n    5: y #!\n", "the key 5 is not text"),
    "an unquoted template": ("steps:\n  - id: a\n    run: {{ inputs.x }} #!\n", "must be in quotes"),
    "a Python object": ("steps:\n  - id: a\n    run: !!python/name:os.system x #!\n", "!!python/name:os.system"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_gets_one_problem_in_plain_words_on_the_right_line(name: str) -> None:
    text, message, *hint = BAD[name]
    [problem] = problems_of(text)
    assert message in problem.message
    assert all(part in problem.hint for part in hint)
    assert problem.line == 1 + next(n for n, line in enumerate(text.splitlines()) if "#!" in line)
    assert problem.column is not None
    assert problem.file == "plan.yaml"
    assert not re.search(r"pydantic|Input should|https?:|NoneType|validation error", str(problem))


def test_all_problems_of_a_plan_are_told_at_once_in_the_order_of_the_file() -> None:
    problems = problems_of("""\
        nmae: x
        inputs: {since: v1}
        limits: {paralel: 3}
        steps:
          - id: a
            run: echo {{ inputs.sinse | quote }}
            retires: 3
          - id: b
            needs: [aa, a]
            tool: file.write
          - id: c
            agent: dev
          - id: b
            run: x
            run: y
    """)
    assert [problem.line for problem in problems] == [1, 3, 6, 7, 9, 10, 11, 13, 15]


def test_b5_an_unknown_filter_hides_no_other_problem_of_the_template() -> None:
    found = problems_of("""\
        steps:
          - {id: a, run: ["{{ inputs.nope | qoute }} {{ item }} {{ steps.x.output }}"]}
        """)
    assert len(found) == 4
    for part in ("No filter named 'qoute'", "`inputs.nope`", "`item`", "`steps.x`"):
        assert sum(part in problem.message for problem in found) == 1, part


def test_b5_a_number_in_quotes_is_one_where_a_key_takes_nothing_else() -> None:
    plan = load_text('{limits: {parallel: "3"}, steps: [{id: a, run: x, retry: {max: "2"}}]}').plan
    assert (plan.limits.parallel, plan.steps[0].retry.max) == (3, 2)


def test_a_problem_names_its_path() -> None:
    [problem] = problems_of("steps:\n- {id: a, run: x}\n- {id: b, run: x, needs: [a, c]}\n")
    assert problem.where == "steps[1].needs[1]"
    assert str(problem) == "plan.yaml:3:30: step b: it needs `c`, which is not a step of this plan"


def test_lines_are_named_in_json_too() -> None:
    text = """{"name": "\\ud83d\\ude00", "steps": [
        {"id": "a", "run": "x"},
        {"id": "b", "run": "x",
         "nedes": ["a"]}]}"""
    with pytest.raises(PlanInvalid) as caught:
        load_text(text, file="plan.json")
    [problem] = caught.value.problems
    assert (problem.line, problem.column) == (4, 10)
    assert "unknown key `nedes`" in problem.message


# ── One root cause, one problem ──────────────────────────────────────────────────────────────────────


def test_a_step_with_a_bad_field_is_still_a_step_that_others_can_need() -> None:
    problems = problems_of("""\
        steps:
          - {id: a, run: x, retires: 3}
          - {id: b, needs: [a], run: ["{{ steps.a.output }}"]}
          - {id: c d, run: x}
          - {id: e, needs: [c d], run: x}
    """)
    assert [problem.line for problem in problems] == [2, 4]


def test_a_step_with_a_bad_field_is_checked_for_the_rest() -> None:
    problems = problems_of("""\
        steps:
          - id: a
            retires: 3
            needs: [b]
            run: ["{{ inputs.x }}"]
    """)
    assert [problem.line for problem in problems] == [3, 4, 5]


def test_a_step_without_an_id_does_not_make_those_unknown_that_look_for_it() -> None:
    problems = problems_of("""\
        steps:
          - {ids: a, run: x}
          - {id: b, needs: [a], run: ["{{ steps.a.output }}"]}
    """)
    assert [problem.line for problem in problems] == [2]


def test_a_foreach_that_is_misspelt_or_wrong_does_not_make_its_items_unknown() -> None:
    problems = problems_of("""\
        steps:
          - {id: a, for_each: [1], run: ["{{ item }}"]}
          - {id: b, foreach: 5, run: ["{{ index }}"]}
    """)
    assert [problem.line for problem in problems] == [2, 3]
    assert problems[1].hint == "give a list, or an expression of one like inputs.names"


def test_a_template_in_a_key_is_a_warning() -> None:
    text = "inputs: {k: A}\nsteps:\n- {id: a, tool: files.write, with: {path: a, content: [{'{{ inputs.k }}': 1}]}}\n"
    [warning] = warnings_of(text)
    assert warning.message == "step a: `with` has the key `{{ inputs.k }}`, which stays as it is"
    assert (warning.line, warning.hint) == (3, "only values are filled in")


def test_bad_arguments_are_not_also_put_to_the_tool() -> None:
    problems = problems_of("steps:\n- id: a\n  tool: files.write\n  with: [x]\n")
    assert len(problems) == 1


def test_several_cycles_are_each_shown_once() -> None:
    problems = problems_of("""\
        steps:
          - {id: a, needs: [b], run: x}
          - {id: b, needs: [a], run: x}
          - {id: c, needs: [d, a], run: x}
          - {id: d, needs: [c], run: x}
    """)
    assert [problem.message.split(": ")[1] for problem in problems] == ["a → b → a", "c → d → c"]


def test_a_cycle_through_thousands_of_steps_is_found_and_abridged() -> None:
    steps = [Step(id=f"s{n}", run="x", needs=(f"s{(n + 1) % 5000}",)) for n in range(5000)]
    [problem] = check_plan(Plan(steps=tuple(steps)))
    assert problem.message.startswith("these steps wait for each other: s0 → s1 → ")
    assert "(4950 more)" in problem.message
    assert problem.message.endswith("→ s4999 → s0")


def test_thousands_of_problems_are_found_without_thousands_of_guesses() -> None:
    steps = [{"id": f"step{n}", "run": "x", "needs": [f"stop{n}"]} for n in range(5000)]
    found = check_data({"steps": steps}).problems
    assert len(found) == 5000
    assert found[0].hint
    assert not found[-1].hint


# ── What is allowed ──────────────────────────────────────────────────────────────────────────────────

GOOD = {
    "every root": """
        inputs: {x: 1, list: [1]}
        steps:
          - {id: a, run: [echo, "{{ inputs.x }} {{ inputs['x'] }} {{ execution.id }} {{ execution.workdir }}"]}
          - {id: b, foreach: inputs.list, run: ["{{ item }}", "{{ index }}", "{{ steps.a.output.stdout[0] }}"]}
          - {id: c, when: "steps.b.status == 'failed' and steps.b.error.message", run: ["{{ steps['a'].id }}"]}
    """,
    "what blocks bring": """
        inputs: {list: [1]}
        steps:
          - id: a
            run:
              - "{% for x in inputs.list %}{{ loop.index }} {{ x }}{% endfor %}"
              - "{% set y = 1 %}{{ y }}{{ range(3) | json }}"
              - "{% macro m(z) %}{{ z }}{{ caller() }}{% endmacro %}{% call m(1) %}x{% endcall %}{{ m(2) }}"
              - "{% for key, value in inputs.items() %}{{ key }}{% endfor %}"
    """,
    "outputs of commands": """
        steps:
          - {id: a, run: x}
          - {id: b, foreach: steps.a.output.stdout | from_json, run: x}
          - {id: c, foreach: steps.b.output, run: ["{{ item.stdout }}", "{{ steps.a.output.stdout.splitlines()[0] }}"]}
          - {id: d, foreach: [1], pick: first, run: ["{{ steps.a.output.get('stdout') }}"]}
          - {id: e, tool: files.write, with: {path: "{{ steps.d.output.stdout }}"}}
          - {id: f, foreach: steps.e.output, run: ["{{ steps.e.output.any.thing }}"]}
    """,
    "lists of all kinds": """
        inputs: {list: [1], any: null, number: 2}
        steps:
          - {id: a, foreach: inputs.list, run: x}
          - {id: b, foreach: inputs.any, run: x}
          - {id: c, foreach: "[1, inputs.number]", run: x}
          - {id: d, foreach: "{{ range(inputs.number) }}", run: x}
          - {id: e, foreach: "inputs.any or [2]", run: x}
          - {id: f, foreach: "inputs.list + [2]", run: x}
    """,
    "hyphens": """
        inputs: {my-input: 1}
        steps:
          - {id: my-step, run: x}
          - {id: b, run: ['{{ steps["my-step"].output }}', '{{ inputs["my-input"] - 1 }}']}
    """,
    "hyphens outside of templates": """
        inputs: {x: 1, x-1: 2}
        steps:
          - {id: my-step, run: x}
          - {id: b, run: [steps.my-step, "steps.my-step {{ inputs.x-1 }}", "{{ 'steps.my-step' ~ inputs.x }}"]}
    """,
    "short forms": """
        steps:
          - {id: a, run: x, retry: 2, timeout: 1h30m, when: true}
          - {id: b, run: x, needs: a, foreach: [1, "{{ steps.a.output }}"]}
    """,
    "braces that are no template": """
        steps:
          - {id: a, run: "awk '{print $1}' | jq '{a: .b}'"}
    """,
    "arguments with templates, whose values no tool sees yet": """
        inputs: {p: x}
        steps:
          - {id: a, tool: files.write, with: {path: "{{ inputs.p }}"}}
    """,
    "anchors and merges": """
        steps:
          - &first {id: a, run: x, timeout: 5m}
          - {<<: *first, id: b}
    """,
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_plan_passes_with(name: str) -> None:
    assert warnings_of(GOOD[name]) == ()


# ── Warnings ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "work",
    [
        'run: "echo {{ inputs.x }}"',
        'run: "echo {{ inputs.x | quote }} {{ inputs.x }}"',
        'run: "echo {{ inputs.x | upper }}"',
        'run: "{% if inputs.x %}{{ inputs.x }}{% endif %}"',
        'tool: shell, with: {line: "echo {{ inputs.x }}"}',
    ],
)
def test_a_value_that_the_shell_would_read_as_code_is_warned_of(work: str) -> None:
    [warning] = warnings_of(f"inputs: {{x: 1}}\nsteps:\n  - {{id: a,\n     {work}}}\n")
    assert "{{ inputs.x" in warning.message
    assert "| quote" in warning.hint
    assert (warning.file, warning.line) == ("plan.yaml", 4)


@pytest.mark.parametrize(
    "run",
    [
        "echo {{ inputs.x | quote }}",
        "echo {{- inputs.x|quote -}}",
        "echo {{ inputs.x | length }} {{ inputs.x | int }}",
        "echo {{ index }}",
        "echo $(( {{ inputs.x | default(1) | int }} + 1 ))",
        "awk '{ print }'",
    ],
)
def test_a_quoted_value_is_not_warned_of(run: str) -> None:
    step = {"id": "a", "run": run, "foreach": [1]}
    assert check_data({"inputs": {"x": 1}, "steps": [step]}).warnings == ()


def test_the_list_form_is_not_warned_of() -> None:
    assert warnings_of("inputs: {x: 1}\nsteps:\n- {id: a, run: [echo, '{{ inputs.x }}']}\n") == ()


# ── Plans from Python, limits, schema ────────────────────────────────────────────────────────────────


def test_a_plan_built_in_python_passes_the_same_checks() -> None:
    steps = (
        Step(id="a", run="x", needs=("b", "q")),
        Step(id="b", tool="nothing", needs=("a",)),
        Step(id="a", tool="files.write"),
    )
    messages = [problem.message for problem in check_plan(Plan(steps=steps), Catalogue())]
    assert messages == [
        "step a: this id is already used at step 1 of the plan",
        "step a: it needs `q`, which is not a step of this plan",
        "step b: there is no tool `nothing`",
        "step a: `path` is missing",
    ]


def test_b5_values_of_a_plan_from_python_that_json_cannot_hold_are_problems() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    given = {"path": "x", "a": object(), "b": ["\ud800"], "c": 10**5000, "d": endless, "good": [1.5, None, (True, 2)]}
    given["e"] = [{1: "a", "1": "b"}]
    plan = Plan(
        inputs={"n": object()},
        steps=(Step(id="a", tool="files.write", with_=given), Step(id="b", run=["echo", "\ud800"])),
    )
    messages = [problem.message for problem in check_plan(plan, Catalogue())]
    assert messages == [
        "`inputs.n`: an object cannot be stored as JSON",
        "step a: `with.a`: an object cannot be stored as JSON",
        r"step a: `with.b[0]`: the text '\ud800' cannot be stored as JSON",
        "step a: `with.c`: a number of thousands of digits cannot be stored as JSON",
        "step a: `with.d[0]`: a list or mapping that holds itself cannot be stored as JSON",
        "step a: `with.d[1]`: a list or mapping that holds itself cannot be stored as JSON",
        "step a: `with.e[0]`: the key 1 is not text",
        r"step b: `run[1]`: the text '\ud800' cannot be stored as JSON",
    ]


def test_a_key_of_megabytes_makes_a_short_problem() -> None:
    [problem] = check_data({"k" * 5_000_000: 1, "steps": [{"id": "a", "run": "x"}]}).problems
    assert len(str(problem)) < 1000


def test_a_good_plan_built_in_python_has_no_problems() -> None:
    assert check_plan(Plan(steps=(Step(id="a", run="x"), Step(id="b", run="y", needs=("a",))))) == []


def test_data_with_too_many_steps_is_refused_by_the_stated_limit() -> None:
    found = check_data({"steps": [{"id": "a", "run": "x"}] * (MAX_STEPS + 1)})
    assert [p.message for p in found.problems] == ["a plan may have at most 20,000 steps, and this one has 20,001"]


keys = st.sampled_from(
    [
        "name",
        "inputs",
        "tools",
        "limits",
        "steps",
        "id",
        "needs",
        "run",
        "tool",
        "with",
        "when",
        "foreach",
        "importance",
        "retry",
        "timeout",
        "effect",
        "approve",
        "parallel",
        "max",
        "delay",
        "on",
        "agent",
        "prompt",
        "code",
        "grants",
        "memory",
        "cpu",
        "calls",
        "budget",
        "ids",
        "stpes",
        "depends_on",
    ]
)
words = st.sampled_from(
    ["a", "b", "always", "5m", "{{ steps.a.output }}", "{{ item }}", "{{ x", "shell", "", "a b", "  ", "1gb"]
)
leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | words | st.text(max_size=5)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
steps_like = st.dictionaries(keys, values, max_size=6) | st.fixed_dictionaries({"id": words, "run": words | values})
plans_like = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.lists(steps_like | values, max_size=4) | values,
        "inputs": values,
        "limits": values,
        "tools": values,
        "name": leaves,
    },
)


@given(plans_like | values)
def test_data_of_any_shape_is_a_plan_or_has_problems(data: Any) -> None:
    found = check_data(data, tools=Catalogue())
    assert (found.plan is None) == bool(found.problems)


def test_the_schema_tells_editors_every_key_with_its_meaning() -> None:
    schema = plan_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "Windlass plan"
    step = schema["$defs"]["Step"]
    assert {"id", "needs", "run", "with", "when"} <= set(step["properties"])
    assert step["additionalProperties"] is False
    assert step["properties"]["with"]["description"].startswith("The tool's arguments")
    assert {"type": "string"} in schema["properties"]["tools"]["anyOf"]
    assert any(form.get("type") == "integer" for form in step["properties"]["retry"]["anyOf"])
    assert all("title" not in field for field in step["properties"].values())


def test_the_schema_takes_every_example() -> None:
    schema = plan_schema()
    folder = Path(__file__).parents[2] / "examples"
    plans = {path: data for path in folder.rglob("*.yaml") if "steps" in (data := yaml.safe_load(path.read_text()))}
    assert len(plans) > 10
    assert {str(path): wrong for path, data in plans.items() if (wrong := misfits(schema, data))} == {}


def test_l1_the_schema_tells_editors_the_keys_of_triggers() -> None:
    schema = plan_schema()
    assert schema["properties"]["triggers"]["items"] == {"$ref": "#/$defs/Trigger"}
    trigger = schema["$defs"]["Trigger"]
    assert trigger["required"] == ["id"]
    assert trigger["properties"]["cron"]["description"].startswith("Minute, hour")
    assert {"type": "string"} in trigger["properties"]["watch"]["anyOf"]
    assert {"type": "number", "minimum": 0} in trigger["properties"]["budget"]["anyOf"]
    assert "pattern" in schema["$defs"]["FolderWatch"]["properties"]["files"]["description"]


def test_a_misnamed_argument_is_found_even_where_values_are_templates() -> None:
    step = {"id": "a", "tool": "files.write", "with": {"pth": "{{ inputs.where }}"}}
    found = check_data({"inputs": {"where": "x"}, "steps": [step]}, tools=Catalogue())
    assert [problem.message for problem in found.problems] == ["step a: 'pth' is not an argument"]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{id: a, tool: http.get, workdir: sub, with: {url: 'http://x'}}", "tools that take paths of files; http.get"),
        ("{id: a, tool: files.patch, workdir: sub, with: {patch: x}}", "the paths of a patch: they are in its text"),
        ("{id: a, merge: b, workdir: sub}", "`workdir` is not for a merge"),
        ("{id: a, run: ls, workdir: sub, with: {cwd: x}}", "`workdir` is given twice"),
        ("{id: a, run: ls, workdir: '{{ steps.b.output }}'}", "b"),
    ],
)
def test_b5_a_workdir_that_cannot_be_is_refused_with_the_reason(step: str, problem: str) -> None:
    with pytest.raises(PlanInvalid) as refused:
        load_text(f"name: p\nsteps:\n  - {step}\n")
    assert problem in str(refused.value)
