"""Strategies (B1–B4): tasks become plans, by the documented rule, with the user's words as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass import Plan
from windlass.errors import UsageError
from windlass.plan.check import check_data
from windlass.plan.load import bind_inputs
from windlass.plan.strategies import RESTRUCTURES, Strategy, chain_for, choose_strategy, plan_data, tasks_of
from windlass.plan.template import compile_value


def made(tasks: Any, strategy: Strategy, **more: Any) -> Plan:
    """The plan of a task file, if it is a good one."""
    found = check_data(plan_data(tasks_of(tasks, "tasks.yaml"), strategy, **more), file="tasks.yaml")
    assert found.plan is not None, [str(problem) for problem in found.problems]
    return found.plan


def problems(tasks: Any, strategy: Strategy = Strategy.PARALLEL, **more: Any) -> str:
    """What is wrong with the plan of a task file, as its user reads it."""
    try:
        found = check_data(plan_data(tasks_of(tasks, "tasks.yaml"), strategy, **more), file="tasks.yaml")
    except UsageError as error:
        return error.message
    assert found.plan is None, "it should have been refused"
    return "\n".join(str(problem) for problem in found.problems)


def told(plan: Plan, step: str) -> Any:
    """The prompt that the step's agent is given."""
    scope = {"inputs": bind_inputs(plan, {}), "steps": {}}
    return compile_value(plan.by_id[step].arguments["prompt"]).render(scope)


# -- single and multi ----------------------------------------------------------------------------


def test_b1_single_is_one_agent_with_the_task_as_it_was_said() -> None:
    plan = made("Mend the winch", Strategy.SINGLE)
    (step,) = plan.steps
    assert (step.id, step.agent) == ("task", "developer")
    assert told(plan, "task") == "Mend the winch"
    assert made("Mend it", Strategy.SINGLE, role="ops").steps[0].agent == "ops"
    assert made([{"task": "Mend it", "role": "senior"}], Strategy.SINGLE, role="ops").steps[0].agent == "senior"


def test_b2_multi_is_a_chain_in_which_each_is_handed_all_before_it() -> None:
    plan = made("Refactor the winch", Strategy.MULTI)
    assert [step.agent for step in plan.steps] == ["architect", "developer", "reviewer"]
    assert [step.needs for step in plan.steps] == [(), ("architect",), ("developer",)]
    assert [step.handoff for step in plan.steps] == [True, ("architect",), ("architect", "developer")]
    for step in plan.steps:
        assert told(plan, step.id).startswith("Refactor the winch\n\n")
        assert "architect → developer → reviewer" in told(plan, step.id)
    assert "handed to the developer" in told(plan, "architect")
    assert "the last" in told(plan, "reviewer")


def test_b2_a_reviewer_comes_only_where_the_structure_is_at_stake() -> None:
    assert chain_for("Paint the winch") == ["architect", "developer"]
    assert chain_for("Redesign the winch") == ["architect", "developer", "reviewer"]
    assert [step.agent for step in made("Paint it", Strategy.MULTI).steps] == ["architect", "developer"]


def test_b2_the_user_names_the_chain() -> None:
    plan = made("Refactor it", Strategy.MULTI, chain=["product", "senior"])
    assert [step.agent for step in plan.steps] == ["product", "senior"]
    assert made("Paint it", Strategy.MULTI, chain=["ops"]).steps[0].handoff is True


@pytest.mark.parametrize(
    "chain",
    [
        ["developer", "reviewer", "developer"],
        ["developer"] * 4,
        ["developer-2", "developer", "developer"],
        ["team/critic", "team critic", "1st", "1st", "ünder"],
    ],
    ids=str,
)
def test_b2_roles_may_come_again_and_have_any_name(chain: list[str]) -> None:
    plan = made("Do it", Strategy.MULTI, chain=chain)
    assert [step.agent for step in plan.steps] == chain
    assert len({step.id for step in plan.steps}) == len(chain)
    assert plan.steps[-1].handoff == tuple(step.id for step in plan.steps[:-1])


def test_b2_what_a_task_says_of_files_and_skills_holds_for_the_whole_chain() -> None:
    plan = made([{"task": "Do it", "files": ["a.md"], "skills": "x", "budget": 2}], Strategy.MULTI)
    assert {step.files for step in plan.steps} == {("a.md",)}
    assert {step.skills for step in plan.steps} == {("x",)}


@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.MULTI])
def test_b1_one_agent_or_one_chain_takes_one_task(strategy: Strategy) -> None:
    assert "2: use parallel" in problems(["a", "b"], strategy)


# -- parallel ------------------------------------------------------------------------------------


def test_b3_texts_and_mappings_become_steps_of_one_graph() -> None:
    plan = made(
        {
            "tasks": [
                "first",
                {"id": "b", "task": "second", "role": "architect", "depends_on": "task-1"},
                {"id": "c", "prompt": "third", "agent": "ops", "needs": ["task-1", "b"], "runtime": "open-code"},
            ]
        },
        Strategy.PARALLEL,
        role="senior",
    )
    assert [(step.id, step.agent, step.needs) for step in plan.steps] == [
        ("task-1", "senior", ()),
        ("b", "architect", ("task-1",)),
        ("c", "ops", ("task-1", "b")),
    ]
    assert [told(plan, step.id) for step in plan.steps] == ["first", "second", "third"]
    assert plan.by_id["c"].handoff is True, "dependents are handed what they wait for"
    assert plan.by_id["c"].runtime == "open-code"


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    "text",
    [
        "Print {{ steps.secret.output }} and {% for x in y %}",
        "{{ broken",
        "{# gone #} {% raw %}",
        "quotes \" and ' and \\ and `",
        "many\nlines\n\tof it  ",
        "ünïcode 🛠 \u202e",
    ],
    ids=["template", "broken", "comment", "quotes", "lines", "unicode"],
)
def test_b3_a_tasks_words_are_no_template(strategy: Strategy, text: str) -> None:
    plan = made([{"id": "a", "task": text}], strategy)
    for step in plan.steps:
        assert str(told(plan, step.id)).startswith(text)


def test_b3_cycles_unknown_and_duplicate_ids_are_refused_by_name() -> None:
    cycle = problems([{"id": "a", "task": "x", "needs": "b"}, {"id": "b", "task": "y", "needs": "a"}])
    assert "a → b → a" in cycle
    assert "nope" in problems([{"id": "a", "task": "x", "needs": ["nope"]}])
    twice = problems([{"id": "same", "task": "x"}, {"id": "same", "task": "y"}])
    assert "same" in twice
    assert "task-2" in problems(["x", "y", {"id": "task-2", "task": "z"}])


def test_b3_unknown_keys_are_refused_with_the_nearest_one() -> None:
    assert "needs" in problems([{"id": "a", "task": "x", "nedes": ["b"]}])
    assert "unknown key `taks`" in problems({"taks": ["a"]})
    assert "`tasks` is missing" in problems({})


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([], "at least one task"),
        ({"tasks": []}, "at least one task"),
        (None, "at least one task"),
        (7, "at least one task"),
        ([7], "task 1 is neither text nor a mapping"),
        ([["a"]], "task 1 is neither text nor a mapping"),
        (["a", ""], "task 2 has no `task`"),
        (["a", "  \n"], "task 2 has no `task`"),
        ([{"id": "x"}], "task x has no `task`"),
        ([{"task": 7}], "task 1 has no `task`"),
        ([{"task": "a", "prompt": "b"}], "twice"),
        ([{"task": "a", "needs": "b", "depends_on": "c"}], "twice"),
    ],
    ids=str,
)
def test_b3_what_is_no_list_of_tasks_is_refused_with_the_place(tasks: Any, says: str) -> None:
    told = problems(tasks)
    assert says in told
    assert "tasks.yaml" in told


@pytest.mark.parametrize("key", [7, "two words", 'a"] }}', "", None, "x" * 101, "{{ a }}"], ids=str)
def test_b3_an_id_that_is_none_is_refused_and_nothing_breaks(key: Any) -> None:
    assert "id" in problems([{"id": key, "task": "x"}, "y"])


# -- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ("Fix the typo in README", Strategy.SINGLE),
        ("Add a flag", Strategy.SINGLE),
        ("- one\n- two", Strategy.SINGLE),
        ("- one\n- two\n- three", Strategy.MULTI),
        ("1. one\n2) two\n  3. three", Strategy.MULTI),
        ("* a\n• b\n- c", Strategy.MULTI),
        ("Well-known - not - a - list", Strategy.SINGLE),
        ("refactor the parser", Strategy.MULTI),
        ("We REDESIGN it", Strategy.MULTI),
        ("Unsplit hairs", Strategy.SINGLE),
        (["a", "b"], Strategy.PARALLEL),
        (["refactor a", "redesign b"], Strategy.PARALLEL),
        ([{"id": "a", "task": "Rewrite it"}], Strategy.MULTI),
    ],
    ids=str,
)
def test_b4_the_strategy_follows_from_the_tasks(tasks: Any, expected: Strategy) -> None:
    found = tasks_of(tasks, "tasks.yaml")
    assert choose_strategy(found) is expected
    assert choose_strategy(found) is expected, "the same tasks always give the same"


@pytest.mark.parametrize("word", RESTRUCTURES)
def test_b4_every_word_of_the_rule_counts_at_the_beginning_of_a_word(word: str) -> None:
    assert choose_strategy([{"prompt": f"Please {word.upper()}xyz it"}]) is Strategy.MULTI
    assert choose_strategy([{"prompt": f"Please x{word} it"}]) is Strategy.SINGLE


def test_b4_the_rule_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    for strategy in Strategy:
        assert f"`{strategy}`" in page
    for word in RESTRUCTURES:
        assert word in page, word


def test_b4_a_named_role_means_that_one_agent_does_it() -> None:
    tasks = [{"id": "task", "prompt": "Refactor billing"}]
    assert choose_strategy(tasks) is Strategy.MULTI
    assert choose_strategy(tasks, role="senior") is Strategy.SINGLE
    assert choose_strategy([{**tasks[0], "agent": "ops"}]) is Strategy.SINGLE
    assert choose_strategy([*tasks, *tasks], role="senior") is Strategy.PARALLEL
