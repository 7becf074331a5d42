"""Reads and folds everything that a home holds, and says what is wrong with it (D9).

One read transaction for the whole database, so that executions which go on meanwhile do not look damaged. Nothing is
changed. To be called while this process has no connection to the database (see `lost_commits`).
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.core import events as ev
from windlass.core.record import folded
from windlass.core.state import State
from windlass.errors import Damaged, JournalError
from windlass.journal.checkpoint import BadCheckpoint, read_checkpoint
from windlass.journal.database import is_damage, translate
from windlass.journal.rows import decode_row
from windlass.journal.schema import open_database, table_columns

__all__ = ["DeepCheck", "Fault", "check_home", "lost_commits"]

TRIES = 20
BETWEEN = 0.05
"""Times and seconds for a checkpoint file that is being written to be whole."""


class Fault(NamedTuple):
    """One thing that is wrong."""

    where: str
    """`database`, `log`, `ledger`, `inbox`, `artifacts`, a checkpoint's path, or an execution's id."""
    reason: str
    seq: int | None = None
    """The event, where it is about one."""


class DeepCheck(NamedTuple):
    """Counts of what was read, and every fault in it."""

    executions: int
    events: int
    checkpoints: int
    faults: list[Fault]


class _Faults:
    """The findings so far."""

    def __init__(self, home: Path, artifacts: bool) -> None:
        self.home = home
        self.artifacts = artifacts
        self.faults: list[Fault] = []
        self.histories: dict[str, int] = {}
        """Events of each execution that can be read."""
        self.events = 0
        self.checkpoints = 0


def check_home(home: Path, *, artifacts: bool = True) -> DeepCheck:
    """Everything in the home. Raises `JournalError` where its database cannot be opened at all.

    Without `artifacts`, these are not looked for: a backup may be without them.
    """
    path = home / "windlass.db"
    found = _Faults(home, artifacts)
    if path.exists():
        lost = lost_commits(path)
        if lost:
            found.faults.append(Fault("log", lost))
        with closing(open_database(path)) as db:
            _check_database(db, path, found)
    else:
        _check_checkpoints(None, found)
    return DeepCheck(len(found.histories), found.events, found.checkpoints, found.faults)


def _check_database(db: sqlite3.Connection, path: Path, found: _Faults) -> None:
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    with translate(path):
        db.execute("BEGIN")
    for step in (_check_pages, _check_executions, _check_strays, _check_ledger, _end, _check_checkpoints):
        try:
            with translate(path):
                step(db, found)
        except JournalError as error:
            found.faults.append(Fault("database", error.message))


def _end(db: sqlite3.Connection, found: _Faults) -> None:
    """End the transaction: the checkpoint files are of now, and compared with what the journal has now."""
    db.execute("ROLLBACK")


def _check_pages(db: sqlite3.Connection, found: _Faults) -> None:
    lines = [row[0] for row in db.execute("PRAGMA integrity_check(20)")]
    if lines != ["ok"]:
        found.faults += [Fault("database", line) for text in lines for line in str(text).splitlines()]
    there = table_columns(db)
    for table, columns in table_columns().items():
        if there[table] != columns:
            found.faults.append(Fault("database", f"the table {table} has the columns {there[table]}, not {columns}"))


def _check_executions(db: sqlite3.Connection, found: _Faults) -> None:
    sql = "SELECT key, id, name, status, created_at, updated_at, driver, detail, expires_at FROM executions ORDER BY id"
    for key, name, *head in db.execute(sql).fetchall():
        found.histories[name] = 0
        try:
            events = _events(db, key, name)
            state = folded(name, events)
        except Damaged as damage:
            found.faults.append(Fault(name, damage.reason, damage.seq))
            continue
        found.histories[name] = len(events)
        found.events += len(events)
        found.faults += [Fault(name, reason) for reason in _head_faults(head, events, state)]
        if found.artifacts:
            found.faults += [Fault(name, reason) for reason in _missing_artifacts(found.home, state)]


def _events(db: sqlite3.Connection, key: int, name: str) -> list[ev.Event]:
    events: list[ev.Event] = []
    sql = "SELECT seq, body, checksum FROM events WHERE execution = ? ORDER BY seq"
    try:
        for seq, body, stored in db.execute(sql, (key,)):
            if seq != len(events) + 1:
                raise Damaged(name, len(events) + 1, "it is missing")
            events.append(decode_row(name, seq, body, stored))
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise Damaged(name, len(events) + 1, "a page of the database is damaged") from error
    return events


def _head_faults(head: list[Any], events: list[ev.Event], state: State) -> Iterator[str]:
    """The line that lists read says what the events say."""
    plan, status, created, updated, driver, detail, expires = head
    begun = folded(state.id, events[:1])
    if plan not in (begun.plan.name, state.plan.name):
        yield f"its list entry has the plan {plan!r}, its events {state.plan.name!r}"
    for what, listed, told in (
        ("status", status, str(state.status)),
        ("driver", driver, state.driver),
        *([("reason", detail, state.paused_for)] if str(state.status) in ("paused", "pending") else []),
        ("expiry", expires, state.expires_at),
        ("time of creation", created, state.created_at),
    ):
        if listed != told:
            yield f"its list entry has the {what} {listed!r}, its events {told!r}"
    if updated not in {event.at for event in events}:
        yield f"its list entry was changed at {updated!r}, without an event"


def _missing_artifacts(home: Path, state: State) -> Iterator[str]:
    """Files among the artifacts that a step's output names. The home may have been moved since."""
    mark = f"artifacts/{state.id}/"
    for step in state.steps.values():
        for text in _texts(step.output):
            _, found, name = text.rpartition(mark)
            if found and "\n" not in text and not (home / "artifacts" / state.id / name).exists():
                yield f"the artifact {name} of step {step.id} is missing"


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for one in value:
                yield from _texts(one)
        case dict():
            for one in value.values():
                yield from _texts(one)


def _check_strays(db: sqlite3.Connection, found: _Faults) -> None:
    """Rows that belong to nobody. Execution 0 is nobody's on purpose (see `SqliteJournal.remove`)."""
    sql = "SELECT count(*) FROM events WHERE execution != 0 AND execution NOT IN (SELECT key FROM executions)"
    (strays,) = db.execute(sql).fetchone()
    if strays:
        found.faults.append(Fault("database", f"{strays} events belong to no execution"))
    for number, execution, body in db.execute("SELECT id, execution, body FROM inbox"):
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, TypeError) as error:
            found.faults.append(Fault("inbox", f"message {number} to execution {execution} cannot be read: {error}"))
        if execution not in found.histories:
            found.faults.append(Fault("inbox", f"message {number} is to execution {execution}, which does not exist"))


def _check_ledger(db: sqlite3.Connection, found: _Faults) -> None:
    """Every charge is of an attempt that its execution began, and its figures are figures."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'charges'").fetchone() is None:
        return
    begun: dict[str, set[tuple[str, int]]] = {}
    sql = "SELECT key, execution, step, attempt, settled, counts_usd, counts_tokens, tokens_in, tokens_out FROM charges"
    for key, execution, step, attempt, settled, *figures in db.execute(sql).fetchall():
        if settled not in (0, 1) or not all(isinstance(one, int | float) and one >= 0 for one in figures):
            found.faults.append(Fault("ledger", f"charge {key} of execution {execution} has impossible figures"))
        if not found.histories.get(execution):
            continue  # it was cleaned up, or is told of already: what it spent was spent
        if execution not in begun:
            begun[execution] = _attempts(db, execution)
        if (step, attempt) not in begun[execution]:
            found.faults.append(
                Fault("ledger", f"charge {key} is of attempt {attempt} of {step}, which {execution} never started")
            )


def _attempts(db: sqlite3.Connection, execution: str) -> set[tuple[str, int]]:
    (key,) = db.execute("SELECT key FROM executions WHERE id = ?", (execution,)).fetchone()
    events = _events(db, key, execution)
    return {(event.step, event.attempt) for event in events if isinstance(event, ev.AttemptStarted)}


def _check_checkpoints(db: sqlite3.Connection | None, found: _Faults) -> None:
    """Every checkpoint file can be believed, and the journal has at least what it has."""
    damaged = {fault.where for fault in found.faults}
    folder = found.home / "executions"
    files = [(file, file.stem) for file in folder.glob("*.json")]
    files += [(file, file.parent.parent.name) for file in folder.glob("*/checkpoints/*.json")]
    for file, execution in sorted(files):
        found.checkpoints += 1
        try:
            events = _read_at_rest(file)
        except BadCheckpoint as error:
            found.faults.append(Fault(str(file), error.message))
            continue
        stored = _stored(db, execution)
        if stored is None:
            found.faults.append(
                Fault(str(file), f"execution {execution} is not in the journal: windlass restore {file}")
            )
        elif execution not in damaged:
            found.faults += _differences(file, execution, events, stored)


def _read_at_rest(file: Path) -> list[ev.Event]:
    """A file that grows at this moment looks cut off: it is read again."""
    for _ in range(TRIES):
        size = file.stat().st_size if file.exists() else 0
        try:
            return read_checkpoint(file)
        except BadCheckpoint:
            time.sleep(BETWEEN)
            if file.exists() and file.stat().st_size == size:
                break
    return read_checkpoint(file)


def _stored(db: sqlite3.Connection | None, execution: str) -> list[ev.Event] | None:
    """The events that the journal has of it by now; None if it does not know it."""
    row = db.execute("SELECT key FROM executions WHERE id = ?", (execution,)).fetchone() if db is not None else None
    if db is None or row is None:
        return None
    try:
        return _events(db, row[0], execution)
    except Damaged:
        return []


def _differences(file: Path, execution: str, kept: list[ev.Event], stored: list[ev.Event]) -> Iterator[Fault]:
    if len(stored) < len(kept):
        reason = f"it has {len(stored)} events, and its checkpoint {file.name} has {len(kept)}"
        yield Fault(execution, reason, len(stored) + 1)
        return
    for seq, (one, other) in enumerate(zip(kept, stored, strict=False), 1):
        if ev.encode(one) != ev.encode(other):
            yield Fault(execution, f"its checkpoint {file.name} has another one", seq)
            return


_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682


class _Index(NamedTuple):
    """The state of the log by the shared index."""

    frames: int
    """Committed."""
    copied: int
    """Of those, already in the database itself."""
    salts: bytes


def lost_commits(path: Path) -> str:
    """Find commits that a damaged or cut write-ahead log has lost: what is wrong in words, or nothing.

    SQLite reads the log up to the first frame whose checksum is wrong and forgets the rest without a word: to it, that
    is what a power cut leaves. But the shared index (`-shm`) of processes that died still says how many frames were
    committed. More of those than can be read are acknowledged commits that are gone.

    Only to be asked while this process has no connection to the database: closing a file of it drops SQLite's locks.
    """
    log, index = path.with_name(path.name + "-wal"), _index(path.with_name(path.name + "-shm"))
    content = log.read_bytes() if log.exists() else b""
    if index is not None and content and index.salts != content[16:24]:
        index = None  # the log was begun anew, or it is another one: the frames tell
    if index is not None and index.frames <= index.copied:
        return ""
    if not content:
        missing = index.frames if index is not None else 0
        return f"{log} is gone, with {missing} committed pages" if missing else ""
    readable, broken = _readable(content)
    if index is not None and readable < index.frames:
        return f"{log} is damaged: {readable} of {index.frames} committed pages can be read"
    if broken:
        return f"{log} is damaged: {broken}"
    return ""


def _index(file: Path) -> _Index | None:
    try:
        head = file.read_bytes()[:136]
    except OSError:
        return None
    if len(head) < 136 or head[:48] != head[48:96] or not head[12]:
        return None  # it was being written, or never used
    (frames,) = struct.unpack_from("=I", head, 16)
    (copied,) = struct.unpack_from("=I", head, 96)
    return _Index(frames, copied, head[32:40])


def _readable(content: bytes) -> tuple[int, str]:
    """Frames that SQLite can read, and what is wrong with the one after them, if it was one of this log."""
    if len(content) < _HEADER:
        return 0, ""
    magic, _version, size = struct.unpack_from(">III", content)
    order = "<" if magic == _MAGIC else ">"
    sums = _checksum(content[:24], order, (0, 0))
    if magic & ~1 != _MAGIC or sums != struct.unpack_from(">II", content, 24):
        return 0, "its first bytes do not match their checksum"
    salts = content[16:24]
    count, at = 0, _HEADER
    while at + _FRAME + size <= len(content):
        head = content[at : at + _FRAME]
        following = _checksum(head[:8] + content[at + _FRAME : at + _FRAME + size], order, sums)
        if head[8:16] != salts or following != struct.unpack_from(">II", head, 16):
            ours = head[8:12] == salts[:4] or head[12:16] == salts[4:]
            return count, f"page {count + 1} in it does not match its checksum" if ours else ""
        sums = following
        count, at = count + 1, at + _FRAME + size
    return count, ""


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's own, over pairs of words."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for low, high in zip(words[::2], words[1::2], strict=True):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second
