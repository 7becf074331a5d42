"""The crash suite's plan on workers: one dies before or after each write to the journal, another goes on (D2, J2)."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from cluster_world import LocalCluster, WorkerProcess
from waiting import wait_until

from windlass.core import events as ev
from windlass.core.state import State, fold

sys.path.insert(0, str(Path(__file__).parents[1] / "crash"))
from test_kill_points import FIVE

STOPPED = (ev.ExecutionFinished, ev.ExecutionPaused)


def worker_that_dies(cluster: LocalCluster, fault: str) -> WorkerProcess:
    cluster.env["WINDLASS_FAULT"] = fault
    try:
        return cluster.worker()
    finally:
        del cluster.env["WINDLASS_FAULT"]


def state_of(cluster: LocalCluster, id: str) -> State:
    return fold(cluster.events(id, object))


def ended(cluster: LocalCluster, id: str, worker: WorkerProcess) -> bool:
    """True if the worker has died, or the execution has come to its end before."""
    return worker.process.poll() is not None or bool(cluster.events(id, ev.ExecutionFinished))


def survives(cluster: LocalCluster, fault: str) -> bool:
    """Run the plan on a worker that dies there, then on another one; False if it got through."""
    log = cluster.project / "log"
    log.unlink(missing_ok=True)
    dying = worker_that_dies(cluster, fault)
    wait_until(lambda: dying.is_ready or dying.process.poll() is not None, "the worker is ready")
    assert dying.process.poll() is None, f"it writes nothing to the journal before there is work:\n{dying.log}"
    id = cluster.detach(yaml.safe_load(FIVE))
    wait_until(lambda: ended(cluster, id, dying), "the worker dies, or all is done")
    before = cluster.events(id, object)
    completed = {step.id: step.attempts for step in fold(before).steps.values() if step.status == "completed"}
    if died := dying.process.poll() is not None:
        other = cluster.worker()
        wait_until(lambda: cluster.events(id, *STOPPED), "it ends, or asks a person")
        if not cluster.events(id, ev.ExecutionFinished):
            assert [step.id for step in state_of(cluster, id).questions.values()] == ["pay"]
            cluster.windlass("resume", id, "--done", "pay")
        other.kill()
    else:
        dying.kill()
    after = cluster.events(id, object)
    state = fold(after)
    assert state.status == "completed", fault
    assert after[: len(before)] == before, "the journal only ever grows"
    times = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    assert set(times.values()) == {1}, f"{fault}: no attempt happens twice"
    assert sum(step == "pay" for step, _ in times) <= 1, f"{fault}: what may happen once happens once"
    late = [name for name, attempt in times if int(attempt) > completed.get(name, sys.maxsize)]
    assert late == [], f"{fault}: it ran again after it was journalled as completed"
    assert {step.id for step in state.steps.values() if step.children is None} - {"pay"} <= {step for step, _ in times}
    return died


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("when", ["before_write", "before_commit", "after_commit"])
def test_d2_a_worker_that_dies_at_any_write_loses_and_repeats_nothing(cluster: LocalCluster, when: str) -> None:
    kills = next(number for number in itertools.count() if not survives(cluster, f"journal.{when}:{number + 1}"))
    print(f"{kills} kills {when}")
    assert kills > 5
