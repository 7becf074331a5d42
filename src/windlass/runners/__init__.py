"""Adapters for the runtimes, a folder each. `RunnerDeps` is what each of them is made with; `endings` is the table of
how a turn can end without success; `toolbox` has the engine's tools as a model sees them. The rows that name the
runners are in `windlass/runtimes.py`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.settings import RuntimeSettings

__all__ = ["RunnerDeps", "import_in_background"]


class RunnerDeps(msgspec.Struct, frozen=True):
    """Dependencies that the engine gives a runner."""

    supervisor: Supervisor
    """Starts its processes, and ends them."""
    env: Mapping[str, str]
    """The engine's whole environment, to pick from."""
    now: Callable[[], float]
    home: Path
    """The state directory."""
    settings: RuntimeSettings = msgspec.field(default_factory=RuntimeSettings)
    """The user's settings for this runtime; `path` has no `~` any more."""
    prices: Prices = msgspec.field(default_factory=Prices)


def import_in_background(*modules: str) -> None:
    """Import slow modules in a thread; another import of one of them meanwhile waits for it.

    The thread is a daemon, so that a plan that ends early does not wait for it. The first run reports import errors.
    """

    def load() -> None:
        with suppress(Exception):
            for module in modules:
                import_module(module)

    if any(module not in sys.modules for module in modules):
        threading.Thread(target=load, name="import", daemon=True).start()
