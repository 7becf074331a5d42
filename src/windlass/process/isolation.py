"""What a command can be kept from, besides being owned: writing outside its folder, and the network.

`isolated` gives the command line that does so. The work is done by `confine`, in the command's own process before the
command is there; whether it can be done at all shows there, and `refusal` reads it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from windlass.process import confine

__all__ = ["Isolation", "isolated", "network_launcher", "refusal"]

Isolation = Literal["none", "files", "network", "all"]

LAUNCHER = Path(__file__).with_name("confine.py")


@asynccontextmanager
async def isolated(
    argv: Sequence[str], env: Mapping[str, str], isolation: Isolation, folder: str
) -> AsyncIterator[tuple[list[str], dict[str, str]]]:
    """The command line and the environment to start, while this is open.

    Where only `folder` may be written to, the command gets a TMPDIR of its own, which is removed at the end.
    """
    if isolation == "none":
        yield list(argv), dict(env)
    elif isolation == "network":
        yield network_launcher(argv), dict(env)
    else:
        import shutil
        import tempfile  # slow to import, and few commands need it

        private = tempfile.mkdtemp(prefix="windlass-")
        try:
            launched = _launched(argv, writable=[folder, private], network=isolation == "files")
            yield launched, {**env, "TMPDIR": private}
        finally:
            await asyncio.to_thread(shutil.rmtree, private, ignore_errors=True)  # a command may have left a lot


def network_launcher(argv: Sequence[str]) -> list[str]:
    """The command line of a command without a network."""
    return _launched(argv, writable=None, network=False)


def _launched(argv: Sequence[str], *, writable: list[str] | None, network: bool) -> list[str]:
    options = json.dumps({"writable": writable, "network": network})
    return [sys.executable, "-I", "-S", str(LAUNCHER), options, *argv]


def refusal(code: int | None, stderr: str) -> str | None:
    """Why the isolation could not be had; None if it could, and the command ran."""
    if code != confine.EX_CANNOT or not stderr.startswith(confine.CANNOT):
        return None
    return stderr.removeprefix(confine.CANNOT).strip()
