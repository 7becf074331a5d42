"""Where the `windlass` command begins. `--version` answers before anything slow is imported."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from windlass.version import __version__

        sys.stdout.write(f"windlass {__version__}\n")
        return
    from windlass.cli.app import run_app

    run_app()
