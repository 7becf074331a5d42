"""By how much runaway commands pass their memory: the figures in docs/limits.md.

Usage: process_overshoot.py RUNS MEGABYTES [watched] [busy]. `watched` is without cgroups; with `busy`, twice as many
other processes compute as there are processors. Prints the median and the most of each kind of command.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys

import process_trees as trees

from windlass.process import ProcessLimits, Supervisor, layers

MB = 1024 * 1024

FILL = "x = []\nwhile True: x.append(bytearray(b'x' * 100_000))"
KINDS = {
    "at once": trees.python("x = b'x' * (1 << 34)"),
    "bit by bit": trees.python(FILL),
    "pipeline": trees.shell("head -c 4000000000 /dev/zero | tail -n 1"),
    "nine processes": trees.python(f"import os\nfor _ in range(8):\n    if os.fork() == 0: break\n{FILL}"),
}


async def main(runs: str, megabytes: str, *options: str) -> None:
    limit = int(megabytes) * MB
    env = {"PATH": os.environ["PATH"]}
    watched = "watched" in options
    print(*(f"{layer.name}: {layer.detail}" for layer in layers()[1 : 2 if watched else 3]), sep="\n")
    async with Supervisor(cgroups=not watched) as supervisor:
        for name, argv in KINDS.items():
            over = []
            for _ in range(int(runs)):
                process = await supervisor.spawn(argv, cwd="/", env=env, limits=ProcessLimits(memory=limit))
                ended = await process.wait()
                assert ended.limit == "memory", ended
                assert ended.used is not None
                over.append((ended.used.memory / limit - 1) * 100)
            print(
                f"{megabytes} MB, {name}: median {statistics.median(over):+.1f} %, most {max(over):+.1f} %", flush=True
            )


if __name__ == "__main__":
    burners = [
        subprocess.Popen(trees.shell("while :; do :; done"))
        for _ in range(2 * (os.cpu_count() or 1) * ("busy" in sys.argv))
    ]
    try:
        asyncio.run(main(*sys.argv[1:]))
    finally:
        for burner in burners:
            burner.kill()
