"""The least rights that a worker needs in PostgreSQL: those of docs/postgres.md, and no more (J2)."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer

import windlass
from windlass.errors import JournalError
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres_database import PostgresDatabase
from windlass.journal.stores import HomeStores

DOCS = Path(__file__).parents[2] / "docs" / "postgres.md"
PLAN = windlass.Plan.model_validate(
    {
        "name": "plain",
        "steps": [
            {"id": "a", "run": "echo a"},
            {"id": "b", "needs": ["a"], "run": "echo b", "approve": "always"},
        ],
    }
)


@pytest.fixture
def worker(postgres_server: PostgresServer, postgres: str) -> str:
    """The address for a user that has what the page grants, in a database whose tables another user made."""
    postgres_server.run("DROP ROLE IF EXISTS worker")
    postgres_server.run("CREATE ROLE worker LOGIN")
    grants = re.findall(r"^GRANT .+ TO worker;$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(grants) == 3
    with psycopg.connect(postgres, autocommit=True) as session:
        for grant in grants:
            session.execute(grant.encode())
    return postgres.replace("postgres@", "worker@")


async def test_j2_a_worker_with_the_documented_rights_does_all_its_work(
    worker: str, tmp_path: Path, postgres_server: PostgresServer, postgres: str
) -> None:
    async with windlass.open(tmp_path / "home", journal=worker) as engine:
        id = (await (await engine.start(PLAN, workdir=tmp_path, hold=False)).wait()).id
        await engine.approve(id, "b", allow=True, by="ann")
        state = await (await engine.resume(id)).wait()
        assert state.status == "completed"
        places = engine.attempt_runner.gates._shared
        assert places is not None
        place = await places.take("a", 1)
        assert place is not None
        await places.give_back(place)
        await engine.forget(id)
    table = HomeStores(tmp_path, worker).workers()
    await table.renew("one", "host", [], "1", [])
    assert [line.name for line in await table.lines()] == ["one"]
    await table.leave("one")
    await table.close()
    with pytest.raises(JournalError, match="lacks rights"):
        PostgresDatabase(PostgresUrl(worker)).transact(lambda db: db.execute("DROP TABLE events"))
    with psycopg.connect(postgres, autocommit=True) as session:
        session.execute("DROP OWNED BY worker")
    postgres_server.run("DROP ROLE worker")
