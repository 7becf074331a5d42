"""Files of a step's attempts that the next worker needs: put into the shared store, and brought from there (J2, K1).

Kept are the artifacts of a step and, for an agent, its own folder with the conversation and the bundle of its worktree.
A manifest names the files and the blobs that they are made of; the journal has the digest of the manifest
(`files.kept`), so a worker that was given up can put what it likes and changes nothing. Files are cut into parts of the
same size: of one that only grows, the last part alone is put again.

`executions/ID/kept/STEP` in the home has the number of the last attempt that found its files here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from socket import gethostname

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.state import StepState
from windlass.engine.contact import AttemptContext, AttemptOutput
from windlass.engine.perform import AttemptFolders, AttemptRunner, Outcome
from windlass.errors import Category, Failure
from windlass.homes import prepare_home
from windlass.ports import Meter, Whereabouts
from windlass.ports.blobs import BlobError, BlobMissing, BlobStore
from windlass.workspaces.bundles import bundle_of, drafts_of

__all__ = ["KeepingRunner", "KeptFiles"]

PART = 1024 * 1024
"""Bytes of one part of a file."""
AT_ONCE = 8
"""Parts that are on their way at the same time."""


class KeptFile(msgspec.Struct, frozen=True):
    """A file of a manifest."""

    path: str
    """Below the home: `scratch/NAME` or `artifacts/NAME`, where NAME begins with the step's."""
    size: int
    parts: tuple[str, ...]
    """SHA-256 of each part."""


class Manifest(msgspec.Struct, frozen=True):
    files: tuple[KeptFile, ...]


class KeptFiles:
    """Keeps and brings the files of steps, for one home."""

    def __init__(self, blobs: BlobStore, home: Path) -> None:
        self._blobs = blobs
        self._home = home
        self._known: dict[str, frozenset[str]] = {}
        """Parts that the store has, of steps that this process kept or brought, by execution and step."""

    @property
    def shown(self) -> str:
        return self._blobs.shown

    async def keep(self, execution: str, step: StepState, attempt: int, now: float) -> ev.FilesKept | None:
        """Put the step's files into the store; None if it has none. Raises `BlobError`."""
        folders = self._folders(execution)
        if not step.spec.is_agent:
            del folders["scratch"]
        name = f"{execution}/{step.id}"
        known = self._known.get(name, frozenset())
        limit = asyncio.Semaphore(AT_ONCE)
        files: list[KeptFile] = []
        for label, path in await asyncio.to_thread(lambda: list(_files(folders, step.id))):
            if (kept := await self._keep_file(execution, label, path, known, limit)) is not None:
                files.append(kept)
        if not files:
            return None
        manifest = msgspec.json.encode(Manifest(tuple(files)))
        digest = _digest(manifest)
        await self._blobs.put(execution, digest, manifest)
        self._known[name] = frozenset(part for file in files for part in file.parts)
        await asyncio.to_thread(self._mark, execution, step.id, attempt)
        return ev.FilesKept(now, step.id, attempt, digest, len(files), sum(file.size for file in files))

    async def _keep_file(
        self, execution: str, label: str, path: Path, known: frozenset[str], limit: asyncio.Semaphore
    ) -> KeptFile | None:
        parts: list[str] = []
        size = 0
        async with asyncio.TaskGroup() as puts:
            try:
                with path.open("rb") as file:
                    while part := await asyncio.to_thread(file.read, PART):
                        parts.append(digest := _digest(part))
                        size += len(part)
                        if digest not in known:
                            await limit.acquire()
                            put = puts.create_task(self._blobs.put(execution, digest, part))
                            put.add_done_callback(lambda _put: limit.release())
            except FileNotFoundError:
                return None  # gone since they were listed
        return KeptFile(label, size, tuple(parts))

    async def bring(self, execution: str, step: StepState, attempt: int) -> Whereabouts:
        """Have the files of the step's last attempt here, if they can be had. Raises `BlobError`."""
        last = step.agent.attempt if step.agent is not None else 0
        if not last or self._marked(execution, step.id) >= last:
            found: Whereabouts = "here"
        else:
            kept = step.kept
            found = "brought" if kept is not None and kept.attempt >= last else "behind"
            if kept is not None:
                await self._bring(execution, step.id, kept, only="" if found == "brought" else "artifacts/")
        if found != "behind":
            await asyncio.to_thread(self._mark, execution, step.id, attempt)
        return found

    async def bring_artifacts(self, execution: str, step: StepState) -> None:
        """Have the step's artifacts here, to look at them. Raises `BlobError`."""
        if step.kept is not None:
            await self._bring(execution, step.id, step.kept, only="artifacts/")

    async def bring_bundles(self, execution: str, step: StepState) -> None:
        """Have the worktrees of a step's agents here as bundles, to merge their work. Raises `BlobError`.

        A bundle of a later attempt that is here stays.
        """
        for owner in (step, *(step.children or ())):
            if owner.kept is not None and self._marked(execution, owner.id) <= owner.kept.attempt:
                only = bundle_of(Path("scratch", owner.id)).as_posix()
                with suppress(BlobMissing):  # the repository may have the work; if not, the merge says so
                    await self._bring(execution, owner.id, owner.kept, only=only)

    async def bring_conversation(self, origin: str, step: str, events: Sequence[ev.Event]) -> Whereabouts:
        """Have the step's files of the execution that this one was forked from here. Raises `BlobError`."""
        kept = next((event for event in reversed(events) if isinstance(event, ev.FilesKept)), None)
        if kept is None or self._marked(origin, step) >= kept.attempt:
            return "here"
        await self._bring(origin, step, kept)
        await asyncio.to_thread(self._mark, origin, step, kept.attempt)
        return "brought"

    async def remove(self, executions: Iterable[str]) -> None:
        for execution in executions:
            await self._blobs.remove(execution)

    async def _bring(self, execution: str, step: str, kept: ev.FilesKept, only: str = "") -> None:
        """Bring the files of a manifest that are not here as they are there; with `only`, those that begin so."""
        source = kept.origin or execution
        manifest = msgspec.json.decode(await self._get(source, kept.manifest), type=Manifest)
        await asyncio.to_thread(prepare_home, self._home)
        folders = self._folders(execution)
        limit = asyncio.Semaphore(AT_ONCE)
        for file in manifest.files:
            label, _, name = file.path.partition("/")
            if not file.path.startswith(only) or label not in folders or not _is_of(step, name):
                continue
            path = folders[label] / name
            if not await asyncio.to_thread(_is_same, path, file):
                await self._bring_file(source, file, path, limit)
        self._known[f"{source}/{step}"] = frozenset(part for file in manifest.files for part in file.parts)

    async def _bring_file(self, execution: str, file: KeptFile, path: Path, limit: asyncio.Semaphore) -> None:
        async def get(part: str) -> bytes:
            async with limit:
                return await self._get(execution, part)

        draft = path.with_name(f".{path.name}.brought")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "wb") as target:
            for first in range(0, len(file.parts), AT_ONCE):
                for part in await asyncio.gather(*map(get, file.parts[first : first + AT_ONCE])):
                    await asyncio.to_thread(target.write, part)
        draft.replace(path)

    async def _get(self, execution: str, digest: str) -> bytes:
        data = await self._blobs.get(execution, digest)
        if _digest(data) != digest:
            raise BlobError(f"the store {self.shown} has damaged bytes for {digest[:12]} of {execution}")
        return data

    def _folders(self, execution: str) -> dict[str, Path]:
        scratch = self._home / "executions" / execution / "steps"
        return {"scratch": scratch, "artifacts": self._home / "artifacts" / execution}

    def _marked(self, execution: str, step: str) -> int:
        try:
            return int(self._mark_of(execution, step).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _mark(self, execution: str, step: str, attempt: int) -> None:
        path = self._mark_of(execution, step)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{step}")
        draft.write_text(str(attempt))
        draft.replace(path)

    def _mark_of(self, execution: str, step: str) -> Path:
        return self._home / "executions" / execution / "kept" / step


class KeepingRunner(AttemptRunner, kw_only=True):
    """Performs attempts with the files of the last one, wherever that was, and keeps theirs in the store."""

    brings_files = True
    kept_files: KeptFiles
    clock: Clock

    async def perform(
        self,
        started: ev.AttemptStarted,
        step: StepState,
        place: AttemptFolders,
        output: AttemptOutput,
        contact: AttemptContext,
        meter: Meter,
    ) -> Outcome:
        files = self.kept_files
        try:
            contact.files = await files.bring(place.execution, step, started.attempt)
            if step.agent is not None and (origin := step.agent.session_origin):
                contact.files = await files.bring_conversation(origin, step.id, await contact.history(origin))
            if step.spec.merge is not None:
                await files.bring_bundles(place.execution, contact.state.steps[step.spec.merge])
        except (BlobError, OSError) as error:
            return Outcome.failed(_not_brought(error))
        try:
            return await super().perform(started, step, place, output, contact, meter)
        finally:
            if contact.files != "behind" or (step.agent is not None and step.agent.attempt == started.attempt):
                await asyncio.shield(self._keep(files, place.execution, step, started.attempt, contact, output))

    async def _keep(
        self,
        files: KeptFiles,
        execution: str,
        step: StepState,
        attempt: int,
        contact: AttemptContext,
        output: AttemptOutput,
    ) -> None:
        try:
            kept = await files.keep(execution, step, attempt, self.clock.now())
        except* (BlobError, OSError) as group:
            output("note", f"the files of this attempt stay on {gethostname()}: {group.exceptions[0]}\n")
        else:
            if kept is not None:
                contact.tell(kept, soon=False)


def _not_brought(error: Exception) -> Failure:
    category = Category.CONFIGURATION if isinstance(error, BlobMissing) else Category.TRANSIENT
    message = f"{gethostname()} cannot bring the files of the step's last attempt: {error}"
    return Failure(category, message, advice=("let every machine reach the store of the setting `store`",))


def _files(folders: dict[str, Path], step: str) -> Iterator[tuple[str, Path]]:
    """The regular files of a step, with their paths in a manifest."""
    drafts = drafts_of(bundle_of(folders["scratch"] / step)) if "scratch" in folders else ()
    for label, folder in folders.items():
        tops = sorted(path for path in folder.iterdir() if _is_of(step, path.name)) if folder.is_dir() else []
        for top in tops:
            for at, _, names in os.walk(top):
                for name in sorted(names):
                    path = Path(at, name)
                    whole = not name.endswith(".brought") and path not in drafts
                    if whole and path.is_file() and not path.is_symlink():
                        yield f"{label}/{path.relative_to(folder).as_posix()}", path


def _is_of(step: str, name: str) -> bool:
    """True for a plain path below the folder of a step, or of a tool that its agent used."""
    first, *more = PurePosixPath(name).parts or ("",)
    return (first == step or first.startswith(f"{step}.")) and ".." not in more and not name.startswith("/")


def _is_same(path: Path, file: KeptFile) -> bool:
    try:
        if path.is_symlink() or path.stat().st_size != file.size:
            return False
        with path.open("rb") as found:
            return all(_digest(found.read(PART)) == part for part in file.parts)
    except OSError:
        return False


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
