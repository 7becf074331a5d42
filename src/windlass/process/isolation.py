"""What a command can be kept from, besides being owned: writing outside its folder, and the network.

`isolated` gives the command line that does so. The work is done by `confine`, in the command's own process before the
command is there; whether it can be done at all shows there, and `refusal` reads it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from windlass.process import confine

__all__ = ["Isolation", "bubblewrap_launcher", "isolated", "network_launcher", "refusal"]

Isolation = Literal["none", "files", "network", "all"]

LAUNCHER = Path(__file__).with_name("confine.py")


@asynccontextmanager
async def isolated(
    argv: Sequence[str], env: Mapping[str, str], isolation: Isolation, folder: str, *, wrapped: bool = False
) -> AsyncIterator[tuple[list[str], dict[str, str]]]:
    """The command line and the environment to start, while this is open.

    Where only `folder` may be written to, the command gets a TMPDIR of its own, which is removed at the end. `wrapped`
    is to use bubblewrap even where the kernel offers us all of it.
    """
    if isolation == "none":
        yield list(argv), dict(env)
    elif isolation == "network":
        yield _launched(argv, writable=None, network=False, wrapped=wrapped), dict(env)
    else:
        import tempfile  # slow to import, and few commands need it

        private = tempfile.mkdtemp(prefix="windlass-")
        try:
            open_network = isolation == "files"
            launched = _launched(argv, writable=[folder, private], network=open_network, wrapped=wrapped)
            yield launched, {**env, "TMPDIR": private}
        finally:
            await asyncio.to_thread(shutil.rmtree, private, ignore_errors=True)  # a command may have left a lot


def network_launcher(argv: Sequence[str]) -> list[str]:
    """The command line of a command without a network, by the kernel alone."""
    return _line(argv, {"writable": None, "network": False, "bubblewrap": None, "forced": False})


def bubblewrap_launcher(argv: Sequence[str], bubblewrap: str) -> list[str]:
    """The command line of a command without a network that can write nowhere, by bubblewrap alone."""
    return _line(argv, {"writable": [], "network": False, "bubblewrap": bubblewrap, "forced": True})


def _launched(argv: Sequence[str], *, writable: list[str] | None, network: bool, wrapped: bool) -> list[str]:
    # Looked for here: the command's own PATH may begin with a folder in which it has put a program of that name.
    bubblewrap = shutil.which("bwrap")
    return _line(argv, {"writable": writable, "network": network, "bubblewrap": bubblewrap, "forced": wrapped})


def _line(argv: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(options), *argv]


def refusal(code: int | None, stderr: str) -> str | None:
    """Why the isolation could not be had; None if it could, and the command ran."""
    if code != confine.EX_CANNOT or not stderr.startswith(confine.CANNOT):
        return None
    return stderr.removeprefix(confine.CANNOT).strip()
