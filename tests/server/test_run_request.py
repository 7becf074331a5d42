"""What can be run, and how, has the same names on the command line, over HTTP, over MCP and in Python (I1, I2, I6)."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

import windlass as library
from windlass.cli.app import app
from windlass.core.events import ApprovalAsked
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.model import Plan
from windlass.server.mcp.tools import Tools
from windlass.server.request_models import NewExecution

if TYPE_CHECKING:
    from conftest import Project

FIELDS = {field.name for field in fields(library.RunRequest)} - {"plan_name", "tasks_file"}
"""These only name the text or the file in problems, for surfaces that read one."""


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
        asking = {"steps": [{"id": "a", "run": "true", "approve": "always"}]}
        started = await library.RunRequest(plan=asking).start(engine)
        async for event in started.events():
            if isinstance(event, ApprovalAsked):
                await started.approve("a")
        assert (await started.state()).status == "completed", "it stays while only a person can continue it"


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


class NoEngine:
    """Reads no plan: tasks need none."""


def loaded(**given: Any) -> Plan:
    """The plan of a request that needs no engine."""
    nothing: Any = NoEngine()
    return library.RunRequest(**given).load(nothing).plan


def refusal(**given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(**given)
    return caught.value.message


def test_i1_a_request_names_exactly_one_thing_to_run() -> None:
    start = "name one thing to run, of `plan`, `plan_text`, `plan_file`, `task`, `tasks`; given is "
    assert refusal() == f"{start}nothing"
    assert refusal(plan_text="x", task="y") == f"{start}`plan_text` and `task`"
    assert refusal(tasks=[]).startswith("tasks: a task file is text, or a list")
    assert refusal(tasks=[], tasks_file="mine.yaml").startswith("mine.yaml: a task file is text, or a list")
    assert refusal(task=" ") == "`task` is empty: describe the task"


def test_i5_what_a_request_has_is_given_by_name() -> None:
    by_place: Any = library.RunRequest
    with pytest.raises(TypeError):
        by_place(PLAN)


def test_b4_what_is_about_tasks_is_refused_beside_a_plan() -> None:
    for name, value in (("strategy", "single"), ("role", "r"), ("chain", ["r"]), ("files", ["f"]), ("skills", ["s"])):
        said = f"`{name}` works only with `task` and `tasks`: set it in the plan instead"
        assert refusal(plan=PLAN, **{name: value}) == said


def test_b4_a_chain_of_roles_is_a_strategy_and_one_role_is_no_chain() -> None:
    plan = loaded(task="do it", chain=["architect", "developer"])
    assert [step.agent for step in plan.steps] == ["architect", "developer"]
    assert refusal(task="do it", chain=["architect"], strategy="single") == (
        "a chain of roles works only with the strategy multi, not with single"
    )
    assert refusal(task="do it", role="developer", strategy="multi") == "one role is not a chain"


def test_i2_files_and_skills_of_a_request_come_after_those_of_each_task() -> None:
    own = {"id": "a", "task": "one", "files": "own.md", "skills": ["own"]}
    plan = loaded(tasks=[own, {"id": "b", "task": "two"}], files=["more.md"], skills=["more"])
    assert [(step.arguments.get("files"), step.arguments.get("skills")) for step in plan.steps] == [
        (["own.md", "more.md"], ["own", "more"]),
        (["more.md"], ["more"]),
    ]
    (step,) = loaded(task="one").steps
    assert not step.arguments.get("files")


AGENT = {"agent": "developer", "prompt": "do it"}
PLAN = Plan.model_validate(
    {
        "name": "p",
        "limits": {"parallel": 3, "timeout": "1h"},
        "model": "m-plan",
        "steps": [
            {"id": "plain", "tool": "greet"},
            {"id": "same", **AGENT, "runtime": "cli", "model": "m-own", "fallback": True},
            {
                "id": "other",
                **AGENT,
                "runtime": "open-code",
                "models": ["m-1", "m-2"],
                "check": "true",
                "permissions": {"allow": ["x"]},
            },
            {"id": "bare", **AGENT, "model": "m-own"},
        ],
    }
)


def test_i2_a_request_without_options_leaves_the_plan_as_it_is() -> None:
    assert loaded(plan=PLAN) is PLAN


def test_i2_the_runtime_of_a_request_takes_the_place_of_the_plans_and_of_models_for_others() -> None:
    plan = loaded(plan=PLAN, runtime="cli")
    assert (plan.runtime, plan.model) == ("cli", "m-plan")
    assert [(step.runtime, step.model, step.models) for step in plan.steps] == [
        (None, None, ()),
        ("cli", "m-own", ()),
        (None, None, ()),
        (None, "m-own", ()),
    ]


def test_i2_the_model_and_the_fallback_of_a_request_are_those_of_all_agents() -> None:
    plan = loaded(plan=PLAN, model="m-new", fallback=False)
    assert (plan.model, plan.fallback) == ("m-new", False)
    assert [(step.model, step.models, step.fallback) for step in plan.steps[1:]] == [(None, (), None)] * 3
    assert [step.runtime for step in plan.steps[1:]] == ["cli", "open-code", None]


def test_i2_tools_that_a_request_allows_are_added_to_those_of_each_agent() -> None:
    plan = loaded(plan=PLAN, allow=["files.read"])
    assert plan.steps[0].permissions is None
    assert [step.permissions.allow for step in plan.steps[1:] if step.permissions] == [
        ("files.read",),
        ("x", "files.read"),
        ("files.read",),
    ]


def test_e1_the_budget_and_the_limit_of_steps_at_a_time_take_the_place_of_the_plans() -> None:
    plan = loaded(plan=PLAN, budget=2.5, parallel=7)
    assert plan.budget is not None
    assert (plan.budget.usd, plan.budget.tokens) == (2.5, None)
    assert (plan.limits.parallel, plan.limits.timeout) == (7, PLAN.limits.timeout)
    tokens = loaded(plan=PLAN, budget_tokens=9).budget
    assert tokens is not None
    assert (tokens.usd, tokens.tokens) == (None, 9)
    assert loaded(plan=PLAN, parallel=1).budget is None
    assert "a budget of -1" in refusal(plan=PLAN, budget=-1.0)
    assert "given is 1001" in refusal(plan=PLAN, parallel=1001)
    assert loaded(plan=PLAN, parallel=1000).limits.parallel == 1000


async def test_i2_problems_of_a_plan_that_a_program_made_have_no_place_in_a_text(project: Project) -> None:
    wrong = {"steps": [{"id": "a", "run": "true", "needs": ["z"]}]}
    async with library.open() as engine:
        with pytest.raises(PlanInvalid) as of_data:
            library.RunRequest(plan=wrong).load(engine)
        assert [(one.file, one.line, one.column) for one in of_data.value.problems] == [("", None, None)]
        for text, file in (
            (json.dumps(wrong), "plan.json"),
            ("steps: [{id: a, run: 'true', needs: [z]}]", "plan.yaml"),
        ):
            with pytest.raises(PlanInvalid) as of_text:
                library.RunRequest(plan_text=text).load(engine)
            assert [(one.file, one.line) for one in of_text.value.problems] == [(file, 1)]
        (project.path / "sub").mkdir()
        (project.path / "sub" / "plan.yaml").write_text("{name: inner, steps: [{id: a, run: 'true'}]}")
        request = library.RunRequest(plan_file="plan.yaml", workdir=project.path / "sub")
        assert request.load(engine).plan.name == "inner"
        with pytest.raises(PlanInvalid) as of_tasks:
            library.RunRequest(tasks=[{"id": "a", "task": "x", "depends_on": ["z"]}], tasks_file="t.yaml").load(engine)
        assert of_tasks.value.problems[0].file == "t.yaml"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "`plan` is not plain data: Encoding objects of type object is unsupported"),
        ("bad \udcff", "`plan` is not plain data: "),
        (math.nan, "`plan` has a number that is not finite at steps[0].with.word"),
    ],
)
def test_i5_a_plan_with_a_value_that_no_journal_could_hold_is_refused(value: Any, said: str) -> None:
    plan = {"name": "p", "inputs": {"x": None}, "steps": [{"id": "a", "tool": "greet", "with": {"word": value}}]}
    assert refusal(plan=plan).startswith(said)


async def test_d5_what_is_missing_is_refused_unless_it_is_to_start_anyway(project: Project) -> None:
    plan = {"steps": [{"id": "a", "run": "no-such-program-here"}]}
    async with library.open() as engine:
        with pytest.raises(UsageError, match="no-such-program-here"):
            await library.RunRequest(plan=plan).create(engine)
        made = await library.RunRequest(plan=plan, anyway=True, on_overrun="proceed").create(engine)
        (created, *_) = project.events(made)
        assert created.start, "whoever made it has it started"
        assert created.on_overrun == "proceed"
