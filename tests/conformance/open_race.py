"""Run by a test: round after round, eight processes open one journal that is not there yet, all at one moment.

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


def main(folder: Path, rounds: int) -> None:
    for number in range(rounds):
        home = folder / str(number)
        home.mkdir()
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
    main(Path(sys.argv[1]), int(sys.argv[2]))
