"""Two drivers, one execution: whoever comes late is refused, writes nothing, and leaves nothing running (D2, D6)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from crash_cli import Cli, Home
from crash_engine import engine_on
from waiting import wait_until

import windlass
from windlass.core import events as ev
from windlass.engine.engine import Engine
from windlass.errors import Conflict, UsageError
from windlass.journal.sqlite import SqliteJournal
from windlass.ports import Entry, Head

NewHome = Callable[[str], Home]

TWO = """
name: two
steps:
  - id: left
    run: |
      echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> log
      echo $$ > left.$WINDLASS_ATTEMPT
      if [ "$WINDLASS_ATTEMPT" = 1 ]; then read -r _ < gate; fi
  - id: right
    run: |
      echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> log
      echo $$ > right.$WINDLASS_ATTEMPT
      if [ "$WINDLASS_ATTEMPT" = 1 ]; then sleep 1000 & wait; fi
  - id: last
    needs: [left, right]
    run: echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> log
"""


def number_in(path: Path) -> int:
    """The process id that a step has written into a file, once it has."""
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), f"{path.name} is written"))


def frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_d2_a_driver_that_was_frozen_while_another_took_over_is_refused_and_leaves_nothing(
    cli: Cli, new_home: NewHome
) -> None:
    home = new_home(TWO)
    os.mkfifo(home.folder / "gate")
    late = cli.start(home, "run", str(home.plan))
    left, right = (number_in(home.folder / f"{name}.1") for name in ("left", "right"))
    os.kill(late.pid, signal.SIGSTOP)
    wait_until(lambda: frozen(late.pid), "it stands still")

    (listed,) = cli.run(home, "list", "--json").json
    assert (listed["status"], listed["driven"]) == ("running", True), "frozen is not dead"
    refused = cli.run(home, "resume", listed["id"])
    assert refused.code == 2
    assert "--take-over" in refused.err

    taken_over = cli.run(home, "resume", listed["id"], "--take-over", "--json")
    assert taken_over.code == 0, taken_over.err
    assert taken_over.json["status"] == "completed"
    before = home.events()

    with (home.folder / "gate").open("w") as gate:  # the step reads, and its attempt comes to an end
        gate.write("go\n")
    os.kill(late.pid, signal.SIGCONT)  # not before: it may end the step as soon as it sees that it was taken over from
    ended = late.wait()
    assert ended.code == 1, ended.err
    assert "another process took over" in ended.err
    assert "Traceback" not in ended.err
    assert home.events() == before, "the late one wrote nothing"
    wait_until(lambda: gone(left) and gone(right), "the late one's processes are gone")
    assert sorted(home.log) == [("last", 1), ("left", 1), ("left", 2), ("right", 1), ("right", 2)]


def test_d6_a_living_driver_is_not_taken_for_dead_and_a_dead_one_not_for_living(cli: Cli, new_home: NewHome) -> None:
    home = new_home(TWO)
    os.mkfifo(home.folder / "gate")
    driver = cli.start(home, "run", str(home.plan))
    number_in(home.folder / "right.1")
    (listed,) = cli.run(home, "list", "--json").json
    assert listed["driven"]
    os.kill(driver.pid, signal.SIGKILL)
    assert driver.wait().code == -signal.SIGKILL
    (listed,) = cli.run(home, "list", "--json").json
    assert (listed["status"], listed["driven"]) == ("running", False)
    resumed = cli.run(home, "resume", listed["id"], "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["status"] == "completed"


def test_d6_asking_whether_a_dead_driver_lives_never_makes_it_seem_alive(tmp_path: Path) -> None:
    """Many may ask at the same moment; none may take another one's question for the driver."""
    asking = [sys.executable, "-c", ASK, str(tmp_path / "drivers")]
    driver = subprocess.run([*asking, "enlist"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert driver
    askers = [subprocess.Popen([*asking, driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for asker in askers:
        assert asker.stdout is not None
        assert asker.stdout.readline() == b"ready\n"
    for asker in askers:
        assert asker.stdin is not None
        asker.stdin.write(b"go\n")
        asker.stdin.flush()
    answers = [asker.communicate()[0] for asker in askers]
    assert answers == [b"0 of 3000\n"] * 4


ASK = """
import sys
from pathlib import Path
from windlass.journal.presence import Presence
presence = Presence(Path(sys.argv[1]))
if sys.argv[2] == "enlist":
    print(presence.enlist(), end="")
else:
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(presence.alive(sys.argv[2]) for _ in range(3000)), "of 3000")
"""


# -- races ---------------------------------------------------------------------------------------

ROUNDS = 1_000


def test_d2_of_two_drivers_that_append_after_the_same_event_exactly_one_gets_through(tmp_path: Path) -> None:
    """A thousand races, each in two threads with a journal of its own on the same file."""
    path = tmp_path / "windlass.db"
    asyncio.run(begin(path))
    start = threading.Barrier(2)
    won: list[list[bool]] = [[], []]

    async def race(number: int) -> None:
        journal = SqliteJournal(path)
        for seq in range(1, ROUNDS + 1):
            await asyncio.to_thread(start.wait, 60)
            try:
                await journal.append("x", seq, [ev.AttemptFinished(1.0, "a", seq, number)])
                won[number].append(True)
            except Conflict:
                won[number].append(False)
        await journal.close()

    threads = [threading.Thread(target=lambda n=n: asyncio.run(race(n))) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a + b for a, b in zip(*won, strict=True)] == [1] * ROUNDS
    entries = asyncio.run(read(path))
    assert [entry.seq for entry in entries] == list(range(1, ROUNDS + 2))
    winners = [entry.event.output for entry in entries if isinstance(entry.event, ev.AttemptFinished)]
    assert winners == [0 if first else 1 for first in won[0]], "the events are those of the winners"
    assert min(map(sum, won)) > 0, "it was a race"
    print(f"{ROUNDS} races, won {sum(won[0])} : {sum(won[1])}")


PLAN = windlass.Plan.model_validate({"name": "p", "steps": [{"id": "a", "tool": "count"}]})


async def begin(path: Path) -> None:
    journal = SqliteJournal(path)
    created = ev.ExecutionCreated(1.0, id="x", plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")
    await journal.append("x", 0, [created], head=Head("x", "p", "running", 1.0, 1.0, "d"))
    await journal.close()


async def read(path: Path) -> list[Entry]:
    journal = SqliteJournal(path)
    try:
        return await journal.read(None)
    finally:
        await journal.close()


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[tuple[Engine, Engine, list[str]]]:
    """Two engines on one file, as two processes would have them, and what their one tool did."""
    ran: list[str] = []

    @windlass.tool
    async def count(call: windlass.Call) -> int:
        ran.append(f"{call.execution} {call.attempt}")
        await asyncio.sleep(0)
        return call.attempt

    first, second = (engine_on(SqliteJournal(tmp_path / "windlass.db"), tmp_path, [count]) for _ in range(2))
    async with first, second:
        yield first, second, ran


async def test_d2_of_two_engines_that_take_up_one_execution_one_completes_it_and_the_other_is_refused(
    engines: tuple[Engine, Engine, list[str]],
) -> None:
    first, second, ran = engines
    refused = 0

    async def take_up(engine: Engine, execution: str) -> str:
        try:
            await engine.resume(execution, take_over=True)
            return str((await engine.wait(execution)).status)
        except (Conflict, UsageError) as error:
            return type(error).__name__

    for _ in range(100):
        execution = await first.create(PLAN)
        ended = await asyncio.gather(take_up(first, execution), take_up(second, execution))
        assert "completed" in ended, ended
        refused += len(set(ended)) == 2
        state = await first.state(execution)
        assert state.status == "completed"
        events = [entry.event for entry in await first.journal.read(execution)]
        assert sum(isinstance(event, ev.AttemptFinished) for event in events) == 1
        assert sum(isinstance(event, ev.ExecutionFinished) for event in events) == 1
        runs = [line for line in ran if line.startswith(execution)]
        assert len(runs) == len(set(runs)) == state.steps["a"].attempts
    assert refused > 50, "they met, and one of them was refused"


async def test_d2_the_late_drivers_attempts_are_cancelled_even_if_its_process_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.drivers.TAKEOVER_CHECK", 3600.0)  # it finds out when it writes
    path, release, cancelled = tmp_path / "windlass.db", asyncio.Event(), asyncio.Event()

    @windlass.tool
    async def waits(call: windlass.Call) -> None:
        if call.attempt == 1:
            await release.wait()

    @windlass.tool
    async def hangs(call: windlass.Call) -> None:
        try:
            if call.attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    steps = [{"id": "left", "tool": "waits"}, {"id": "right", "tool": "hangs"}]
    plan = windlass.Plan.model_validate({"name": "p", "steps": steps})
    async with (
        engine_on(SqliteJournal(path), tmp_path, [waits, hangs]) as late,
        engine_on(SqliteJournal(path), tmp_path, [waits, hangs]) as next_one,
    ):
        execution = await late.start(plan)
        taken_over = await next_one.resume(execution.id, take_over=True)
        assert (await taken_over.wait()).status == "completed"
        before = await next_one.journal.read(execution.id)
        assert not cancelled.is_set()
        release.set()
        with pytest.raises(Conflict, match="another process took over"):
            await execution.wait()
        assert cancelled.is_set()
        assert await next_one.journal.read(execution.id) == before
