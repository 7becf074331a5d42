"""Makes what is dear to make once in a session, however many workers it has."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["made_once", "session_folder"]

T = TypeVar("T")


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of the session share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Make it, unless another worker has: then read what that one made. The others wait while one makes it."""
    kept = session_folder(factory) / f"{name}.pickle"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(make()))
    made: T = pickle.loads(kept.read_bytes())
    return made
