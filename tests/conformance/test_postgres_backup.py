"""A dump of a PostgreSQL journal, brought back by the commands of the documentation (J2, D9)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from postgres_server import PostgresServer
from test_journal import begin, note, notes

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres import PostgresJournal
from windlass.journal.postgres_workers import WorkerTable

PAGE = Path(__file__).parents[2] / "docs" / "postgres.md"


def run_documented_commands(server: PostgresServer, database: str, copy: str, folder: Path) -> None:
    env = os.environ | {"PATH": f"{server.programs}:{os.environ['PATH']}"}
    env |= {"PGHOST": str(server.folder), "PGUSER": "postgres"}
    section = PAGE.read_text().split("## Backup")[1]
    for line in "".join(re.findall(r"```text\n(.*?)```", section, re.S)).splitlines():
        given = line.replace("postgresql://ann@db.example.com/windlass", database)
        given = given.replace("postgresql://ann@db.example.com/restored", copy)
        given = given.replace("createdb restored", f"createdb {copy.split('/')[3].split('?')[0]}")
        subprocess.run(shlex.split(given), env=env, cwd=folder, check=True)


async def test_j2_a_restored_copy_is_the_same_and_has_workers_of_its_own(
    postgres_server: PostgresServer, postgres: str, tmp_path: Path
) -> None:
    journal = PostgresJournal(PostgresUrl(postgres), tmp_path / "home")
    await begin(journal, "x")
    await journal.append("x", 1, [note("kept")])
    await journal.close()
    name = postgres.split("/")[3].split("?")[0]
    copy = postgres_server.address(f"{name}_restored")
    run_documented_commands(postgres_server, postgres, copy, tmp_path)
    restored = PostgresJournal(PostgresUrl(copy), tmp_path / "home")
    assert await notes(restored, "x") == ["kept"]
    await restored.append("x", 2, [note("goes on")])
    assert await notes(restored, "x") == ["kept", "goes on"]
    await restored.close()
    tables = [WorkerTable(PostgresUrl(address)) for address in (postgres, copy)]
    ours, theirs = [await table.cluster() for table in tables]
    assert ours != theirs
    for table in tables:
        await table.close()
    postgres_server.run(f"DROP DATABASE {name}_restored WITH (FORCE)")
