"""Writes the history of a workflow as this release makes it: `python tests/cluster/record_history.py NAME`.

Histories that are there stay as they are: `test_cluster_upgrade.py` replays them with the workflow of today.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster_world import LocalCluster
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from temporalio.client import Client

HISTORIES = Path(__file__).resolve().parent / "histories"
PLAN = {
    "name": "history",
    "steps": [
        {"id": "a", "run": "sleep 1"},
        {"id": "b", "run": "true"},
        {"id": "c", "needs": ["a", "b"], "tag": "gpu", "run": "true"},
        {"id": "d", "needs": ["c"], "approve": "always", "run": "true"},
    ],
}


def main(name: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = PostgresServer()
        stack.callback(postgres.close)
        journal = stack.enter_context(postgres.database())
        (folder / "temporal").mkdir()
        temporal = TemporalServer(folder / "temporal")
        stack.callback(temporal.close)
        cluster = LocalCluster(folder, journal, temporal.address)
        stack.callback(cluster.close)
        for tags in ((), ("--tag", "gpu")):
            assert cluster.worker(*tags).name
        said, _ = cluster.run(PLAN).communicate()
        id = cluster.newest
        assert "approve" in said, said
        cluster.windlass("approve", id, "d")
        cluster.windlass("resume", id)
        (HISTORIES / f"{name}.json").write_text(asyncio.run(_history(temporal.address, id)) + "\n")


async def _history(address: str, id: str) -> str:
    client = await Client.connect(address)
    found = [
        await client.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()
        async for one in client.list_workflows(f"WorkflowId = 'windlass-{id}'")
    ]
    longest = max(found, key=lambda history: len(history.events)).to_json_dict()
    # The name of the machine is nobody's business.
    text = json.dumps(longest, indent=1).replace(gethostname(), "machine")
    return re.sub(r'("identity": )"[^"]*"', r'\1"worker"', text)


if __name__ == "__main__":
    main(sys.argv[1])
