"""Blobs as files of a folder that all machines have, on a network disk say: EXECUTION/DIGEST."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from windlass.ids import new_id
from windlass.ports.blobs import BlobError, BlobMissing

__all__ = ["FolderBlobs"]


class FolderBlobs:
    """Implements `ports.BlobStore`. The folder must be there: one that is not mounted must not be taken for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def shown(self) -> str:
        return str(self._folder)

    async def put(self, execution: str, digest: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, execution, digest, data)

    def _put(self, execution: str, digest: str, data: bytes) -> None:
        path = self._folder / execution / digest
        if path.exists():
            return
        draft = path.with_name(f".{new_id()}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            raise self._unusable(error) from error

    async def get(self, execution: str, digest: str) -> bytes:
        try:
            return await asyncio.to_thread((self._folder / execution / digest).read_bytes)
        except FileNotFoundError as error:
            if self._folder.is_dir():
                raise BlobMissing(f"the store {self.shown} has no {digest[:12]} of {execution}") from error
            raise self._unusable(error) from error
        except OSError as error:
            raise self._unusable(error) from error

    async def remove(self, execution: str) -> None:
        try:
            await asyncio.to_thread(shutil.rmtree, self._folder / execution)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> BlobError:
        reason = error.strerror if self._folder.is_dir() else "the folder is not there"
        return BlobError(f"the store {self.shown} cannot be used: {reason}")
