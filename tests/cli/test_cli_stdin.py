"""`-` takes the place of a file: plans, tasks, inputs and arguments come from standard input (I1, B5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "name: piped\nsteps: [{id: a, run: printf hi}]\n"


@pytest.mark.parametrize("text", [PLAN, json.dumps({"name": "piped", "steps": [{"id": "a", "run": "printf hi"}]})])
def test_b5_a_plan_from_standard_input_runs_and_can_be_resumed(project: Project, windlass: Windlass, text: str) -> None:
    ran = windlass("run", "-", "--json", stdin=text).json
    assert (ran["plan"], ran["steps"][0]["output"]["stdout"]) == ("piped", "hi")
    failed = windlass("run", "-", "--json", code=1, stdin=text.replace("printf hi", "test -e done")).json
    project.file("done", "")
    assert windlass("retry", failed["id"], "a", "--json").json["status"] == "completed"


def test_b5_a_plan_from_standard_input_is_checked_shown_and_estimated(windlass: Windlass) -> None:
    assert "the plan is valid (1 step)" in windlass("plan", "check", "-", stdin=PLAN).err
    assert windlass("plan", "show", "-", stdin=PLAN).out == "a: shell\n"
    assert "unknown" in windlass("plan", "estimate", "-", stdin=PLAN).err
    wrong = windlass("run", "-", code=2, stdin="steps:\n  - id: a\n    rum: x\n").err
    assert "stdin.yaml:3:5: step a: unknown key `rum` (did you mean `run`?)" in wrong
    assert "windlass plan check -\n" in wrong


def test_i1_an_input_comes_from_standard_input(project: Project, windlass: Windlass) -> None:
    project.plan('inputs: {text: ""}\nsteps: [{id: a, run: "printf %s {{ inputs.text | quote }}"}]\n')
    ran = windlass("run", "plan.yaml", "-i", "text=@-", "--json", stdin="one\ntwo").json
    assert ran["steps"][0]["output"]["stdout"] == "one\ntwo"


def test_i1_arguments_of_a_tool_come_from_standard_input(windlass: Windlass) -> None:
    ran = windlass("tools", "run", "shell", "--with", "@-", "--yes", stdin='{"line": "printf hi"}')
    assert "hi" in ran.out


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        (("run", "-"), b"a\xff", "standard input is not UTF-8 text: invalid start byte at byte 1"),
        (("run", "-"), b"", "stdin.yaml: the file is empty"),
        (("run", "-"), b" " * (16 * 2**20 + 1), "standard input cannot be read: it is larger than 16 MiB"),
        (("run", "--task-file", "-"), b" \n", "stdin: task 1 has no `task`"),
        (("run", "-", "-i", "text=@-"), b"steps: []", "only one of them can be read from stdin"),
        (
            ("run", "-"),
            b"tools: [t.py]\nsteps: [{id: a, tool: hello}]",
            "a plan that is not in a file cannot have `tools`",
        ),
        (("say", "@last", "a", "-"), b"\xff", "standard input is not UTF-8 text"),
    ],
    ids=["not text", "nothing", "too much", "no task", "twice", "tools", "not a message"],
)
def test_i1_what_standard_input_cannot_be_is_told(
    windlass: Windlass, arguments: tuple[str, ...], given: bytes, told: str
) -> None:
    assert told in windlass(*arguments, code=2, stdin=given).err
