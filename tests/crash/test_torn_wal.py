"""A write-ahead log cut off anywhere, at the borders of its frames and inside them (D2).

An execution runs on a journal that stays open, so that everything since the first byte is in the log. At every
acknowledgement the length of the log is noted. Then copies of the log are cut, as a power failure cuts it, and
reopened: what is found must be a beginning of what was acknowledged, and must hold everything that was acknowledged
when the log was no longer than the cut.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from crash_engine import engine_on

import windlass
from windlass.core.state import State, fold
from windlass.journal.sqlite import SqliteJournal
from windlass.ports import Entry

WAL_HEADER, FRAME_HEADER = 32, 24


@dataclass
class Recording:
    """A database and its log at one moment, and what had been acknowledged by then."""

    database: bytes
    log: bytes
    entries: list[Entry]
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    """Lengths of the log, each with the number of entries that were acknowledged at that length."""

    @property
    def frame(self) -> int:
        return FRAME_HEADER + int.from_bytes(self.log[8:12])

    def owed(self, length: int) -> int:
        """How many entries a log of that length must give back."""
        return max((count for size, count in self.acknowledged if size <= length), default=0)


@windlass.tool
async def work(number: int, text: str) -> str:
    return text * number


class Noting(SqliteJournal):
    """The real journal, which also notes how long its log is whenever it has acknowledged something."""

    recording: Recording

    async def append(self, execution, after, events, **rest) -> None:  # type: ignore[no-untyped-def]
        await super().append(execution, after, events, **rest)
        everything = await self.read(None)
        size = self._path.with_name("windlass.db-wal").stat().st_size
        self.recording.acknowledged.append((size, len(everything)))


PLAN = windlass.Plan.model_validate(
    {
        "name": "wal",
        "limits": {"parallel": 1},
        "steps": [
            *({"id": f"s{n}", "tool": "work", "with": {"number": n * 37, "text": "xé☃"}} for n in range(12)),
            {"id": "each", "foreach": list(range(8)), "tool": "work", "with": {"number": "{{ item }}", "text": "y"}},
            {"id": "end", "needs": ["each", "s3"], "tool": "work", "with": {"number": 1, "text": "z"}},
        ],
    }
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return asyncio.run(record(tmp_path_factory.mktemp("recorded")))


async def record(home: Path) -> Recording:
    recording = Recording(b"", b"", [])
    journal = Noting(home / "windlass.db")
    journal.recording = recording
    async with engine_on(journal, home, [work]) as engine:
        for _ in range(3):
            execution = await engine.start(PLAN)
            assert (await execution.wait()).status == "completed"
        recording.entries = await journal.read(None)
        recording.database = (home / "windlass.db").read_bytes()
        recording.log = (home / "windlass.db-wal").read_bytes()
    return recording


def reopened(folder: Path, recording: Recording, log: bytes) -> list[Entry]:
    """What a journal with this log gives back, after it was opened, closed and opened again."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "windlass.db"
    path.write_bytes(recording.database)
    path.with_name("windlass.db-wal").write_bytes(log)

    async def look() -> list[Entry]:
        journal = SqliteJournal(path)
        found = await journal.read(None)
        await journal.close()
        return found

    return asyncio.run(look())


def cuts(recording: Recording, count: int, chance: Random) -> Iterator[int]:
    """Every border of a frame, one byte before and after it, and places inside until there are enough."""
    total, borders = len(recording.log), range(WAL_HEADER, len(recording.log) + 1, recording.frame)
    places = {0, 1, WAL_HEADER - 1, total}
    for border in borders:
        places |= {border - 1, border, border + 1, border + FRAME_HEADER}
    while len(places) < count:
        places.add(chance.randrange(total))
    return iter(sorted(place for place in places if 0 <= place <= total))


def check_cut(folder: Path, recording: Recording, length: int, tail: bytes = b"") -> int:
    found = reopened(folder, recording, recording.log[:length] + tail)
    assert found == recording.entries[: len(found)], f"cut at {length}: not a beginning of what was acknowledged"
    assert len(found) >= recording.owed(length), f"cut at {length}: something acknowledged is gone"
    return len(found)


def test_d2_the_recording_is_worth_cutting(recording: Recording) -> None:
    assert len(recording.entries) > 120
    assert len(recording.acknowledged) > 50
    sizes = [size for size, _ in recording.acknowledged]
    assert sizes == sorted(sizes), "the log was never started over, so every length stands for one moment"
    assert recording.owed(len(recording.log)) == len(recording.entries)
    assert recording.owed(len(recording.log) // 2) > 20


def test_d2_a_log_cut_anywhere_gives_back_a_beginning_with_all_that_was_acknowledged(
    recording: Recording, workplace: Path
) -> None:
    lengths = list(cuts(recording, 1_000, Random(1)))
    found = [check_cut(workplace / "cut", recording, length) for length in lengths]
    assert len(lengths) >= 1_000
    assert found == sorted(found), "a longer log never gives back less"
    assert found[-1] == len(recording.entries), "an uncut log gives back everything"
    assert found[0] == 0
    print(f"{len(lengths)} cuts of a log of {len(recording.log)} bytes, {len(recording.entries)} entries")


def test_d2_what_a_cut_leaves_of_an_execution_goes_on_from_there(recording: Recording, workplace: Path) -> None:
    for length, _count in recording.acknowledged[::5]:
        entries = reopened(workplace / "cut", recording, recording.log[:length])
        last = entries[-1].execution
        before = fold(entry.event for entry in entries if entry.execution == last)
        after = asyncio.run(go_on(workplace / "cut", last))
        done = {step.id: step.attempts for step in before.steps.values() if step.status == "completed"}
        assert after.status == "completed"
        assert {step: after.steps[step].attempts for step in done} == done, "what was completed did not run again"


async def go_on(home: Path, execution: str) -> State:
    async with engine_on(SqliteJournal(home / "windlass.db"), home, [work]) as engine:
        if not (await engine.state(execution)).status.finished:
            await engine.resume(execution)
        return await engine.wait(execution)


@pytest.mark.parametrize("filler", ["zeros", "noise", "old frames"])
def test_d2_a_torn_frame_is_not_mistaken_for_a_whole_one(recording: Recording, workplace: Path, filler: str) -> None:
    """A disk may have the length of a file right and its contents not: what follows the cut is garbage."""
    chance = Random(2)
    for _ in range(60):
        length = chance.randrange(WAL_HEADER, len(recording.log))
        rest = len(recording.log) - length
        tail = {
            "zeros": bytes(rest),
            "noise": chance.randbytes(rest),
            "old frames": (recording.log[WAL_HEADER:] * 2)[chance.randrange(recording.frame) :][:rest],
        }[filler]
        check_cut(workplace / "torn", recording, length, tail)


def test_d2_a_flipped_bit_in_the_log_loses_what_follows_it_and_invents_nothing(
    recording: Recording, workplace: Path
) -> None:
    chance = Random(3)
    for _ in range(100):
        place = chance.randrange(WAL_HEADER, len(recording.log))
        log = bytearray(recording.log)
        log[place] ^= 1 << chance.randrange(8)
        found = reopened(workplace / "flipped", recording, bytes(log))
        assert found == recording.entries[: len(found)]
        frame_start = WAL_HEADER + (place - WAL_HEADER) // recording.frame * recording.frame
        assert len(found) >= recording.owed(frame_start)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_d2_the_long_form_twenty_five_thousand_cuts(recording: Recording, workplace: Path, seed: int) -> None:
    for length in cuts(recording, 2_500, Random(seed + 100)):
        check_cut(workplace / "cut", recording, length)
