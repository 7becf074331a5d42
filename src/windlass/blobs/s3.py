"""Blobs as objects of a bucket: PREFIX/EXECUTION/DIGEST.

Keys, region and endpoint come from the variables that every client of S3 reads: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …, or from the machine's own role.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from windlass.errors import UsageError
from windlass.ports.blobs import BlobError, BlobMissing

__all__ = ["BucketBlobs"]

WAITED = timedelta(seconds=30)
"""Time for all tries of one request."""
REMOVED_TOGETHER = 1000


class BucketBlobs:
    """Implements `ports.BlobStore`."""

    def __init__(self, address: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            raise UsageError(
                f"a store in S3 needs more packages: {error}", advice=("pip install 'windlass[s3]'",)
            ) from error
        parts = urlsplit(address)
        self.shown = address
        plain = (os.environ.get("AWS_ENDPOINT_URL") or "").startswith("http://")
        self._calls: Any = obstore
        self._store: Any = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"allow_http": plain, "timeout": WAITED},
            retry_config={"max_retries": 5, "retry_timeout": WAITED},
        )

    async def put(self, execution: str, digest: str, data: bytes) -> None:
        with self._told():
            await self._calls.put_async(self._store, f"{execution}/{digest}", data)

    async def get(self, execution: str, digest: str) -> bytes:
        try:
            with self._told():
                found = await self._calls.get_async(self._store, f"{execution}/{digest}")
                return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            raise BlobMissing(f"the store {self.shown} has no {digest[:12]} of {execution}") from error

    async def remove(self, execution: str) -> None:
        with self._told():
            async for page in self._calls.list(self._store, f"{execution}/", chunk_size=REMOVED_TOGETHER):
                await self._calls.delete_async(self._store, [found["path"] for found in page])

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise BlobError(f"the store {self.shown} cannot be used: there is no such bucket") from error
            raise
        except Exception as error:  # the client has classes of its own for each kind of trouble
            reason = str(error).strip().partition("\n")[0]
            raise BlobError(f"the store {self.shown} cannot be used: {reason}") from error
