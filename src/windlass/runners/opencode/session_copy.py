"""Sessions of OpenCode as files, for other machines: `opencode export` writes one, `opencode import` reads it there.

OpenCode keeps its sessions in a database of its own, so the program itself does both.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from windlass.process import ProcessLost, SpawnError, Supervisor
from windlass.runners.opencode.probe import OpenCodeProgram

__all__ = ["SessionCopies"]

log = logging.getLogger("windlass.runners.opencode")

PATIENCE = 120.0
"""Seconds that the program may take; a start takes four on a slow machine."""


class SessionCopies:
    """Copies sessions out of the database of one user, and into it."""

    def __init__(self, supervisor: Supervisor, program: OpenCodeProgram, env: Mapping[str, str], workdir: Path) -> None:
        self._supervisor, self._program, self._env, self._workdir = supervisor, program, env, workdir

    async def write(self, session: str, file: Path) -> None:
        """Write the session into the file; if that cannot be done, there is no file: an older copy would mislead."""
        file.unlink(missing_ok=True)
        said = await self._run("export", session)
        if said is None:
            return
        try:
            found = json.loads(said)["info"]["id"]
        except (ValueError, LookupError, TypeError):
            found = ""
        if found != session:
            log.warning("session %s stays on this machine: `opencode export` printed another text", session)
            return
        await asyncio.to_thread(_write, file, said)

    async def read(self, session: str, file: Path) -> bool:
        """Have OpenCode know the session as the file has it; False if that cannot be done."""
        if not file.is_file():
            return False
        await self._run("session", "delete", session, may_fail=True)  # an older state of it may be here
        return await self._run("import", str(file)) is not None

    async def _run(self, *words: str, may_fail: bool = False) -> bytes | None:
        """Its output; None, and a line in the log, if it fails."""
        what = " ".join(("opencode", *words))
        try:
            process = await self._supervisor.spawn([self._program.path, *words], cwd=str(self._workdir), env=self._env)
        except SpawnError as error:
            log.warning("%s: %s", what, error.message)
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
                end = await process.wait()
        except TimeoutError:
            log.warning("%s did not end within %g s", what, PATIENCE)
            return None
        except ProcessLost as error:
            log.warning("%s: %s", what, error.message)
            return None
        finally:
            await asyncio.shield(process.stop(0))
        if end.code == 0:
            return out
        if not may_fail:
            log.warning("%s ended with %s: %s", what, end.code, err.decode(errors="replace").strip()[-300:])
        return None


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(file)
