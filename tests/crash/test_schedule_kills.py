"""kill -9 between the decision of a trigger and its start, and ticks at once: exactly one execution (L1, D2)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from due_plans import schedule_due_plan
from waiting import wait_until

from windlass.core.transitions import ExecutionStatus

if TYPE_CHECKING:
    from conftest import Project, Windlass

WATCHING = """
    name: intake
    inputs: {file: none}
    triggers:
      - {id: inbox, watch: inbox}
    steps:
      - {id: a, run: echo ran >> ran.txt}
"""


def ended(project: Project) -> str:
    """Wait for the end of the one execution; gives its status."""
    (execution,) = project.ids()
    return wait_until(lambda: s if (s := project.state(execution).status).finished else None, "it ends").value


@pytest.mark.parametrize("point", ["decided", "claimed", "created", "driven"])
def test_l1_d2_killed_anywhere_in_a_tick_the_next_tick_starts_it_once(
    project: Project, windlass: Windlass, point: str
) -> None:
    plan = schedule_due_plan(project, windlass)
    windlass("schedule", "tick", code=-9, WINDLASS_FAULT=f"trigger.{point}")
    assert len(project.ids()) == (1 if point in ("created", "driven") else 0)
    (told,) = windlass("schedule", "tick", "--json").json["firings"]
    assert told["status"] == "started"
    assert project.ids() == [told["execution"]]
    assert ended(project) == ExecutionStatus.COMPLETED
    assert project.lines("ran.txt") == ["ran"]
    (after,) = windlass("schedule", "tick", "--json").json["firings"]
    assert (after["execution"], after["status"]) == (told["execution"], "completed")
    assert told["execution"] in windlass("schedule", "why", plan).out


@pytest.mark.parametrize("point", ["decided", "claimed", "created", "driven"])
def test_l1_d2_killed_anywhere_in_a_tick_the_next_tick_starts_a_file_of_long_ago_once(
    project: Project, windlass: Windlass, point: str
) -> None:
    windlass("schedule", "add", project.plan(WATCHING))
    old = project.file("inbox/old.csv", "old")
    os.utime(old, (0, 0))
    windlass("schedule", "tick", code=-9, WINDLASS_FAULT=f"trigger.{point}")
    (told,) = windlass("schedule", "tick", "--json").json["firings"]
    assert (told["file"], told["status"]) == ("old.csv", "started")
    assert project.ids() == [told["execution"]]
    assert ended(project) == ExecutionStatus.COMPLETED
    assert project.lines("ran.txt") == ["ran"]


def test_l1_of_ticks_at_once_exactly_one_starts_it(project: Project, windlass: Windlass) -> None:
    schedule_due_plan(project, windlass)
    ticks = [windlass.background("schedule", "tick", "--json") for _ in range(4)]
    for one in ticks:
        ran = one.ended()
        assert ran.code == 0, str(ran)
    assert ended(project) == ExecutionStatus.COMPLETED
    assert project.lines("ran.txt") == ["ran"]
