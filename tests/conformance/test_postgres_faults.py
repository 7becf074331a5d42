"""A PostgreSQL journal when things go wrong: servers that restart, connections that break, wrong addresses (J2, D2)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from test_journal import begin, created, head, note, notes

from windlass.errors import Conflict, JournalError, UsageError
from windlass.homes.journal_url import PostgresUrl
from windlass.journal import postgres_database
from windlass.journal.ledger import SqliteLedger
from windlass.journal.postgres import PostgresJournal
from windlass.journal.postgres_database import PostgresDatabase, prepare_database
from windlass.journal.postgres_presence import LEASE
from windlass.journal.postgres_schema import LOCKS, SCHEMA_VERSION
from windlass.ports import Journal


@pytest.fixture
async def stored(postgres: str, tmp_path: Path) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(PostgresUrl(postgres), tmp_path)
    yield journal
    await journal.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be stopped: the others' tests do not notice."""
    server = PostgresServer()
    yield server
    server.close()


# -- servers and connections that go away ---------------------------------------------------------


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_d2_appends_go_on_through_a_restart_of_the_server_none_lost_none_twice(
    own_server: PostgresServer, tmp_path: Path, how: str
) -> None:
    with own_server.database() as address:
        journal = PostgresJournal(PostgresUrl(address), tmp_path)
        done = 0

        async def drive(name: str) -> None:
            nonlocal done
            await begin(journal, name)
            n = 0
            while done < 3 or n < 20:
                n += 1
                await journal.append(name, n, [note(n)])

        async def restart() -> None:
            nonlocal done
            for _ in range(3):
                await asyncio.to_thread(own_server.restart, how)
                await begin(journal, f"after {done}")
                done += 1

        names = [f"x{n}" for n in range(5)]
        await asyncio.gather(*map(drive, names), restart())
        for name in names:
            found = await notes(journal, name)
            assert found == list(range(1, len(found) + 1))
            assert len(found) >= 20
        await journal.close()


async def test_d2_numbers_that_fell_behind_do_not_refuse_an_append(own_server: PostgresServer, tmp_path: Path) -> None:
    """As in a database that was restored without its sequences: it is not mistaken for another driver."""
    with own_server.database() as address:
        journal = PostgresJournal(PostgresUrl(address), tmp_path)
        for name in ("a", "b"):
            await begin(journal, name)
            await journal.append(name, 1, [note(1)])
        with psycopg.connect(address, autocommit=True) as session:
            for table, column in (("events", "position"), ("executions", "key")):
                session.execute(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), 1)".encode())
        await journal.append("a", 2, [note(2)])
        await begin(journal, "c")
        assert await notes(journal, "a") == [1, 2]
        with pytest.raises(Conflict):
            await journal.append("a", 2, [note(2)])
        await journal.close()


async def test_a_server_that_is_down_at_the_start_is_waited_for(own_server: PostgresServer, tmp_path: Path) -> None:
    with own_server.database() as address:
        own_server.stop()
        opening = asyncio.create_task(asyncio.to_thread(PostgresJournal, PostgresUrl(address), tmp_path))
        await asyncio.to_thread(own_server.start)
        journal = await opening
        await begin(journal, "x")
        assert len(await journal.read("x")) == 1
        await journal.close()


def test_a_server_that_stays_away_is_an_error_with_advice(tmp_path: Path) -> None:
    database = PostgresDatabase(PostgresUrl(f"postgresql://u:geheim@/db?host={tmp_path}"), patience=0.1)
    with pytest.raises(JournalError, match=r"did not answer for 0\.1 s") as caught:
        database.open()
    assert "geheim" not in caught.value.message
    assert "windlass resume" in caught.value.advice[1]


@pytest.fixture
def one_session(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a database for a user who may have one session."""
    with postgres_server.database() as address:
        name = address.split("/")[3].split("?")[0]
        user = f"lone_{name}"
        postgres_server.run(f"CREATE ROLE {user} LOGIN CONNECTION LIMIT 1", name)
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}", name)
        yield postgres_server.address(name, user)
        postgres_server.run(f"DROP OWNED BY {user}; DROP ROLE {user}", name)


def test_j2_a_server_that_takes_no_more_sessions_is_waited_for(
    one_session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, pauses = psycopg.connect(one_session), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        other.close()

    monkeypatch.setattr(postgres_database.time, "sleep", pause)
    database = PostgresDatabase(PostgresUrl(one_session))
    database.open()
    database.close()
    assert pauses


def test_j2_a_server_that_goes_on_taking_no_more_sessions_is_an_error_with_advice(one_session: str) -> None:
    with psycopg.connect(one_session), pytest.raises(JournalError, match="takes no more connections") as caught:
        PostgresDatabase(PostgresUrl(one_session), patience=0.0).open()
    assert "max_connections" in caught.value.advice[0]


@pytest.mark.parametrize(
    ("kind", "message", "advice"),
    [
        ("53100", "the server's disk is full: no more", "free space on the server's disk"),
        ("53200", "the server is out of memory: no more", "give the server more memory"),
    ],
)
def test_j2_what_the_server_lacks_is_named(postgres: str, kind: str, message: str, advice: str) -> None:
    database = PostgresDatabase(PostgresUrl(postgres))
    with pytest.raises(JournalError, match=message) as caught:
        database.transact(lambda db: db.execute(f"DO $$ BEGIN RAISE 'no more' USING ERRCODE = '{kind}'; END $$"))
    database.close()
    assert advice in caught.value.advice[0]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("alone", [True, False], ids=["one statement", "a transaction"])
async def test_d2_a_commit_whose_answer_was_lost_is_looked_up_and_never_done_twice(
    stored: PostgresJournal, committed: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(stored, "x")
    use_the_thread(stored, monkeypatch)
    session = stored._writer.open().session
    monkeypatch.setattr(session, "execute", lost_answer(session, committed))
    await stored.append("x", 1, [note("once")], head=None if alone else head("x"))
    assert stored._writer.open().session is not session
    assert await notes(stored, "x") == ["once"]
    await stored.append("x", 2, [note("next")])
    assert await notes(stored, "x") == ["once", "next"]


@pytest.mark.parametrize("committed", [True, False])
async def test_d2_after_a_commit_whose_outcome_stayed_unknown_the_next_one_is_not_taken_for_it(
    stored: PostgresJournal, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(stored, "x")
    use_the_thread(stored, monkeypatch)
    session = stored._writer.open().session
    monkeypatch.setattr(session, "execute", lost_answer(session, committed))
    with monkeypatch.context() as away:
        away.setattr(stored._writer, "_patience", 0.0)
        away.setattr(postgres_database, "connect", lambda url: psycopg.connect("host=/nowhere"))
        with pytest.raises(JournalError, match="did not answer"):
            await stored.append("x", 1, [note("unknown")])
    await begin(stored, "y")
    await stored.append("y", 1, [note("known")])
    assert await notes(stored, "y") == ["known"]
    assert await notes(stored, "x") == (["unknown"] if committed else [])


def use_the_thread(journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write as if others wrote at the same time (`test_postgres_quick.py` has the appends that are alone)."""
    monkeypatch.setattr(journal._quick, "send", lambda request: False)


def lost_answer(session: psycopg.Connection[Any], committed: bool) -> Callable[..., Any]:
    """The session's `execute`, with a connection that breaks when the commit was sent."""
    real = session.execute

    def execute(sql: Any, *parameters: Any, **how: Any) -> Any:
        if sql != "COMMIT" and b"WITH present" not in bytes(sql):
            return real(sql, *parameters, **how)
        if committed:
            real(sql, *parameters, **how)
        session.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    return execute


@pytest.mark.parametrize("quick", [True, False], ids=["loop", "thread"])
async def test_d2_events_alone_are_refused_where_they_do_not_follow(
    stored: PostgresJournal, postgres: str, tmp_path: Path, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PostgresJournal(PostgresUrl(postgres), tmp_path)
    await begin(stored, "x")
    await stored.append("x", 1, [note(1), note(2)])
    await other.append("x", 3, [note(3)])
    if not quick:
        use_the_thread(stored, monkeypatch)
        use_the_thread(other, monkeypatch)
    session, sent = other._writer.open().session, []
    monkeypatch.setattr(
        session, "execute", lambda *given, real=session.execute, **how: (sent.append(1), real(*given, **how))[1]
    )
    await other.append("x", 4, [note(4)])
    assert len(sent) == (0 if quick else 1), "one way to the server and back"
    for after in (2, 4, 6):  # others were faster, by some or by all events; or there is a gap before them
        with pytest.raises(Conflict):
            await stored.append("x", after, [note("stale"), note("stale")])
    assert await notes(stored, "x") == [1, 2, 3, 4]
    await stored.append("x", 5, [note(5)])
    await other.remove("x")
    with pytest.raises(Conflict):
        await stored.append("x", 6, [note(6)])
    await other.close()


async def test_d2_a_session_that_is_ended_while_idle_is_opened_anew(
    stored: PostgresJournal, postgres_server: PostgresServer
) -> None:
    await begin(stored, "x")
    await stored.read("x")
    postgres_server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'windlass'")
    await stored.append("x", 1, [note("n")])
    assert await notes(stored, "x") == ["n"]


# -- following everybody's events -----------------------------------------------------------------


async def test_i3_who_follows_all_events_does_not_pass_by_a_transaction_in_flight(
    stored: PostgresJournal, postgres: str, tmp_path: Path
) -> None:
    other = PostgresJournal(PostgresUrl(postgres), tmp_path)
    await begin(stored, "x")
    await begin(other, "y")
    # As another writer would be in the middle of its commit: its position is taken, and nobody can see it.
    database = PostgresDatabase(PostgresUrl(postgres))
    announce = (
        f"SELECT pg_advisory_xact_lock_shared({LOCKS}, "
        "(pg_sequence_last_value(pg_get_serial_sequence('events', 'position')::regclass) & 1073741823)::int)"
    )
    session = database.open().session
    session.execute("BEGIN")
    session.execute(announce.encode())
    session.execute("INSERT INTO events (execution, seq, body) SELECT key, 2, '{}' FROM executions WHERE id = 'y'")
    await stored.append("x", 1, [note("later")])
    assert [(entry.execution, entry.seq) for entry in await stored.read(None)] == [("x", 1), ("y", 1)]
    assert len(await stored.read("x")) == 2, "its own events are all there"
    session.execute("ROLLBACK")
    assert [(entry.execution, entry.seq) for entry in await stored.read(None)] == [("x", 1), ("y", 1), ("x", 2)]
    database.close()
    await other.close()


# -- drivers ---------------------------------------------------------------------------------------


async def test_d6_a_driver_elsewhere_is_alive_while_it_renews_its_line(
    stored: PostgresJournal, postgres_server: PostgresServer, postgres: str
) -> None:
    name = postgres.split("/")[3].split("?")[0]
    rows = [("lives", -LEASE * 100), ("died", LEASE * 3)]  # this one renews it for as long as the test takes
    for driver, seconds in rows:
        values = f"('{driver}', 'another machine', '/home', clock_timestamp() - interval '{seconds} s')"
        postgres_server.run(f"INSERT INTO drivers VALUES {values}", name)
    # After a start of the server, every line counts for a while; this server has just been started.
    postgres_server.run(
        "CREATE OR REPLACE FUNCTION pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql "
        "AS $$ SELECT now() - interval '1 hour' $$",
        name,
    )
    postgres_server.run(f"ALTER DATABASE {name} SET search_path = public, pg_catalog", name)
    stored._presence._db.close()
    assert stored.alive("lives")
    assert not stored.alive("died")
    assert not stored.alive("")


async def test_d6_whether_drivers_are_alive_is_said_while_the_server_hangs(
    stored: PostgresJournal, postgres: str
) -> None:
    presence = stored._presence
    with psycopg.connect(postgres) as other:
        other.execute(
            "INSERT INTO drivers (name, host, home, seen_at) VALUES ('elsewhere', 'x', '', clock_timestamp())"
        )
        other.commit()
        assert stored.alive("elsewhere")
        other.execute("LOCK TABLE drivers IN ACCESS EXCLUSIVE MODE")
        presence._seen_at -= 60
        assert [stored.alive("elsewhere") for _ in range(1000)] == [True] * 1000
        assert not stored.alive("nobody")
    assert presence._looking is not None
    await asyncio.wrap_future(presence._looking)
    assert not presence.stale


async def test_d6_the_death_of_a_driver_on_this_machine_is_known_at_once(
    stored: PostgresJournal, postgres: str, tmp_path: Path
) -> None:
    other = PostgresJournal(PostgresUrl(postgres), tmp_path)
    driver = other.enlist()
    assert stored.alive(driver)
    other._presence._local.leave()  # as the kernel does when its process dies
    stored._presence._seen_at = float("-inf")
    assert not stored.alive(driver)
    await other.close()


# -- databases that cannot be used ------------------------------------------------------------------


def test_many_processes_that_find_an_empty_database_make_its_tables_once(postgres_server: PostgresServer) -> None:
    with postgres_server.database(empty=True) as address, ThreadPoolExecutor(8) as threads:
        list(threads.map(prepare_database, [PostgresUrl(address)] * 8))
        name = address.split("/")[3].split("?")[0]
        versions = [(version,) for version in range(1, SCHEMA_VERSION + 1)]
        assert postgres_server.run("SELECT version FROM windlass_schema ORDER BY version", name) == versions


def test_a_database_of_a_newer_release_is_refused_with_the_command_that_helps(
    postgres_server: PostgresServer, postgres: str
) -> None:
    postgres_server.run("INSERT INTO windlass_schema VALUES (999, now())", postgres.split("/")[3].split("?")[0])
    with pytest.raises(JournalError, match="newer Windlass") as caught:
        prepare_database(PostgresUrl(postgres))
    assert "upgrade" in caught.value.advice[0]


def test_tables_of_another_program_are_not_touched(postgres_server: PostgresServer) -> None:
    with postgres_server.database(empty=True) as address:
        name = address.split("/")[3].split("?")[0]
        postgres_server.run("CREATE TABLE events (precious int)", name)
        with pytest.raises(JournalError, match="another program"):
            prepare_database(PostgresUrl(address))
        assert postgres_server.run("SELECT to_regclass('windlass_schema')", name) == [(None,)]


def test_a_user_without_rights_is_told_so(postgres_server: PostgresServer) -> None:
    with postgres_server.database(empty=True) as address:
        name = address.split("/")[3].split("?")[0]
        postgres_server.run(f"CREATE ROLE reader_{name} LOGIN", name)
        with pytest.raises(JournalError, match="lacks rights"):
            prepare_database(PostgresUrl(postgres_server.address(name, f"reader_{name}")))
        postgres_server.run(f"DROP ROLE reader_{name}", name)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("postgresql://postgres@/nowhere?host={}", "no such database"),
        ("postgresql://nobody@/x?host={}", "no such user"),
        ("postgresql://postgres@db.example/postgres", "the host is not known"),
        ("postgresql://postgres@/postgres?host={}&port=abc", 'cannot be used: invalid integer value "abc"'),
        ("postgresql://postgres@/postgres?host={}&sslmode=yes", 'cannot be used: invalid sslmode value: "yes"'),
    ],
)
def test_a_wrong_address_is_an_error_at_once(
    postgres_server: PostgresServer, address: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_asked: Any, **_how: Any) -> None:  # nobody is asked for a name
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(JournalError, match=text) as caught:
        prepare_database(PostgresUrl(address.format(postgres_server.folder)))
    assert "log" not in caught.value.advice[0]


def test_a_schema_that_is_not_there_is_an_error_whose_advice_helps(postgres_server: PostgresServer) -> None:
    with postgres_server.database(empty=True) as address:
        url = PostgresUrl(f"{address}&options=-csearch_path%3Dwindlass")
        with pytest.raises(JournalError, match="no schema") as caught:
            prepare_database(url)
        make = caught.value.advice[0].split("make it: ")[1].split(";")[0]
        name = address.split("/")[3].split("?")[0]
        postgres_server.run(make.replace("NAME", "windlass"), name)
        prepare_database(url)
        assert postgres_server.run("SELECT count(*) FROM windlass.executions", name) == [(0,)]


def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(own_server: PostgresServer) -> None:
    own_server.run("CREATE ROLE careful LOGIN PASSWORD 'right'")
    rules = own_server.folder / "pg_hba.conf"
    rules.write_text("local all careful scram-sha-256\n" + rules.read_text())
    own_server.run("SELECT pg_reload_conf()")
    url = PostgresUrl(f"postgresql://careful:geheim@/postgres?host={own_server.folder}")
    with pytest.raises(JournalError, match="password is wrong") as caught:
        prepare_database(url)
    assert "geheim" not in f"{caught.value.message}{caught.value.advice}{url}{url!r}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:secret@db.example:5432/w", "postgresql://ann@db.example:5432/w"),
        ("postgres://ann:s%40cret@db/w?sslmode=require", "postgresql://ann@db/w?sslmode=require"),
        ("postgresql://db/w?user=ann&password=secret", "postgresql://db/w?user=ann"),
    ],
)
def test_an_address_is_shown_without_its_password(text: str, shown: str) -> None:
    url = PostgresUrl(text)
    assert str(url) == shown
    assert "cret" not in repr(url) + url.hide("cannot use s@cret or secret")[:0] + str(url)


@pytest.mark.parametrize("text", ["mysql://x", "postgresql://a:b#c@host/db", "", "postgresql://u:p/w@host/db"])
def test_an_address_that_cannot_be_read_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        PostgresUrl(text)
    assert "b#c" not in caught.value.message
    assert "p/w" not in caught.value.message


# -- two that write at once -------------------------------------------------------------------------


async def test_e1_two_ledgers_cannot_take_the_same_room(postgres: str) -> None:
    from test_ledger import NOON, TEN, charge

    from windlass.core.budget import Amount

    ledgers = [SqliteLedger(PostgresDatabase(PostgresUrl(postgres), alone=3)) for _ in range(3)]
    asked = [
        ledger.reserve(charge(f"x{number}", attempt=n), NOON, Amount(usd=1.0), [TEN])
        for number, ledger in enumerate(ledgers)
        for n in range(10)
    ]
    refused = [answer for answer in await asyncio.gather(*asked) if answer is not None]
    assert len(refused) == 20
    for ledger in ledgers:
        await ledger.close()


async def test_d2_an_execution_is_begun_by_one_of_two_processes(postgres: str, tmp_path: Path) -> None:
    journals: list[Journal] = [PostgresJournal(PostgresUrl(postgres), tmp_path) for _ in range(2)]
    for n in range(20):
        tried = [one.append(f"x{n}", 0, [created(f"x{n}")], head=head(f"x{n}")) for one in journals]
        outcomes = await asyncio.gather(*tried, return_exceptions=True)
        assert sorted(type(outcome) for outcome in outcomes if outcome is not None) == [Conflict]
    for one in journals:
        await one.close()
