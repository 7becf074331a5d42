"""Stores of bytes that several machines share: `folder` on a shared disk, `s3` for S3 and what speaks its protocol."""

from __future__ import annotations

from pathlib import Path

from windlass.ports.blobs import BlobStore

__all__ = ["open_blobs"]


def open_blobs(address: str) -> BlobStore:
    """The store of the setting `store`: `s3://BUCKET/PREFIX`, or the path of a folder."""
    if address.startswith("s3://"):
        from windlass.blobs.s3 import BucketBlobs

        return BucketBlobs(address)
    from windlass.blobs.folder import FolderBlobs

    return FolderBlobs(Path(address))
