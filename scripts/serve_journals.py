"""Serves the dashboard over the stored journals of the tests: `python scripts/serve_journals.py [--pace 20]`.

For those who work on the pages: nothing is run, and there is always something to look at. The journals are put into a
home that is thrown away afterwards; one after the other is replayed as a new execution, event by event, at `--pace`
times the speed at which it was written, and with half a second between
two events at most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import msgspec

import windlass
from windlass.core import events as ev
from windlass.core.history import record_of
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.ids import new_id
from windlass.ports import Journal

JOURNALS = sorted((Path(__file__).resolve().parent.parent / "tests" / "journals").glob("v*-*.jsonl"))
LONGEST_WAIT = 0.5


def as_of_now(journal: Path) -> list[ev.Event]:
    """Read the events of a journal as if they had begun now, under a new id."""
    events = [ev.decode(line) for line in journal.read_bytes().splitlines()]
    later = time.time() - events[0].at
    first = msgspec.structs.replace(events[0], id=new_id())
    return [msgspec.structs.replace(event, at=event.at + later) for event in (first, *events[1:])]


async def store(journal: Journal, events: list[ev.Event], new: int) -> None:
    """Write the last `new` events of an execution, with its line and record."""
    state = fold(events)
    record = record_of(state) if state.status not in ("pending", "running") else None
    await journal.append(state.id, len(events) - new, events[-new:], head=head_of(state), record=record)


async def replay(journal: Journal, pace: float) -> None:
    while True:
        for path in JOURNALS:
            events = as_of_now(path)
            shown: list[ev.Event] = []
            for before, event in zip((events[0], *events), events, strict=False):
                await asyncio.sleep(min(LONGEST_WAIT, (event.at - before.at) / pace))
                shown.append(msgspec.structs.replace(event, at=time.time()))
                await store(journal, shown, 1)


async def main(port: int, pace: float) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # the server ends with this
    with tempfile.TemporaryDirectory(prefix="windlass-journals-") as folder:
        home = Path(folder, "home")
        os.environ["XDG_CONFIG_HOME"] = folder  # the home is known to this run alone
        engine = windlass.open(home)
        for path in JOURNALS:
            events = as_of_now(path)
            await store(engine.journal, events, len(events))
        options = ["serve", "--port", str(port), "--json"]
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "windlass", "--home", str(home), *options, stdout=PIPE, stderr=DEVNULL
        )
        try:
            assert server.stdout is not None
            told = json.loads(await server.stdout.readuntil(b"}\n"))
            token = Path(told["token_file"]).read_text().strip()
            print(f"open {told['login']}\nfor pages that follow your changes: cd dashboard && ", end="")
            print(f"WINDLASS_ADDRESS={told['address']} WINDLASS_TOKEN={token} npm run dev", flush=True)
            await replay(engine.journal, pace)
        finally:
            server.terminate()
            await server.wait()
            await engine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pace", type=float, default=20.0)
    options = parser.parse_args()
    try:
        asyncio.run(main(options.port, options.pace))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
