"""Where the `windlass` command begins. `--version` answers before anything slow is imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from windlass.version import __version__

        sys.stdout.write(f"windlass {__version__}\n")
        return
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # under nohup it is ignored, and stays so
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from windlass.cli.app import run_app

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_app()


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C before anything has begun: there is nothing to tell, least of all where the imports were."""
    os._exit(130)
