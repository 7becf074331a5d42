"""A namespace of Temporal other than `default` (J2)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster_world import LocalCluster
from waiting import wait_until


def test_j2_a_namespace_that_is_not_there_is_refused_with_the_command_that_makes_it(cluster: LocalCluster) -> None:
    named = f"{cluster.temporal}/agents"
    said = cluster.windlass("worker", "--temporal", named, code=2)
    assert f"the Temporal server {cluster.temporal} has no namespace agents" in said
    advice = said.split("create it: ")[1].split()
    subprocess.run([Path(sys.executable).with_name(advice[0]), *advice[1:]], check=True, capture_output=True)
    steps = {"steps": [{"id": "a", "run": "echo one"}]}
    cluster.env["WINDLASS_TEMPORAL"] = named
    said, _ = cluster.run(steps).communicate()
    assert f"windlass worker --temporal {named} --journal" in said
    worker = cluster.worker()
    wait_until(lambda: worker.is_ready or worker.process.poll() is not None, "the worker is ready")
    said, _ = cluster.run(steps).communicate()
    assert "1 completed" in said, worker.log
