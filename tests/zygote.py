"""Run by the tests: the real command line, a fork away, so that thousands of commands import it once.

Reads one JSON object a line and answers with one: `{"argv", "env", "cwd", "in", "out", "err"}` forks a process that
runs `windlass ARGV` and gives `{"pid"}`; `{"wait": PID}` gives `{"exit"}` when that process has ended. The process is
what the `windlass` command would be: its environment is read anew, `WINDLASS_FAULT` too. `forks.py` is the other end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import signal
import sys
import time
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
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    for number, path in enumerate((request["in"], request["out"], request["err"])):  # a terminal is the session's own
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if request["largest_file"]:
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


def main() -> None:
    sys.path[0] = str(Path(sys.executable).parent)  # as the command has it: no module of the tests is found
    preload()
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"exit": os.waitstatus_to_exitcode(status)}
        else:
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    os.close(requests.fileno())
                    os.close(answers.fileno())
                    code = run(request)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    sys.stderr.flush()
                os._exit(code)
            answer = {"pid": child}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
