"""The seam towards a store of bytes that several machines share."""

from __future__ import annotations

from typing import Protocol

from windlass.errors import WindlassError

__all__ = ["BlobError", "BlobMissing", "BlobStore"]


class BlobError(WindlassError):
    """The store cannot be used now, or not by us."""


class BlobMissing(BlobError):
    """The store has no such bytes."""


class BlobStore(Protocol):
    """Bytes by their SHA-256, kept apart for each execution. A blob that is put twice is the same."""

    @property
    def shown(self) -> str:
        """Its place, for people."""
        ...

    async def put(self, execution: str, digest: str, data: bytes) -> None:
        """Keep the bytes; when it returns, every machine can get them. Raises `BlobError`."""
        ...

    async def get(self, execution: str, digest: str) -> bytes:
        """Raises `BlobMissing`, or `BlobError` if the store cannot be used."""
        ...

    async def remove(self, execution: str) -> None:
        """Remove everything of an execution. Raises `BlobError`."""
        ...
