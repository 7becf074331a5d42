"""Run by the tests: the real command line, a fork away, so that thousands of commands import it once.

Reads one JSON object a line and answers with one: `{"argv", "env", "cwd", "in", "out", "err"}` forks a process that
runs `windlass ARGV` and gives `{"pid"}`; `{"wait": PID}` gives `{"exit"}` when that process has ended. The process is
what the `windlass` command would be: its environment is read anew, `WINDLASS_FAULT` too. `forks.py` is the other end.

At the socket whose descriptor it is told it serves `windlass_shim.py`, by which a shell starts commands in the same
way: the shim hands over its standard streams, and a command whose shim was killed is killed.
"""

from __future__ import annotations

import gc
import importlib
import json
import marshal
import os
import pkgutil
import random
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import windlass.faults
from windlass.cli.entry import main as windlass_command

PRELOADED = ("cli", "assembly", "engine", "journal", "server", "tools", "runners")
CLIENTS = (
    "pydantic_ai.direct",
    "pydantic_ai.models.anthropic",
    "pydantic_ai.models.openai",
    "claude_agent_sdk",
    "wasmtime",
)
"""Packages that commands import when they first need them; those of a model take three seconds."""


def preload() -> None:
    for package in PRELOADED:
        path = [str(Path(windlass.__file__).parent / package)]
        importlib.import_module(f"windlass.{package}")
        for found in pkgutil.walk_packages(path, f"windlass.{package}."):
            if "postgres" not in found.name:  # few tests need its driver
                importlib.import_module(found.name)
    for client in CLIENTS:
        importlib.import_module(client)
    gc.freeze()


def run(request: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    time.tzset()
    random.seed()
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.get("deaf") else signal.default_int_handler)
    if request.get("session"):
        os.setsid()
    for number, name in enumerate(("in", "out", "err")):
        given = request[name]
        if isinstance(given, str):  # a terminal is the session's own
            given = os.open(given, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(given, number)
        os.close(given)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if request.get("largest_file"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"], resource.RLIM_INFINITY))
    importlib.reload(windlass.faults)
    sys.argv = request["argv"]
    try:
        windlass_command()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1 if exit_.code else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def start(request: dict[str, Any], ours: list[int]) -> int:
    """Fork the command, which keeps none of these descriptors."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        for descriptor in ours:
            os.close(descriptor)
        code = run(request)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    os._exit(code)


def _received(connection: socket.socket) -> bytes:
    """What a shim has said; nothing if it was killed."""
    with suppress(ConnectionError):
        return connection.recv(65536)
    return b""


class Shims:
    """The commands that shims have started, each with the connection to its shim."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._commands: dict[socket.socket, int] = {}

    @property
    def descriptors(self) -> list[int]:
        return [self._listening.fileno(), *(connection.fileno() for connection in self._commands)]

    def serve(self, descriptor: int, ours: list[int]) -> None:
        """Do what is wanted at one of the descriptors."""
        if descriptor == self._listening.fileno():
            connection, _ = self._listening.accept()
            self._begin(connection, [*ours, connection.fileno()])
            return
        connection = next(one for one in self._commands if one.fileno() == descriptor)
        pid = self._commands.pop(connection)
        with connection:
            if not _received(connection):  # the shim was killed
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            with suppress(OSError):  # nobody is there to be told
                connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))

    def _begin(self, connection: socket.socket, ours: list[int]) -> None:
        """Read a length and as many bytes, with which three descriptors come; answer with the command's process."""
        data, streams, *_ = socket.recv_fds(connection, 65536, 3)
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            if not (more := _received(connection)):
                break  # the shim was killed before it had said all
            data += more
        else:
            request = marshal.loads(data[4:])
            request |= zip(("in", "out", "err"), streams, strict=True)
            pid = self._commands[connection] = start(request, ours)
            with suppress(OSError):  # it was killed just now: `serve` sees that
                connection.sendall(pid.to_bytes(4, "little"))
        for stream in streams:
            os.close(stream)


def main() -> None:
    sys.path[0] = str(Path(sys.executable).parent)  # as the command has it: no module of the tests is found
    preload()
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    shims = Shims(socket.socket(fileno=int(sys.argv[1])))
    while True:
        ours = [requests.fileno(), answers.fileno(), *shims.descriptors]
        for ready in select.select([ours[0], *shims.descriptors], [], [])[0]:
            if ready != requests.fileno():
                shims.serve(ready, ours)
                break  # the descriptors may be others now
            if not (line := requests.readline()):
                return
            request = json.loads(line)
            if "wait" in request:
                _, status = os.waitpid(request["wait"], 0)
                answer = {"exit": os.waitstatus_to_exitcode(status)}
            else:
                answer = {"pid": start(request, ours)}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
