"""`windlass serve` starts scheduled plans, beside other ticks and after a kill, once each (L1)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from due_plans import schedule_due_plan
from server_process import Serve, serve
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import Project, Windlass

__all__ = ["serve"]  # a fixture


def ran_once(project: Project) -> bool:
    """The one execution has completed, and its step ran once."""
    ids = project.ids()
    assert len(ids) <= 1
    return bool(ids) and project.state(ids[0]).status == "completed" and project.lines("ran.txt") == ["ran"]


def test_l1_a_server_starts_what_is_due_and_drives_it(project: Project, windlass: Windlass, serve: Serve) -> None:
    plan = schedule_due_plan(project, windlass)
    serve()
    wait_until(lambda: ran_once(project), "the server has started it")
    assert "-server-" in project.drivers()[0]
    windlass("schedule", "tick")
    assert ran_once(project)
    assert "completed" in windlass("schedule", "why", plan).out
    assert "serve" in windlass("schedule", "list", "--json").json["ticks"]


def test_l1_d2_a_server_that_is_killed_before_the_start_leaves_it_to_the_next(
    project: Project, windlass: Windlass, serve: Serve
) -> None:
    schedule_due_plan(project, windlass)
    dying = windlass.background("serve", "--port", "0", WINDLASS_FAULT="trigger.created")
    assert dying.ended().code == -signal.SIGKILL
    assert [str(project.state(one).status) for one in project.ids()] == ["pending"]
    serve()
    wait_until(lambda: ran_once(project), "the next server goes on with it")
