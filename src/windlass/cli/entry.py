"""Entry point of the `windlass` command. `--version` answers before anything slow is imported."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType, TracebackType

__all__ = ["main"]

GARBAGE_AFTER = 10_000
"""New objects before a look for garbage; with Python's 700, imports alone cause hundreds of looks that find none."""


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from windlass.version import __version__

        try:
            sys.stdout.write(f"windlass {__version__}\n")
            sys.stdout.flush()
            return
        except (OSError, AttributeError):  # a full disk, no reader, or no stdout: the command itself reports it
            pass
    gc.set_threshold(GARBAGE_AFTER)
    # Looking for plugins reads the metadata of every installed package, and there are none that we would want.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from windlass.cli.terminal import protect_streams

    protect_streams()
    sys.excepthook = _report_fault  # before Typer takes the one that it finds
    _refuse_bytes(sys.argv[1:])
    _need_a_folder()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # under nohup it is ignored, and stays so
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from windlass.cli.app import run_app

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_app()


def _report_fault(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without the colours of newer Pythons: stderr shows escape sequences instead of obeying them."""
    import traceback

    sys.stderr.write("".join(traceback.format_exception(kind, fault, trace)))


def _refuse_bytes(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8 (an old file name, say): a journal of JSON could not keep them."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            sys.stderr.write(f"windlass: {argument!r} is not UTF-8 text, so it cannot be stored\n")
            sys.exit(2)


def _need_a_folder() -> None:
    """Refuse to start without a working directory: homes, plans and steps are looked for from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        sys.stderr.write("windlass: the working directory was deleted\n  → go to one that exists: cd DIR\n")
        sys.exit(2)


def _leave(number: int, frame: FrameType | None) -> None:
    """End quietly on Ctrl-C before anything has begun: a traceback of imports helps nobody."""
    os._exit(130)
