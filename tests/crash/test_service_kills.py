"""kill -9 of the engine while a service runs: nothing is left running, and a resume starts it again (B5, A8, D2)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
    name: served
    steps:
      - {id: server, run: "echo $$ >> pids.txt; echo up; exec sleep 1000", service: {line: up}}
      - {id: a, needs: [server], run: "until [ -e go ]; do sleep 0.01; done; kill -0 $(tail -n 1 pids.txt)"}
"""


def gone(project: Project) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in project.lines("pids.txt"))


@pytest.mark.parametrize("at", ["ready", "later"])
def test_b5_a8_d2_a_killed_engine_leaves_no_service_and_a_resume_starts_it_again(
    project: Project, windlass: Windlass, at: str
) -> None:
    plan = project.plan(PLAN)
    if at == "ready":  # the service is ready, and the journal does not know
        windlass("run", plan, code=-9, WINDLASS_FAULT="service.ready")
        (execution,) = project.ids()
    else:
        execution = windlass.detached(plan)
        wait_until(lambda: project.state(execution).steps["a"].attempts, "the step that needs it runs")
        windlass.kill(execution)
    wait_until(lambda: gone(project), "the service is gone with its engine")
    (project.path / "go").touch()
    windlass("resume", execution)
    assert project.state(execution).status == "completed"
    assert len(project.lines("pids.txt")) == 2
    assert gone(project)
