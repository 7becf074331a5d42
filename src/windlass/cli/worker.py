"""`worker` and `workers`: machines that run executions of a shared journal together."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from typing import Annotated

from windlass.cli.command import Group, Option
from windlass.cli.session import AsJson, Home, out, print_json, remember_home, say, stores_of
from windlass.errors import UsageError
from windlass.homes import find_home

__all__ = ["register"]

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


def register(app: Group) -> None:
    app.add(worker)
    app.add(workers)


def worker(
    tags: Annotated[
        list[str] | None, Option("--tag", metavar="TAG", help="Also run the steps with this tag (repeatable)")
    ] = None,
    slots: Annotated[int, Option("--slots", metavar="N", min=1, help="Steps at a time, of each tag")] = 100,
    drain: Annotated[
        float, Option("--drain", metavar="SECONDS", min=0, help="Time for running steps to finish after SIGTERM")
    ] = 30.0,
    home: Home = None,
) -> None:
    """Run steps of executions that several machines share, until SIGTERM or Ctrl-C.

    It needs `--temporal HOST:PORT` and `--journal postgresql://…`, or the settings of these names.
    """
    if home:
        remember_home(home)
    for tag in tags or ():
        if not _TAG.fullmatch(tag):
            raise UsageError(f"{tag!r} is not a tag: use letters, digits, - and _")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    code = asyncio.run(_work(home, tags or [], slots, drain))
    # The runtime of Temporal may abort the process when Python tears it down (sdk-python#300): everything is closed.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _work(home: str | None, tags: list[str], slots: int, drain: float) -> int:
    from windlass.assembly import open_engine
    from windlass.settings import load_settings
    from windlass.temporal.cluster import TemporalCluster, need_temporal

    address = load_settings(find_home(home)).temporal
    if address is None:
        raise UsageError(
            "a worker needs a Temporal server: --temporal HOST:PORT", advice=("read about it: windlass docs cluster",)
        )
    need_temporal()
    async with open_engine(home, label="worker", temporal=None) as engine:
        table = stores_of(engine.home).workers()
        from windlass.temporal.worker import ClusterWorker

        ending = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        cluster = TemporalCluster(address, table)
        try:
            with_tags = f" with tags {', '.join(tags)}" if tags else ""
            await ClusterWorker(engine, cluster, tags=tags, slots=slots, drain=drain).run(
                ending, lambda name: say(f"worker {name} is ready{with_tags}")
            )
        finally:
            await cluster.close()
    say("worker ended")
    return 0


def workers(as_json: AsJson = False, home: Home = None) -> None:
    """List the workers of the journal's database, and the steps that they run now."""

    async def look() -> None:
        table = stores_of(find_home(home)).workers()
        try:
            lines = await table.lines()
        finally:
            await table.close()
        if as_json:
            keys = ("name", "host", "tags", "version", "age_s", "steps")
            print_json([dict(zip(keys, line, strict=True)) for line in lines])
            return
        if not lines:
            say("No workers.")
        for line in lines:
            doing = ", ".join(f"{one['execution'][:8]} {one['step']}" for one in line.doing)
            out(f"{line.name}  {' '.join(line.tags) or '-'}  {doing or 'idle'}")

    if home:
        remember_home(home)
    asyncio.run(look())
