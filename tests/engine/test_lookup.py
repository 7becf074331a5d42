"""Executions and steps are found by what people type, and a miss names what there is (D1, C5)."""

from __future__ import annotations

from datetime import datetime

import pytest

from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.lookup import find_head, find_plan_step, find_step
from windlass.errors import Ambiguous, NotFound
from windlass.plan.model import Plan
from windlass.ports import Head
from windlass.testing import MemoryJournal

NOON = datetime(2026, 11, 16, 12, 0).timestamp()


async def journal_of(*ids: str) -> MemoryJournal:
    journal = MemoryJournal()
    for number, name in enumerate(ids):
        head = Head(name, "survey", "running", NOON + 60 * number, NOON, "")
        await journal.append(name, 0, [ev.ExecutionStarted(NOON, "")], head=head)
    return journal


def state_of(*steps: str) -> State:
    plan = Plan.model_validate({"name": "p", "steps": [{"id": name, "run": "true"} for name in steps]})
    return fold([ev.ExecutionCreated(NOON, "x", plan.encoded, {}, "/")], plan)  # type: ignore[arg-type]


async def test_d1_an_execution_is_found_by_the_last_four_characters_of_its_id_and_by_no_fewer() -> None:
    journal = await journal_of("0190aaaa", "0190bbbb")
    assert (await find_head(journal, " BBBB ")).id == "0190bbbb"
    assert (await find_head(journal, "0190a")).id == "0190aaaa"
    with pytest.raises(NotFound, match="no execution has the id 'bbb'"):
        await find_head(journal, "bbb")
    with pytest.raises(NotFound, match="no execution has the id '90aa'"):
        await find_head(journal, "90aa")


async def test_d1_several_executions_of_one_beginning_are_listed_and_more_than_eight_are_cut() -> None:
    names = [f"0190{number}" for number in range(8)]
    with pytest.raises(Ambiguous) as found:
        await find_head(await journal_of(*names), "0190")
    title, *lines = found.value.message.splitlines()
    assert title == "'0190' matches several executions:"
    assert lines == [f"  0190{number}  running    survey  2026-11-16 12:0{number}" for number in range(7, -1, -1)]
    with pytest.raises(Ambiguous) as found:
        await find_head(await journal_of(*names, "01908"), "0190")
    assert found.value.message.splitlines()[9:] == ["  …"]
    assert len(found.value.message.splitlines()) == 10


async def test_d1_an_unknown_id_names_the_three_newest_executions() -> None:
    with pytest.raises(NotFound) as found:
        await find_head(await journal_of("a1", "b1", "c1", "d1"), "")
    assert [line.split()[0] for line in found.value.message.splitlines()[1:]] == ["d1", "c1", "b1"]


def test_c5_an_unknown_step_names_those_that_are_alike_else_the_first_eight() -> None:
    state = state_of("build", "deploy", "test")
    assert find_step(state, "test").id == "test"
    with pytest.raises(NotFound, match=r"^execution x has no step 'tset'; did you mean test\?$"):
        find_step(state, "tset")
    with pytest.raises(NotFound, match=r"did you mean test4 or test3 or test2\?$"):
        find_step(state_of("test1", "test2", "test3", "test4"), "test")
    with pytest.raises(NotFound, match=r"has no step 'q'; it has build, deploy, test$"):
        find_step(state, "q")
    with pytest.raises(NotFound, match=r"it has s0, s1, s2, s3, s4, s5, s6, s7$"):
        find_step(state_of(*(f"s{number}" for number in range(8))), "unlike")
    with pytest.raises(NotFound, match=r"it has s0, s1, s2, s3, s4, s5, s6, s7 and 2 more$"):
        find_step(state_of(*(f"s{number}" for number in range(10))), "unlike")


def test_d8_an_item_of_a_foreach_means_its_whole_step_of_the_plan() -> None:
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "each", "run": "true", "foreach": [1]}]})
    assert find_plan_step(plan, "each[0]") == "each"
    with pytest.raises(NotFound, match=r"plan p has no step 'other\[0\]'"):
        find_plan_step(plan, "other[0]")


async def test_d1_a_word_stands_for_the_newest_execution_or_the_newest_that_failed() -> None:
    empty = MemoryJournal()
    for name in ("", "@last", "@last-failed"):
        with pytest.raises(NotFound, match=r"^no executions here yet$"):
            await find_head(empty, name)
    journal = await journal_of("a1", "b1", "c1")
    with pytest.raises(NotFound, match=r"^no execution has failed here$"):
        await find_head(journal, "@last-failed")
    for name, status in (("a1", "failed"), ("b1", "partial"), ("c1", "completed")):
        await journal.append(name, 1, [], head=Head(name, "survey", status, NOON, NOON, ""))
    assert [(await find_head(journal, word)).id for word in ("@last", "@LAST-failed")] == ["c1", "b1"]
    with pytest.raises(NotFound, match=r"^'@first' is not a name of an execution: use @last or @last-failed$"):
        await find_head(journal, "@first")
