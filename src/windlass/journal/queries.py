"""Questions to a journal that is in a database, and what is written beside its events: one text for every database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from windlass.journal.database import EVERYTHING, SqlConnection
from windlass.journal.questions import find_questions
from windlass.journal.rows import HEAD_COLUMNS, read_all, read_one, to_head, to_message
from windlass.ports import ASKED_FOR, AskedQuestion, Entry, Head, Message, PolledJournal

if TYPE_CHECKING:
    from windlass.journal.forecasts import SqliteForecasts
    from windlass.journal.history_sums import SqliteHistory

__all__ = ["JournalQueries"]

T = TypeVar("T")

MOST_HEADS_ON_LOOP = 101
"""Heads that may be read on the loop: a page of a list, which an index finds."""


MOST_NAMED = 1000
"""Executions that one question to the database names."""


class JournalQueries(PolledJournal):
    """The part of a journal that is the same in every database."""

    async def _reading(self, fetch: Callable[[SqlConnection], T], *, quick: bool = False) -> T:
        """Call a function with a connection for reading; a `quick` one takes little time."""
        raise NotImplementedError

    async def _writing(self, work: Callable[[SqlConnection], None]) -> None:
        """Call a function in a transaction, and commit it."""
        raise NotImplementedError

    def _last_readable(self, db: SqlConnection) -> int:
        """The position up to which everything that will ever be there can be read."""
        return EVERYTHING

    @cached_property
    def forecasts(self) -> SqliteForecasts:
        from windlass.journal.forecasts import SqliteForecasts  # most processes forecast nothing

        return SqliteForecasts(self._reading, self._writing)

    @cached_property
    def history(self) -> SqliteHistory:
        from windlass.journal.history_sums import SqliteHistory  # few commands need it

        return SqliteHistory(self._reading, self._writing)

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        if execution is None:
            return await self._reading(lambda db: read_all(db, after, limit, self._last_readable(db)))
        return await self._reading(lambda db: read_one(db, execution, after, limit))

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        return await self._reading(lambda db: find_questions(db, named, before, limit))

    async def asking(self, executions: Sequence[str]) -> set[str]:
        sql, known = "SELECT x.id FROM questions q JOIN executions x ON x.key = q.execution", tuple(executions)
        if len(known) <= MOST_NAMED:  # beyond that, the index of open questions is read as a whole
            sql += f" WHERE x.id IN ({', '.join('?' * len(known)) or 'NULL'})"
        parameters = known if len(known) <= MOST_NAMED else ()
        found = await self._reading(lambda db: {str(name) for (name,) in db.execute(sql, parameters)}, quick=True)
        return found.intersection(known)

    async def count_questions(self) -> int:
        return await self._reading(lambda db: int(db.execute("SELECT count(*) FROM questions").fetchone()[0]))

    async def heads(
        self,
        *,
        prefix: str = "",
        statuses: Sequence[str] = (),
        name: str = "",
        text: str = "",
        since: float = 0.0,
        before: str = "",
        asking: bool = False,
        limit: int = 0,
    ) -> list[Head]:
        conditions, parameters = ["1 = 1"], list[Any]()
        if prefix:
            # The range of texts that begin with the prefix: uses the index, unlike LIKE.
            conditions.append("id >= ? AND id < ?")
            parameters += [prefix, prefix + "\U0010ffff"]
        if statuses:
            conditions.append(f"status IN ({', '.join('?' * len(statuses))})")
            parameters += statuses
        if name:
            conditions.append("name = ?")
            parameters.append(name)
        if text:
            # Without the text it would be another one: no function that finds a text is in every database.
            conditions.append("(lower(name) <> replace(lower(name), lower(?), '') OR id <> replace(id, lower(?), ''))")
            parameters += [text, text]
        if since:
            conditions.append("created_at >= ?")
            parameters.append(since)
        if before:
            # One that was removed meanwhile is taken for the first of those with a lower id.
            removed = "(SELECT max(key) + 1 FROM executions WHERE id < ?)"
            conditions.append(f"key < COALESCE((SELECT key FROM executions WHERE id = ?), {removed})")
            parameters += [before, before]
        if asking:
            listed = f"status IN ('running', 'paused') AND detail IN ({', '.join('?' * len(ASKED_FOR))})"
            conditions.append(f"(key IN (SELECT execution FROM questions) OR {listed})")
            parameters += ASKED_FOR
        sql = f"SELECT {HEAD_COLUMNS} FROM executions WHERE {' AND '.join(conditions)}"
        # By creation, not by id: the id of a trigger's execution has the time that it was due. With a prefix, `+` keeps
        # a database from reading all executions in that order for the few that it has to put into order.
        sql += f" ORDER BY {'+key' if prefix else 'key'} DESC" + (" LIMIT ?" if limit else "")
        if limit:
            parameters.append(limit)
        quick = 0 < limit <= MOST_HEADS_ON_LOOP and not (text or since or asking)  # these may read every row
        return await self._reading(lambda db: [to_head(row) for row in db.execute(sql, parameters)], quick=quick)

    async def counts(self) -> dict[str, int]:
        sql = "SELECT status, count FROM status_counts WHERE count > 0"
        return await self._reading(lambda db: dict(db.execute(sql)), quick=True)

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(body)

        def write(db: SqlConnection) -> None:
            sql = "INSERT INTO inbox (execution, at, body) VALUES (?, ?, ?)"
            db.execute(sql, (execution, at, encoded))

        await self._writing(write)

    async def receive(self, after: int = 0) -> list[Message]:
        sql = "SELECT id, execution, at, body FROM inbox WHERE id > ? ORDER BY id"

        def fetch(db: SqlConnection) -> list[Message]:
            return [found for row in db.execute(sql, (after,)) if (found := to_message(*row)) is not None]

        return await self._reading(fetch, quick=True)  # ten times a second, and nearly always there is none
