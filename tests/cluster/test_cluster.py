"""Workers on a real Temporal server and a real PostgreSQL, killed, frozen and stopped (D2, D3, D6, J2).

A step here waits for a file of the test, so that nothing depends on how fast the machine is.
"""

from __future__ import annotations

import json
import signal
from typing import Any

from cluster_world import LocalCluster
from waiting import wait_until

from windlass.core import events as ev

WAITS = 'echo "$WINDLASS_ATTEMPT" >> tried; until [ -e go ]; do sleep 0.05; done; echo "$WINDLASS_ATTEMPT" >> done'


def waiting(step: str, **more: Any) -> dict[str, Any]:
    return {"id": step, "run": WAITS, **more}


def placed_on(worker: str, count: int = 1) -> Any:
    """Tell whether so many attempts were placed on the worker."""
    return lambda events: sum(event.worker == worker for event in events) >= count


def listed(cluster: LocalCluster) -> list[dict[str, Any]]:
    """The list of workers."""
    lines: list[dict[str, Any]] = json.loads(cluster.windlass("workers", "--json"))
    return lines


def test_d2_steps_of_frozen_and_killed_workers_run_elsewhere_and_finished_ones_do_not(cluster: LocalCluster) -> None:
    one = cluster.worker()
    first = one.name
    before = {"id": "before", "run": "echo before >> ran"}
    once = {"id": "pay", "needs": ["before"], "run": "echo paid >> ran; sleep 600", "effect": "once"}
    end = {"id": "end", "needs": ["a"], "run": "echo end >> ran"}
    run = cluster.run({"name": "lost", "steps": [before, waiting("a", needs=["before"]), once, end]})
    id = cluster.newest
    cluster.until(id, placed_on(first, 3), ev.AttemptPlaced)
    two = cluster.worker()
    second = two.name
    one.signal(signal.SIGSTOP)
    cluster.until(id, placed_on(second), ev.AttemptPlaced)
    one.signal(signal.SIGCONT)  # its attempts are not current any more: it stops them
    two.kill()
    cluster.until(id, lambda events: events[-1].worker == first and events[-1].attempt > 2, ev.AttemptPlaced)
    (cluster.project / "go").touch()
    said, _ = run.communicate()
    assert run.returncode == 3, said  # the step that may happen only once is put to a person
    assert (cluster.project / "ran").read_text().split().count("paid") <= 1
    assert len(started(cluster, id, "pay")) == 1
    assert "completed" in cluster.windlass("resume", id, "--done", "pay")
    finished = [(event.step, event.attempt) for event in cluster.events(id, ev.AttemptFinished)]
    # A machine may be so busy that another attempt counts as lost: the last one of each step is the one that counts.
    assert finished == [(step, started(cluster, id, step)[-1]) for step in ("before", "a", "end")]
    lost = {(event.step, event.attempt) for event in cluster.events(id, ev.AttemptStopped) if event.reason == "lost"}
    assert {("a", 1), ("a", 2), ("pay", 1)} <= lost


def running(cluster: LocalCluster) -> list[tuple[str, str]]:
    """The steps that workers run now, with the worker's name."""
    return [(step["step"], line["name"]) for line in listed(cluster) for step in line["steps"]]


def started(cluster: LocalCluster, id: str, step: str) -> list[int]:
    """The attempts of a step."""
    return [event.attempt for event in cluster.events(id, ev.AttemptStarted) if event.step == step]


def test_d3_requests_and_answers_reach_steps_on_every_worker(cluster: LocalCluster) -> None:
    refused = cluster.run({"name": "early", "steps": [waiting("a")]})
    assert "there is no worker to run it" in refused.communicate()[0]
    one, two = cluster.worker("--drain", "0"), cluster.worker("--tag", "gpu")
    names = [one.name, two.name]
    asks = {"id": "asks", "run": "echo asked", "approve": "always", "needs": ["b"]}
    plan = {"name": "steered", "steps": [waiting("a"), waiting("b", tag="gpu"), asks]}
    run = cluster.run(plan)
    id = cluster.newest
    placed = cluster.until(id, lambda events: {event.step for event in events} == {"a", "b"}, ev.AttemptPlaced)
    assert {event.worker for event in placed if event.step == "b"} == {names[1]}
    wait_until(lambda: ("b", names[1]) in running(cluster), "the step in the list")
    tags = {names[0]: [], names[1]: ["gpu"]}
    wait_until(lambda: {one["name"]: one["tags"] for one in listed(cluster)} == tags, "both workers in the list")
    cluster.windlass("interrupt", id)
    run.communicate()
    assert run.returncode == 130
    assert {event.reason for event in cluster.events(id, ev.AttemptStopped)} - {"lost"} == {"paused"}
    resumed = cluster.begin("resume", id)
    (cluster.project / "go").touch()
    resumed.communicate()
    assert resumed.returncode == 3  # nobody is there to answer
    cluster.windlass("approve", id, "asks")
    assert "completed" in cluster.windlass("resume", id)
    for worker in (one, two):
        worker.signal(signal.SIGTERM)
    assert [worker.process.wait() for worker in (one, two)] == [0, 0]
    assert listed(cluster) == []
