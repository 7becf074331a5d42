from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import LocalCluster
from temporal_server import TemporalServer


@pytest.fixture(scope="package")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A real Temporal server for all tests of this folder."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    yield server
    server.close()


@pytest.fixture
def cluster(tmp_path: Path, postgres: str, temporal_server: TemporalServer) -> Iterator[LocalCluster]:
    """A database and a project of its own, without workers yet."""
    made = LocalCluster(tmp_path, postgres, temporal_server.address)
    yield made
    made.close()
