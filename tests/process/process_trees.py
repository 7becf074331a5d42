"""Commands that do what runaway steps do. Each says `ready` once for every process that is in place."""

from __future__ import annotations

import sys

FOREVER = "exec sleep 1000"


def python(source: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source]


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


SLEEPER = shell(f"echo ready; {FOREVER}")

SETSID = shell(f"setsid sh -c 'echo ready; {FOREVER}' & wait")
"""A child that has left the process group; its parent lives."""

DAEMON_SOURCE = """
import os, time
heard, said = os.pipe()
if os.fork():
    os.read(heard, 1)
    {afterwards}
os.setsid()
if os.fork():
    os._exit(0)
print("ready", flush=True)
os.write(said, b"!")
time.sleep(1000)
"""

DAEMON = python(DAEMON_SOURCE.format(afterwards="time.sleep(1000)"))
"""A double-forked daemon in a session of its own, beside its living ancestor."""

DAEMON_LEFT_BEHIND = python(DAEMON_SOURCE.format(afterwards="os._exit(0)"))
"""The same, and the command itself ends. The daemon holds stdout."""

STUBBORN = shell("trap '' TERM; echo ready; while :; do sleep 1000; done")
"""Ignores SIGTERM, as do its children."""

BROAD_BOMB = shell("i=0; while [ $i -lt 5000 ]; do sleep 1000 & i=$((i+1)); echo ready; done; wait")

DEEP_BOMB = python(
    """
import os, time
def bomb(depth):
    for _ in range(2):
        if depth and not os.fork():
            os.setsid()
            os.write(1, b"ready\\n")
            bomb(depth - 1)
    time.sleep(1000)
bomb(9)
"""
)
"""About a thousand processes, each in a session of its own: no group holds two of them."""

HOPPER = python(
    """
import os, time
if os.fork():
    time.sleep(1000)
for hop in range(100_000):
    if os.fork():
        os._exit(0)
    os.setsid()
    if hop == 100:
        os.write(1, b"ready\\n")
"""
)
"""Never the same process for longer than a moment, and in a session of its own each time."""

ALL = [SLEEPER, SETSID, DAEMON, DAEMON, STUBBORN]
