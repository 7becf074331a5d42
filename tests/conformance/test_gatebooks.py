"""One suite for every gate book: what all executions of a home share about tools (C4, C8)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE

from windlass.core.breaker import Breaker
from windlass.engine.gates.memory import MemoryGateStore
from windlass.journal.gatebook import SqliteGateStore
from windlass.journal.stores import HomeStores
from windlass.ports import GateStore, Rate


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GateStore]:
    made: GateStore
    if request.param == "postgres":
        made = HomeStores(tmp_path, request.getfixturevalue("postgres")).gates()
    else:
        made = MemoryGateStore() if request.param == "memory" else SqliteGateStore(tmp_path / "gates.db")
    yield made
    made.close()


def test_c8_a_rate_lets_its_uses_through_and_then_says_how_long_to_wait(book: GateStore) -> None:
    rate = Rate(3, 60.0)
    assert [book.take("a", rate, 100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    wait = book.take("a", rate, 100.0)
    assert wait == pytest.approx(20.0)
    assert book.take("b", rate, 100.0) == 0.0, "another tool has its own"
    assert book.take("a", rate, 100.0 + wait) == 0.0
    assert book.take("a", rate, 100.0 + wait) == pytest.approx(20.0)


def test_c8_a_refused_use_is_not_counted(book: GateStore) -> None:
    rate = Rate(1, 10.0)
    assert book.take("a", rate, 0.0) == 0.0
    for _ in range(100):
        assert book.take("a", rate, 1.0) == pytest.approx(9.0)
    assert book.take("a", rate, 10.0) == 0.0


def test_c8_a_clock_that_was_set_back_does_not_close_a_gate_for_a_day(book: GateStore) -> None:
    rate = Rate(1, 10.0)
    assert book.take("a", rate, 86_400.0) == 0.0
    assert book.take("a", rate, 0.0) == 0.0


def test_c4_breakers_are_kept_until_they_close(book: GateStore) -> None:
    broken = Breaker(5, 1, 130.0, because="down")
    book.keep_breaker("http:example.com", broken)
    assert book.breaker("http:example.com") == broken
    assert book.breakers() == {"http:example.com": broken}
    book.keep_breaker("http:example.com", Breaker())
    assert book.breakers() == {}


def test_h2_what_is_known_is_good_until_its_time(book: GateStore) -> None:
    book.learn("k", {"a": [1, None]}, until=10.0)
    assert book.known("k", 9.0, 1.0) == ({"a": [1, None]},)
    assert book.known("k", 10.0, 1.0) is None
    assert book.known("other", 0.0, 10.0) is None
    book.learn("nothing", None, until=10.0)
    assert book.known("nothing", 0.0, 10.0) == (None,), "nothing is a result, too"


def test_h2_what_a_clock_that_was_ahead_has_written_is_not_known(book: GateStore) -> None:
    book.learn("k", 1, until=86_400.0 + 60.0)
    assert book.known("k", 0.0, 60.0) is None
    book.learn("k", 2, until=60.0)
    assert book.known("k", 0.0, 60.0) == (2,)


def test_h2_the_cache_does_not_grow_without_end(book: GateStore) -> None:
    for number in range(2_300):
        book.learn(f"k{number}", number, until=100.0 + number)
    assert book.known("k2299", 0.0, 5_000.0) == (2299,)
    assert book.known("k0", 0.0, 5_000.0) is None


_TAKER = """
import sys
from windlass.journal.gatebook import SqliteGateStore
from windlass.ports import Rate
book = SqliteGateStore(sys.argv[1])
print(sum(book.take("a", Rate(50, 1000.0), 5.0) == 0.0 for _ in range(40)))
"""


def test_c8_all_processes_of_a_home_share_a_rate(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TAKER, str(tmp_path / "gates.db")]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(taker.communicate(timeout=PATIENCE)[0]) for taker in takers]
    assert sum(taken) == 50


def test_c4_another_process_knows_of_an_open_breaker(tmp_path: Path) -> None:
    one, other = SqliteGateStore(tmp_path / "g.db"), SqliteGateStore(tmp_path / "g.db")
    broken = Breaker(5, 1, 130.0, because="down")
    one.keep_breaker("a", broken)
    assert other.breaker("a") == broken
    one.close()
    other.close()


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "g.db").write_bytes(b"this is no database" * 100)
    book = SqliteGateStore(tmp_path / "g.db")
    assert book.take("a", Rate(1, 1.0), 0.0) == 0.0
    book.close()


def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    book = SqliteGateStore(tmp_path / "g.db")
    book.breakers()
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077] == []
    book.close()
