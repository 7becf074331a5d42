"""Releases that follow each other: workflows of an older one go on, and workers of both work together (J2)."""

from __future__ import annotations

import signal
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from cluster_world import LocalCluster, WorkerProcess
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from test_cluster import placed_on, waiting
from waiting import wait_until

from windlass.core import events as ev
from windlass.temporal.workflow import ExecutionWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))
SOURCE = Path(__file__).parent.parent.parent
SCHEMA = "src/windlass/journal/postgres_schema.py"


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
async def test_j2_the_history_of_an_earlier_release_leads_to_the_same_commands(file: Path) -> None:
    """A workflow whose code has changed would be refused by Temporal, for all executions that run at an upgrade."""
    history = WorkflowHistory.from_json("windlass-execution", file.read_text())
    await Replayer(workflows=[ExecutionWorkflow]).replay_workflow(history)


def earlier_release(folder: Path) -> Path:
    """The source of the first commit that has the tables of today."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(SOURCE), *words], capture_output=True, check=True).stdout

    commit = git("log", "-1", "--format=%H", "--", SCHEMA).decode().strip()
    with tarfile.open(fileobj=BytesIO(git("archive", commit, "src"))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(folder)
    return folder / "src"


@pytest.mark.soak
@pytest.mark.skipif(not (SOURCE / ".git").exists(), reason="the earlier release comes from the repository")
def test_j2_executions_go_on_from_an_older_worker_to_a_newer_one_and_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    older = {**cluster.env, "PYTHONPATH": str(earlier_release(tmp_path / "older"))}
    old = WorkerProcess(tmp_path / "old", older, "--drain", "0")
    cluster.workers.append(old)
    first = old.name
    steps = [waiting("a"), waiting("b"), {"id": "c", "needs": ["a", "b"], "run": "echo c >> ran"}]
    run = cluster.run({"name": "upgraded", "steps": steps})
    id = cluster.newest
    cluster.until(id, placed_on(first, 2), ev.AttemptPlaced)
    new = cluster.worker("--drain", "0")
    second = new.name
    old.signal(signal.SIGTERM)
    cluster.until(id, placed_on(second, 2), ev.AttemptPlaced)
    assert old.process.wait() == 0
    again = WorkerProcess(tmp_path / "again", older)
    cluster.workers.append(again)
    third = again.name
    new.signal(signal.SIGTERM)
    cluster.until(id, placed_on(third, 2), ev.AttemptPlaced)
    together = cluster.worker()
    wait_until(lambda: together.name, "both releases work")
    (cluster.project / "go").touch()
    said, _ = run.communicate()
    assert run.returncode == 0, said
    finished = [event.step for event in cluster.events(id, ev.AttemptFinished)]
    assert sorted(finished) == ["a", "b", "c"]
