"""What can be run, and how, has the same names on the command line, over HTTP, over MCP and in Python (I1, I2, I6)."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

import windlass as library
from windlass.cli.app import app
from windlass.errors import UsageError
from windlass.server.mcp.tools import Tools
from windlass.server.request_models import NewExecution

if TYPE_CHECKING:
    from conftest import Project

FIELDS = {field.name for field in fields(library.RunRequest)} - {"tasks_file"}
"""`tasks_file` only names the file in problems, for surfaces that read one."""


def test_i6_http_has_every_field_of_a_run_request() -> None:
    of_budget = {"budget_tokens"}  # over HTTP, `budget` is dollars, tokens or both
    assert NewExecution.model_fields.keys() | of_budget == FIELDS


def test_i6_mcp_has_every_field_of_a_run_request() -> None:
    found = set(inspect.signature(Tools.engine_execute).parameters) - {"self", "ctx", "wait_s", "on_cancel"}
    stands_for = {"plan": {"plan", "plan_text"}, "task": {"task", "tasks"}, "file": {"plan_file"}}
    assert set[str]().union(*(stands_for.get(name, {name}) for name in found)) == FIELDS - {"hold"}, "it always holds"


def test_i1_the_command_line_has_every_field_of_a_run_request() -> None:
    shown = {"detach", "dry_run", "progress", "verbose", "yes", "as_json", "home", "journal", "no_wait", "temporal"}
    found = {str(param.name) for param in app.commands["run"].params} - shown
    stands_for = {"plan": {"plan_file"}, "task_file": {"tasks"}, "no_fallback": {"fallback"}}
    given_by_file = {"plan", "plan_text"}
    of_terminal = {"hold"}
    assert set[str]().union(*(stands_for.get(name, {name}) for name in found)) == FIELDS - given_by_file - of_terminal


async def test_i2_a_request_starts_the_same_from_python(project: Project) -> None:
    async with library.open() as engine:
        request = library.RunRequest(plan={"name": "hi", "inputs": {"n": 1}, "steps": [{"id": "a", "run": "true"}]})
        state = await (await request.start(engine)).wait()
        assert (state.plan.name, str(state.status)) == ("hi", "completed")
        made = await library.RunRequest(plan_text="steps: [{id: a, run: 'true'}]", parallel=2).create(engine)
        assert (await engine.state(made)).plan.limits.parallel == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"allow": "files.write"}, "`allow` is a list of texts"),
        ({"files": "report.md"}, "`files` is a list of texts"),
        ({"chain": "architect"}, "`chain` is a list of texts"),
        ({"strategy": "simple"}, "there is no strategy 'simple'; there are: single, multi, parallel, plan"),
        ({"parallel": 0}, "`parallel` is a whole number from 1 to 1000; given is 0"),
        ({"parallel": 2.5}, "`parallel` is a whole number"),
    ],
)
async def test_i5_values_of_a_request_in_python_are_checked(project: Project, wrong: dict[str, Any], said: str) -> None:
    async with library.open() as engine:
        with pytest.raises(UsageError) as caught:
            library.RunRequest(task="Sum up report.md", **wrong).load(engine)
        assert said in caught.value.message


async def test_b4_a_strategy_can_be_named_by_its_text_in_python(project: Project) -> None:
    async with library.open() as engine:
        request: dict[str, Any] = {"task": "Refactor the parser", "strategy": "single"}
        assert [step.id for step in library.RunRequest(**request).load(engine).plan.steps] == ["task"]
