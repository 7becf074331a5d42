"""Reads the transcripts of agents from the journal, with the long inputs and results from their files (K8)."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from windlass.engine.lookup import find_step
from windlass.engine.observer import Observer
from windlass.errors import UsageError

if TYPE_CHECKING:
    from windlass.core.state import State
    from windlass.core.transcript import TranscriptEntry
    from windlass.engine.kept_files import KeptFiles

__all__ = ["Transcripts", "read_below"]


class Transcripts:
    """Gives the transcript of a step's agent, whichever process drives it."""

    def __init__(self, observer: Observer, artifacts: Path, kept_files: KeptFiles | None = None) -> None:
        self._observer = observer
        self._artifacts = artifacts
        self._kept_files = kept_files

    async def transcript(
        self, execution: str, step: str, *, after: int = 0, whole: bool = True
    ) -> list[TranscriptEntry]:
        """Read the entries of a step's agent after that place in the journal.

        `whole` reads long inputs and results from their files; without it they are cut, with `file` and `size`.
        """
        from windlass.core.transcript import Transcript  # few ask

        head = await self._observer.find(execution)
        state, entries = await self._observer.record(head.id)
        _check_agent(find_step(state, step).spec.is_agent, head.id, step)
        transcript = Transcript(step)
        found = [one for entry in entries for one in transcript.take(entry.seq, entry.event) if one.seq > after]
        if not whole:
            return found
        if any(one.file for one in found):
            await self.bring_artifacts(state, step)
        return await asyncio.to_thread(self._completed, head.id, found)

    async def bring_artifacts(self, state: State, step: str) -> None:
        """Have the files that a step left for people here, if another machine put them into the shared store."""
        if self._kept_files is not None:
            await self._kept_files.bring_artifacts(state.id, find_step(state, step))

    async def follow_transcript(self, execution: str, step: str, *, after: int = 0) -> AsyncIterator[TranscriptEntry]:
        """Give the entries, past and future, until the execution has finished or paused."""
        from windlass.core.transcript import Transcript

        head = await self._observer.find(execution)
        _check_agent(find_step(await self._observer.state(head.id), step).spec.is_agent, head.id, step)
        transcript = Transcript(step)
        async for entry in self._observer.follow(head.id):
            for one in transcript.take(entry.seq, entry.event):
                if one.seq <= after:
                    continue
                (whole,) = await asyncio.to_thread(self._completed, head.id, [one])
                if whole.file and whole == one:  # it is not here
                    await self.bring_artifacts(await self._observer.state(head.id), step)
                    (whole,) = await asyncio.to_thread(self._completed, head.id, [one])
                yield whole

    def _completed(self, execution: str, entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
        return [self._with_file(execution, one) if one.file else one for one in entries]

    def _with_file(self, execution: str, entry: TranscriptEntry) -> TranscriptEntry:
        content = read_below(self._artifacts / execution, entry.file)
        if content is None:
            return entry
        text = content.decode("utf-8", "replace")
        if entry.kind == "result":
            return msgspec.structs.replace(entry, text=text)
        try:
            return msgspec.structs.replace(entry, input=json.loads(text))
        except ValueError:
            return entry


def _check_agent(is_agent: bool, execution: str, step: str) -> None:
    if not is_agent:
        raise UsageError(
            f"step {step} of {execution} has no agent, so it has no transcript",
            advice=(f"see its output: windlass logs {execution} --step {shlex.quote(step)}",),
        )


def read_below(folder: Path, name: str) -> bytes | None:
    """Read a regular file below the folder; None if there is none, or if the name leads elsewhere."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return None
        with open(path, "rb", opener=_open_itself) as file:  # which closes what it cannot read: a folder, say
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None


def _open_itself(name: str, flags: int) -> int:
    """Open no file that a link leads to, and wait for nobody at the other end of a pipe."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
