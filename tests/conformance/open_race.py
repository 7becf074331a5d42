"""Run by a test: round after round, eight processes open one journal that is not there yet, all at one moment.

With `old` as the last argument, the journal is there, as a release before the checksum and the counts made it.

Prints what went wrong, and nothing if nothing did.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from windlass.journal.schema import open_database


def open_and_close(path: Path, moment: float) -> int:
    while time.monotonic() < moment:
        """All at once: a sleep would spread them out."""
    try:
        open_database(path).close()
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        return 1
    return 0


def make_old(path: Path) -> None:
    """A database from before events had a checksum and executions were counted, with one event in it."""
    db = open_database(path)
    db.execute("ALTER TABLE events DROP COLUMN checksum")
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    db.execute("DROP TABLE status_counts")
    db.execute("INSERT INTO events (execution, seq, body) VALUES (1, 1, ?)", (b"{}",))
    db.close()


def main(folder: Path, rounds: int, old: bool) -> None:
    for number in range(rounds):
        home = folder / str(number)
        home.mkdir()
        if old:
            child = os.fork()
            if child == 0:
                make_old(home / "windlass.db")
                os._exit(0)
            os.waitpid(child, 0)
        moment = time.monotonic() + 0.008
        children = []
        for _ in range(8):
            child = os.fork()
            if child == 0:
                os._exit(open_and_close(home / "windlass.db", moment))
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["old"])
