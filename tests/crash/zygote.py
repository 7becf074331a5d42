"""Run by the crash tests: the real command line, a fork away, so that a thousand runs import it once.

Reads one JSON object a line and answers with one: `{"argv", "env", "cwd", "out", "err"}` forks a process that runs
`windlass ARGV` and gives `{"pid"}`; `{"wait": PID}` gives `{"exit"}` when that process has ended. The process is what
`python -m windlass` would be: its environment is read anew, `WINDLASS_FAULT` too.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from typing import Any

import windlass.assembly
import windlass.engine.history
import windlass.faults
from windlass.cli.app import run_app


def run(request: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    if request.get("largest_file"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"], resource.RLIM_INFINITY))
    importlib.reload(windlass.faults)
    sys.argv = ["windlass", *request["argv"]]
    try:
        run_app()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1 if exit_.code else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"exit": os.waitstatus_to_exitcode(status)}
        else:
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    code = run(request)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    sys.stderr.flush()
                os._exit(code)
            answer = {"pid": child}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
