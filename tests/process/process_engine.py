"""A small engine to be killed: runs every kind of tree with the mark it is given, says `ready`, and waits.

Usage: process_engine.py MARK [forked]. With `forked`, a child of the engine itself, without exec, holds copies of all
of its sockets, as the workers of `multiprocessing` do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import process_trees as trees
from process_probes import MARK, ready

from windlass.process import Supervisor


async def main(mark: str, *options: str) -> None:
    async with Supervisor() as supervisor:
        env = {"PATH": os.environ["PATH"], MARK: mark}
        running = [await supervisor.spawn(argv, cwd="/", env=env) for argv in trees.ALL]
        for process in running:
            await ready(process)
        if "idle" in options:
            await asyncio.gather(*(process.stop(grace=0) for process in running))
        if "forked" in options and os.fork() == 0:
            signal.pause()
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
