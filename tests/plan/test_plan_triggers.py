"""`triggers` of a plan: every problem is found and placed, and an execution does not hold them (L1)."""

from __future__ import annotations

import pytest

from windlass import tool
from windlass.engine.agents.plan_output import asks_for_plan, plan_problems
from windlass.errors import InputInvalid, PlanInvalid
from windlass.plan.load import bind_inputs, load_text
from windlass.plan.triggers import triggers_of
from windlass.tools.built_in import Registry

STEPS = "steps: [{id: a, run: 'true'}]"


def problems(triggers: str) -> list[str]:
    with pytest.raises(PlanInvalid) as refused:
        load_text(f"inputs: {{since: 1}}\ntriggers: {triggers}\n{STEPS}", file="plan.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_l1_triggers_have_defaults_that_start_nothing_twice() -> None:
    plan = load_text(f"triggers: [{{id: nightly, cron: '0 3 * * *'}}]\n{STEPS}").plan
    (trigger,) = triggers_of(plan)
    assert (trigger.zone, trigger.catch_up, trigger.overlap) == ("UTC", 3600.0, "skip")


def test_l1_a_watched_folder_leaves_no_file_out_unless_that_is_asked_for() -> None:
    text = (
        f"inputs: {{file: none}}\ntriggers: [{{id: a, watch: inbox}}, {{id: b, watch: inbox, overlap: skip}}]\n{STEPS}"
    )
    queue, skip = triggers_of(load_text(text).plan)
    assert queue.watch is not None
    assert (queue.watch.path, queue.watch.files, queue.watch.settle) == ("inbox", "*", 5.0)
    assert (queue.overlap, skip.overlap) == ("queue", "skip")


def test_l1_an_execution_is_of_the_plan_without_its_triggers() -> None:
    with_triggers = load_text(f"triggers: [{{id: nightly, cron: '0 3 * * *'}}]\n{STEPS}").plan
    assert with_triggers.digest == load_text(STEPS).plan.digest
    assert b"cron" not in with_triggers.encoded


@pytest.mark.parametrize(
    ("triggers", "problem"),
    [
        ("[{id: a, cron: '0 25 * * *'}]", "plan.yaml:2:20: trigger a: `cron`: '0 25 * * *' is not a cron expression"),
        ("[{id: a, cron: '0 3 * * *', zone: Berlin}]", "trigger a: `zone`: 'Berlin' is not a time zone"),
        ("[{cron: '0 3 * * *'}]", "trigger 1: `id` is missing"),
        ("[{id: a}]", "trigger a: a trigger has exactly one of `cron`, `watch` and `webhook`"),
        ("[{id: a, cron: '0 3 * * *', watch: inbox}]", "trigger a: a trigger has exactly one of"),
        ("[{id: a, watch: inbox}]", "trigger a: the plan has no input `file`"),
        ("[{id: a, watch: {path: inbox, input: since}, jitter: 5m}]", "trigger a: `jitter`: it is for `cron`"),
        ("[{id: a, webhook: {secret: {from: HOOK}}}]", "trigger a: the plan has no input `body`"),
        ("[{id: a, webhook: {secret: abc, input: since}}]", "name its variable: `secret: {from: NAME}`"),
        ("[{id: a, webhook: {secret: {from: a-b}, input: since}}]", "`webhook.secret.from`: 'a-b' is not a valid name"),
        (
            "[{id: a, webhook: {secret: {form: HOOK}, input: since}}]",
            "unknown key `form` in `secret` (did you mean `from`?)",
        ),
        ("[{id: a, webhook: {secret: {from: HOOK}, input: since}, catch_up: 5m}]", "`catch_up`: it is for `cron`"),
        ("[{id: a, crom: '0 3 * * *'}]", "trigger a: unknown key `crom` (did you mean `cron`?)"),
        (
            "[{id: a, cron: '0 3 * * *', overlap: drop}]",
            "trigger a: `overlap`: expected 'skip', 'queue' or 'allow', found",
        ),
        ("[{id: a, cron: '0 3 * * *', catch_up: soon}]", "trigger a: `catch_up`: 'soon' is not a duration"),
        ("[{id: a, cron: '0 3 * * *', inputs: {sinse: 2}}]", "no input `sinse` (did you mean `since`?)"),
        (
            "[{id: a, cron: '0 3 * * *', inputs: {since: lots}}]",
            "plan.yaml:2:48: trigger a: input since: expected a whole number, got text (the text 'lots')",
        ),
        ("[{id: a, watch: {path: inbox, input: since}}]", "trigger a: input since: expected a whole number, got text"),
        ("[{id: a, cron: '0 3 * * *'}, {id: a, cron: '0 4 * * *'}]", "trigger a: this id is already used"),
        ("[{id: a, cron: '0 3 * * *', budget: 1, overlap: allow}]", "`allow` does not go with a `budget`"),
        ("[{id: a, cron: '0 3 * * *', pause_after: 99}]", "trigger a: `pause_after` must be at most 50, not 99"),
        (
            "[{id: a, cron: '0 3 * * *', budget: '3'}]",
            "`budget`: expected dollars like 2.50 or a mapping like {usd: 2.50",
        ),
        (
            "[{id: a, watch: 'in/*.csv'}]",
            "`watch`: `path`: it is one folder; a pattern for the names of its files is `files`",
        ),
        ("[{id: a, watch: {path: in, files: a/*.csv}}]", "`watch`: `files`: it is a pattern for names, without `/`"),
        (
            "[{id: a, watch: {path: in, files: '[z-a]'}}]",
            "`watch`: `files`: it is not a pattern: [z-a] has an empty set",
        ),
        ("[{id: a, watch: 3}]", "`watch`: expected a folder or a mapping like {path: inbox}, found the number 3"),
        ("{id: a}", "`triggers`: expected a list, found a mapping"),
        ("[nightly]", "expected a mapping, found the text 'nightly'"),
    ],
)
def test_l1_a_problem_of_a_trigger_says_where_and_what(triggers: str, problem: str) -> None:
    found = problems(triggers)
    assert any(problem in one for one in found), found


def test_l1_all_problems_of_a_trigger_are_reported_at_once() -> None:
    wrong = "cron: '0 3 * *', zone: Europe/Wien, overlap: drop, budget: two, jiter: 5m, inputs: {x: 1}"
    found = problems(f"[{{id: a, cron: '0 3 * * *'}}, {{id: a, {wrong}}}]")
    assert len(found) == 7
    for part in ("already used", "`cron`", "`zone`", "`overlap`", "`budget`", "`jiter`", "no input `x`"):
        assert sum(part in one for one in found) == 1, part


def test_l1_inputs_of_a_trigger_are_refused_in_the_words_of_a_start() -> None:
    plan = load_text(f"inputs: {{since: 1, any: null, ratio: 0.5}}\n{STEPS}").plan
    with pytest.raises(InputInvalid) as refused:
        bind_inputs(plan, {"since": "lots"})
    (problem,) = problems("[{id: a, cron: '0 3 * * *', inputs: {since: lots}}]")
    assert problem.endswith(f": trigger a: {refused.value.problems[0]}")
    fitting = "triggers: [{id: a, cron: '0 3 * * *', inputs: {since: 2, any: lots, ratio: 1}}]"
    load_text(f"inputs: {{since: 1, any: null, ratio: 0.5}}\n{fitting}\n{STEPS}")


def test_l1_triggers_are_checked_in_a_plan_with_other_problems_too() -> None:
    with pytest.raises(PlanInvalid) as refused:
        load_text("triggers: [{id: a, cron: never}]\nsteps: [{id: a, runs: 'true'}]")
    assert "trigger a: `cron`" in str(refused.value)


def test_l1_a_drafted_plan_has_no_triggers() -> None:
    @tool
    def nothing() -> None:
        """Do nothing."""

    text = "```yaml\nname: a\ntriggers: [{id: a, cron: '0 3 * * *'}]\nsteps: [{id: a, tool: nothing}]\n```"
    assert plan_problems(text, Registry([nothing])) == ["a drafted plan cannot have `triggers`: a person schedules it"]
    assert "cron" not in asks_for_plan([], {}, [], None)
