"""Journals that earlier releases wrote fold to what they folded to then, for good (D2).

`record_journals.py` wrote them; nobody writes them again. A newer Windlass may know more about an execution than the
stored snapshot says, but everything that it says must still be so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.decide import decide
from windlass.core.history import has_stopped, record_of
from windlass.core.state import fold
from windlass.core.timeline import Timeline
from windlass.core.view import snapshot
from windlass.engine.commit_writer import head_of
from windlass.journal.sqlite import SqliteJournal

JOURNALS = sorted(Path(__file__).parent.glob("v*-*.jsonl"))
each = pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)


def read(journal: Path) -> list[ev.Event]:
    return [ev.decode(line) for line in journal.read_bytes().splitlines()]


def stored(journal: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(journal.with_suffix(".snapshot.json").read_text())
    return found


def history_of(events: list[ev.Event]) -> dict[str, Any]:
    """The record for the history, and the times that the dashboard shows, with the names of their fields."""
    created, *rest = events
    timeline = Timeline(created)
    for event in rest:
        timeline.apply(event)
    made: dict[str, Any] = {"stretches": timeline.stretches, "pauses": timeline.pauses, "places": timeline.places}
    if has_stopped(timeline.state):
        made["record"] = record_of(timeline.state)
    named: dict[str, Any] = _named(made)
    return named


def _named(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {key: _named(one) for key, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Everything that the old one says and the new one does not."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [text for key in old for text in differences(old[key], new.get(key, "nothing"), f"{where}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and where.endswith(".advice"):
        return [f"{where}: {line!r} is gone" for line in old if line not in new]  # there may be more of it
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            text for n, pair in enumerate(zip(old, new, strict=True)) for text in differences(*pair, f"{where}[{n}]")
        ]
    return [] if old == new else [f"{where}: was {old!r}, is {new!r}"]


@each
def test_d2_a_stored_journal_folds_to_what_it_folded_to_when_it_was_written(journal: Path) -> None:
    assert differences(stored(journal), snapshot(fold(read(journal)))) == []


@each
def test_d7_a_stored_journal_has_the_record_and_the_times_that_it_had(journal: Path) -> None:
    """Records of other figures are made anew in every home: `RECORD_FORMAT` says so."""
    known = json.loads(journal.with_suffix(".history.json").read_text())
    assert differences(known, history_of(read(journal))) == []


@each
def test_d2_a_stored_journal_loses_nothing_when_it_is_read_and_written_again(journal: Path) -> None:
    for line in journal.read_bytes().splitlines():
        assert differences(json.loads(line), json.loads(ev.encode(ev.decode(line)))) == []


@each
def test_d2_every_beginning_of_a_stored_journal_folds(journal: Path) -> None:
    events = read(journal)
    for length in range(1, len(events) + 1):
        assert fold(events[:length]).seq == length


@each
async def test_d2_a_stored_journal_survives_the_database_of_today(journal: Path, tmp_path: Path) -> None:
    events = read(journal)
    state = fold(events)
    database = SqliteJournal(tmp_path / "windlass.db")
    await database.append(state.id, 0, events, head=head_of(state))
    found = [entry.event for entry in await database.read(state.id)]
    await database.close()
    assert differences(stored(journal), snapshot(fold(found))) == []


def test_d3_an_unfinished_stored_journal_can_still_go_on() -> None:
    unfinished = [path for path in JOURNALS if stored(path)["status"] == "paused"]
    assert unfinished
    for journal in unfinished:
        state = fold(read(journal))
        assert state.questions
        state.apply(ev.ExecutionResumed(state.updated_at + 1.0, "another"))
        assert state.status == "running"
        decide(state, state.updated_at)


def test_d2_the_stored_journals_hold_every_kind_of_record_that_the_first_release_wrote() -> None:
    kinds = {type(event) for journal in JOURNALS if journal.name.startswith("v1-") for event in read(journal)}
    assert set(get_args(ev.Event)) - kinds == set()
    assert all(journal.with_suffix(".snapshot.json").exists() for journal in JOURNALS)
