"""A plan as the result of an agent: what it is told, and what is wrong with what it gives (K9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gate_worlds import Scripted

from windlass.engine.agents.plan_output import PlanCatalog, asks_for_plan, plan_in, plan_problems, refused_plan
from windlass.ports import Tool
from windlass.tools.built_in import Registry


def catalog(misfits: Any = None) -> PlanCatalog:
    return PlanCatalog(Registry([Scripted("act"), Scripted("agent")]), misfits, Path("/work"))


def fenced(text: str) -> str:
    return f"Here it is:\n\n```yaml\n{text}\n```\n\nGood luck."


FINE = "name: p\nsteps:\n  - {id: a, tool: act}\n"


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (f"  {FINE}  \n", FINE),
        (fenced("name: p"), "name: p\n"),
        (f"{fenced('name: first')}\n{fenced('name: last')}", "name: last\n"),
        ("```\nname: p\n```", "name: p\n"),
        ("```yaml  \nname: p\n```  \n", "name: p\n"),
    ],
)
def test_k9_the_plan_is_the_last_block_of_the_message_or_all_of_it(text: str, plan: str) -> None:
    assert plan_in(text) == plan


def test_k9_a_plan_that_passes_the_checks_of_a_file_has_no_problems() -> None:
    assert plan_problems(fenced(FINE), catalog()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("triggers: [{id: t, cron: '0 * * * *'}]", ["a drafted plan cannot have `triggers`: a person schedules it"]),
        ("tools: [tools.py]", ["a drafted plan cannot have `tools`: it may use only those that are there"]),
    ],
)
def test_k9_a_draft_schedules_nothing_and_brings_no_tools(more: str, said: list[str]) -> None:
    assert plan_problems(f"{FINE}{more}\n", catalog()) == said


def test_k9_problems_of_a_plan_are_told_with_their_lines() -> None:
    (problem,) = plan_problems("name: p\nsteps:\n  - {id: a, tool: atc}\n", catalog())
    assert problem.startswith("plan.yaml:3")
    assert "there is no tool `atc` (did you mean `act`?)" in problem
    assert refused_plan("x is wrong").startswith("The plan in your last message cannot run:\n\nx is wrong\n\n")


def test_k9_the_arguments_of_agents_are_checked_where_they_will_work() -> None:
    seen: list[Any] = []

    def misfits(arguments: Any, workdir: Path) -> list[str]:
        seen.append((dict(arguments), workdir))
        return ["there is no such role"]

    made = catalog(misfits)
    assert made.validate("agent", {"role": "x"}) == ["there is no such role"]
    assert seen == [({"role": "x"}, Path("/work"))]
    assert made.validate("act", {}) == []
    assert len(seen) == 1
    assert catalog().validate("agent", {}) == [], "without runtimes, the tool itself says what is wrong"
    assert made.knows("act")
    assert not made.knows("gone")


class Described(Tool):
    def __init__(self, name: str, description: str, *names: str, required: tuple[str, ...] = ()) -> None:
        self.name, self.description = name, description
        self.schema = {"type": "object", "properties": {name: {} for name in names}, "required": list(required)}

    async def execute(self, arguments: Any, call: Any) -> None: ...


def test_k9_the_agent_is_told_of_tools_roles_runtimes_and_the_form_of_a_plan() -> None:
    tools = [
        Described("act", "Do  it\nnow", "path", "force", required=("path",)),
        Described("long", "x" * 161),
        Described("just", "y" * 160),
        Described("agent", "never shown"),
        Described("code", "never shown"),
    ]
    text = asks_for_plan(tools, {"developer": "Writes code"}, ["cli", "open-code"], 2.5)
    assert "- act(path*, force): Do it now\n" in text
    assert f"- long(): {'x' * 159}…\n" in text
    assert f"- just(): {'y' * 160}\n" in text
    assert "never shown" not in text
    assert "- developer: Writes code\n" in text
    assert "(leave it out to use the usual one): cli, open-code\n" in text
    assert "All of it, this draft too, may cost $2.50." in text
    schema = json.loads(text[text.index("The JSON Schema of plans:\n") :].partition("\n")[2])
    assert "triggers" not in schema["properties"]
    assert not {"Trigger", "FolderWatch"} & schema["$defs"].keys()
    assert "may cost" not in asks_for_plan([], {}, [], None)
