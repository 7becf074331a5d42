"""The one table of moves, and its picture in the docs (C1)."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import product
from pathlib import Path

import pytest

from windlass.core.transitions import (
    EXECUTION_MOVES,
    STEP_MOVES,
    ExecutionStatus,
    IllegalMove,
    StepStatus,
    check_execution_move,
    check_step_move,
)

DOCS = Path(__file__).parents[2] / "docs" / "durability.md"
Table = dict[StepStatus, frozenset[StepStatus]] | dict[ExecutionStatus, frozenset[ExecutionStatus]]


@pytest.mark.parametrize(("table", "states"), [(STEP_MOVES, StepStatus), (EXECUTION_MOVES, ExecutionStatus)])
def test_c1_the_tables_know_every_status_and_no_other(table: Table, states: type[StrEnum]) -> None:
    assert set(table) == set(states)
    assert set().union(*table.values()) <= set(states)


def test_c1_a_completed_step_stays_as_it_is_and_only_a_persons_retry_moves_another_settled_one() -> None:
    assert {status for status in StepStatus if not STEP_MOVES[status]} == {"completed"}
    assert {status for status in StepStatus if STEP_MOVES[status] == {"pending", "running"}} == {"failed", "skipped"}
    assert {status for status in StepStatus if status.settled} == {"completed", "failed", "skipped"}


def test_d10_only_a_failed_or_partial_execution_can_be_reopened() -> None:
    assert {status for status in ExecutionStatus if not EXECUTION_MOVES[status]} == {"completed", "cancelled"}
    assert {status for status in ExecutionStatus if EXECUTION_MOVES[status] == {"paused"}} == {"partial", "failed"}
    assert {status for status in ExecutionStatus if status.finished} == {"completed", "partial", "failed", "cancelled"}


@pytest.mark.parametrize(("table", "start"), [(STEP_MOVES, "pending"), (EXECUTION_MOVES, "pending")])
def test_c1_every_status_can_be_reached_and_every_unfinished_one_can_end(table: Table, start: str) -> None:
    moves = {str(old): {str(new) for new in news} for old, news in table.items()}
    reached, new = set[str](), {start}
    while new:
        reached |= new
        new = set().union(*(moves[status] for status in new)) - reached
    assert reached == set(moves)
    ended = {"completed", "failed", "skipped", "partial", "cancelled"}
    assert all(onward & ended for status, onward in moves.items() if status not in ended)


@pytest.mark.parametrize(("old", "new"), list(product(StepStatus, StepStatus)))
def test_c1_a_step_makes_the_moves_of_the_table_and_no_other(old: StepStatus, new: StepStatus) -> None:
    if new in STEP_MOVES[old]:
        check_step_move("build", old, new)
    else:
        with pytest.raises(IllegalMove, match=f"build cannot go from {old} to {new}"):
            check_step_move("build", old, new)


@pytest.mark.parametrize(("old", "new"), list(product(ExecutionStatus, ExecutionStatus)))
def test_c1_an_execution_makes_the_moves_of_the_table_and_no_other(old: ExecutionStatus, new: ExecutionStatus) -> None:
    if new in EXECUTION_MOVES[old]:
        check_execution_move(old, new)
    else:
        with pytest.raises(IllegalMove, match=f"from {old} to {new}"):
            check_execution_move(old, new)


@pytest.mark.parametrize(("name", "table"), [("step", STEP_MOVES), ("execution", EXECUTION_MOVES)])
def test_c1_the_diagram_in_the_docs_is_the_table(name: str, table: Table) -> None:
    blocks = re.findall(rf"^```transitions-{name}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"docs/durability.md has one block ```transitions-{name}"
    drawn: dict[str, set[str]] = {}
    for line in filter(None, map(str.strip, blocks[0].splitlines())):
        old, arrow, news = line.partition("->")
        assert arrow, f"{line!r} is not `from -> to1, to2`"
        assert old.strip() not in drawn, f"{old.strip()} stands there twice"
        drawn[old.strip()] = {new.strip() for new in news.split(",") if new.strip()}
    assert drawn == {str(old): {str(new) for new in news} for old, news in table.items()}
