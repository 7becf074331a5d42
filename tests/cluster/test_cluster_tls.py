"""Workers that reach PostgreSQL and Temporal by TLS alone, with certificates that are checked (J2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import LocalCluster
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from tls_front import TlsFront, make_certificates


@pytest.fixture
def secured(
    tmp_path: Path, postgres: str, postgres_server: PostgresServer, temporal_server: TemporalServer
) -> Iterator[LocalCluster]:
    """A cluster whose servers are reached by TLS, and trusted by the authority that signed for them."""
    context, authority = make_certificates(tmp_path / "tls")
    front = TlsFront(context)
    database = postgres.split("/")[3].split("?")[0]
    port = front.of_postgres(postgres_server.folder / ".s.PGSQL.5432")
    trust = f"sslmode=verify-full&sslrootcert={authority}"
    temporal = front.of_http2(int(temporal_server.address.split(":")[1]))
    made = LocalCluster(tmp_path, f"postgresql://postgres@localhost:{port}/{database}?{trust}", f"localhost:{temporal}")
    made.env |= {"TEMPORAL_TLS": "true", "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority)}
    yield made
    made.close()
    front.close()


def test_j2_a_plan_runs_by_tls_alone_and_strangers_certificates_are_refused(
    secured: LocalCluster, tmp_path: Path
) -> None:
    assert secured.worker().name
    steps = [{"id": "a", "run": "echo one"}, {"id": "b", "needs": ["a"], "run": "echo two"}]
    run = secured.run({"name": "secured", "steps": steps})
    said, _ = run.communicate()
    assert run.returncode == 0, said
    _, stranger = make_certificates(tmp_path / "stranger")
    authority = str(tmp_path / "tls" / "authority.pem")
    secured.env["TEMPORAL_TLS_SERVER_CA_CERT_PATH"] = str(stranger)
    said, _ = secured.run({"name": "refused", "steps": steps}).communicate()
    assert "cannot be reached" in said
    secured.env["WINDLASS_JOURNAL"] = secured.journal.replace(authority, str(stranger))
    said, _ = secured.begin("workers").communicate()
    assert "the server's certificate is not trusted" in said
    assert "sslrootcert=FILE" in said
    secured.env["WINDLASS_JOURNAL"] = secured.journal.split("&sslrootcert")[0]
    said, _ = secured.begin("workers").communicate()
    assert "nothing says which certificates to trust" in said
    assert "sslrootcert=FILE" in said
