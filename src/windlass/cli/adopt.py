"""`adopt`: make a home the user's own, after showing what is in it.

The database of such a home may have been made by anybody. It is read from a copy, so that SQLite changes nothing in the
home; one with triggers or views, which Windlass never makes, is refused.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from windlass.cli.command import Argument, Group
from windlass.cli.session import AsJson, Home, Yes, attended, print_json, say
from windlass.cli.text import plural
from windlass.core.events import decode
from windlass.core.state import State, fold
from windlass.core.transitions import ExecutionStatus
from windlass.errors import NotPermitted, UsageError, WindlassError
from windlass.regular import read_regular

__all__ = ["register"]

_FINISHED = frozenset(str(status) for status in ExecutionStatus if status.finished)
LONGEST = 2000
"""Characters of a step that are shown."""


@dataclass(frozen=True, slots=True)
class _Content:
    """The contents of a home."""

    executions: list[dict[str, Any]]
    settings: str
    """The text of its `config.toml`."""
    same_home: bool
    """Its database has the id in its `home.json`."""


def register(app: Group) -> None:
    app.add(adopt)


def adopt(
    folder: Annotated[
        Path | None, Argument(metavar="DIR", help="A project's folder or a home; default: the home found here")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Take over a home that was not made here, after showing its contents.

    A home that came with a repository, from another machine or from an older Windlass is not used before.
    """
    from windlass.homes import adopt_home, locate, look_at, require_adoptable

    judgement = look_at(_home_in(folder)) if folder is not None else locate(home)
    if judgement.reason and not judgement.adoptable:
        judgement.require()
    if not judgement.reason and not judgement.marked:
        raise UsageError(f"nothing to adopt in {judgement.home}: the first run creates it")
    require_adoptable(judgement.home)
    content = _read(judgement.home)
    if not judgement.reason and content.same_home:
        say(f"{judgement.home} is already yours")
        adopted = False
    else:
        say(judgement.reason or "its database was created in another home")
        _show(content)
        adopted = _agreed(judgement.home, yes)
        adopt_home(judgement.home)
        _drop_unsent(judgement.home)
        say(f"{judgement.home} is now yours")
    if as_json:
        print_json({"home": str(judgement.home), "adopted": adopted, "executions": content.executions})


def _drop_unsent(home: Path) -> None:
    """Notifications that somebody else has written must not go to the user's services."""
    from windlass.journal.outbox import drop_unsent
    from windlass.journal.schema import open_database

    if (file := home / "windlass.db").exists():
        with closing(open_database(file)) as db:
            drop_unsent(db)


def _home_in(folder: Path) -> Path:
    folder = folder.absolute()
    inner = folder / ".windlass"
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    return inner if inner.is_dir() else folder


def _agreed(home: Path, yes: bool) -> bool:
    if yes:
        return True
    if not attended():
        raise NotPermitted(
            f"adopting {home} needs a confirmation, and there is no terminal to ask on",
            advice=("read the list above, then: windlass adopt --yes",),
        )
    if not click.confirm("Adopt it? Windlass then trusts its contents and runs its executions.", err=True):
        raise NotPermitted(f"{home} was not adopted")
    return True


def _show(content: _Content) -> None:
    unfinished = [execution for execution in content.executions if not execution["finished"]]
    finished = len(content.executions) - len(unfinished)
    say(f"it has {plural(finished, 'finished execution')} and {len(unfinished)} unfinished{':' if unfinished else ''}")
    for execution in unfinished:
        say(f"  {execution['id']}  {execution['plan']}  {execution['status']}")
        for step in execution["left"]:
            say(f"    {'next' if step['next'] else 'then'}: {step['text']}")
    if content.settings:
        say("its settings (config.toml):")
        for line in content.settings.splitlines():
            say(f"  {line}")


def _read(home: Path) -> _Content:
    from windlass.homes import database_of, home_id

    config = home / "config.toml"
    try:
        settings = read_regular(config).decode(errors="replace") if config.exists() else ""
    except OSError as error:
        raise NotPermitted(f"{config} cannot be read: {error.strerror}") from error
    if not database_of(home):
        return _Content([], settings, same_home=True)
    with _copied(home) as db:
        executions = [_execution(db, *row) for row in db.execute("SELECT key, id, name, status FROM executions")]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        ids = [row[0] for row in db.execute("SELECT id FROM home")] if "home" in tables else []
    try:
        same = ids == [home_id(home)]
    except NotPermitted:
        same = False  # its home.json is damaged
    return _Content(executions, settings, same)


@contextmanager
def _copied(home: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of the database for reading. Raises if it is not one of Windlass."""
    from windlass.homes import database_of
    from windlass.journal.database import translate
    from windlass.journal.outbox import OUTBOX_TRIGGER
    from windlass.journal.schema import TRIGGERS, open_database

    with tempfile.TemporaryDirectory(prefix="windlass-") as aside, translate(home / "windlass.db"):
        for file in database_of(home):
            shutil.copyfile(file, Path(aside) / file.name)
        path = Path(aside) / "windlass.db"
        if not path.exists():
            raise NotPermitted(f"{home} has a database log (windlass.db-wal) but no database")
        try:
            db = open_database(path)
        except WindlassError as error:
            raise type(error)(error.message.replace(aside, str(home)), advice=error.advice) from error
        try:
            found = db.execute(
                "SELECT type, name, sql FROM sqlite_master WHERE type NOT IN ('table', 'index')"
                " OR sql LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            strange = [(kind, name) for kind, name, sql in found if sql not in (*TRIGGERS, OUTBOX_TRIGGER)]
            if strange:
                kind, name = strange[0]
                raise NotPermitted(f"the database of {home} has a {kind} ({name}) that Windlass did not create")
            yield db
        finally:
            db.close()


def _execution(db: sqlite3.Connection, key: int, name: Any, plan: Any, status: Any) -> dict[str, Any]:
    """Show one execution; a reason stands in place of steps that cannot be read."""
    finished = status in _FINISHED
    left: list[dict[str, Any]] = []
    if not finished:
        try:
            rows = db.execute("SELECT body FROM events WHERE execution = ? ORDER BY seq", (key,))
            state = fold(decode(body) for (body,) in rows)
            left = _left(state)
            status = f"{status} ({state.paused_for})" if state.paused_for else status
        except Exception as error:  # anybody may have written these events, and in any form
            left = [{"next": True, "text": f"its events cannot be read: {error}"}]
    shown = {"id": name, "plan": plan, "status": status}
    return {key: str(value) for key, value in shown.items()} | {"finished": finished, "left": left}


def _left(state: State) -> list[dict[str, Any]]:
    """The steps that are still to run, as their plan has them."""
    left = []
    for step in state.top_level():
        if not step.settled:
            told = step.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
            text = json.dumps(told, ensure_ascii=False)
            cut = f"… ({len(text) - LONGEST} characters more)" if len(text) > LONGEST else ""
            left.append({"next": state.may_start(step), "text": text[:LONGEST] + cut})
    return left
