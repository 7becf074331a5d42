"""The scripted model as a program: serves a script's file by itself, or while a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from windlass.errors import UsageError
from windlass.testing.scripted_model import ScriptedModel

__all__ = ["serve_file", "serve_while"]

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def serve_file(script: Path, port: int = 0, *, check: bool = False) -> int:
    """Serve a script's file until SIGTERM or SIGINT; the first line on stdout is the address. Gives the exit code."""
    # Blocked before the thread begins, so that they wait here for `sigwait` and end nothing halfway.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    model = _started(script, port)
    sys.stdout.write(f"{model.url}\n")
    sys.stdout.flush()
    signal.sigwait(ends)
    return _end(model, check)


def serve_while(command: Sequence[str], script: Path, port: int = 0, *, check: bool = False) -> int:
    """Serve a script's file while a command runs that is pointed at it. Gives the command's exit code.

    With `check`, a command that succeeds without having followed the script ends with 1.
    """
    model = _started(script, port)
    try:
        code = _run(command, {**os.environ, **_addresses(model)})
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    finally:
        complaints = _end(model, check)
    return code or complaints


def _addresses(model: ScriptedModel) -> dict[str, str]:
    """Variables that point clients at the model; keys of one's own are replaced, so that none is sent."""
    return {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_BASE_URL": model.openai_url,
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": model.url,
        "GEMINI_API_KEY": "none",
    }


def _run(command: Sequence[str], env: dict[str, str]) -> int:
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and _in_foreground():
            return  # Ctrl-C, which the command has been sent by the terminal: a second one would mean "quit now"
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup: then the command ignores it, too
            signal.signal(number, pass_on)
    child = subprocess.Popen(command, env=env)
    for waiting in early:
        child.send_signal(waiting)
    code = child.wait()
    return 128 - code if code < 0 else code


def _in_foreground() -> bool:
    for stream in range(3):
        try:
            return os.tcgetpgrp(stream) == os.getpgrp()
        except OSError:  # no terminal
            continue
    return False


def _started(script: Path, port: int) -> ScriptedModel:
    try:
        return ScriptedModel.from_file(script, port=port).start()
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}") from error


def _end(model: ScriptedModel, check: bool) -> int:
    """Stop the model, and say what went wrong; with `check` unused replies count, and it gives 1."""
    model.stop()
    try:
        model.check()
    except AssertionError as unhappy:
        if check or model.errors:
            sys.stderr.write(f"{unhappy}\n")
        return int(check)
    return 0
