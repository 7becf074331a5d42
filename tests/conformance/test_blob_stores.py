"""Every store of bytes that machines share keeps the same promises (J2)."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server

from windlass.blobs import open_blobs
from windlass.ports.blobs import BlobError, BlobMissing, BlobStore

ONE, OTHER = "01a1e721-284d-7a23-960d-987e27a93185", "01a1e721-284d-7a23-960d-987e27a93186"


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture(params=["folder", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/of/{tmp_path.name}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def keep(store: BlobStore, execution: str, data: bytes) -> str:
    await store.put(execution, digest(data), data)
    return digest(data)


@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 8192], ids=["nothing", "a little", "2 MB"])
async def test_j2_another_machine_gets_the_bytes_that_were_put(address: str, data: bytes) -> None:
    name = await keep(open_blobs(address), ONE, data)
    assert await open_blobs(address).get(ONE, name) == data


async def test_j2_bytes_that_are_put_by_several_at_once_are_there_once(address: str) -> None:
    await asyncio.gather(*(keep(open_blobs(address), ONE, b"the same") for _ in range(8)))
    assert await open_blobs(address).get(ONE, digest(b"the same")) == b"the same"


async def test_j2_bytes_that_nobody_put_are_missing(address: str) -> None:
    store = open_blobs(address)
    await keep(store, ONE, b"x")
    with pytest.raises(BlobMissing, match="has no"):
        await store.get(ONE, digest(b"y"))
    with pytest.raises(BlobMissing, match="has no"):
        await store.get(OTHER, digest(b"x"))


async def test_j2_a_removed_execution_leaves_the_others(address: str) -> None:
    store = open_blobs(address)
    first, second = await keep(store, ONE, b"x"), await keep(store, OTHER, b"x")
    await store.remove(ONE)
    await store.remove(ONE)
    with pytest.raises(BlobMissing):
        await store.get(ONE, first)
    assert await store.get(OTHER, second) == b"x"


async def test_j2_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    store = open_blobs(str(tmp_path / "share"))
    with pytest.raises(BlobError, match="the folder is not there"):
        await keep(store, ONE, b"x")
    with pytest.raises(BlobError, match="the folder is not there"):
        await store.get(ONE, digest(b"x"))
    assert not (tmp_path / "share").exists()


async def test_j2_a_folder_that_goes_away_is_named_as_such(tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    store = open_blobs(str(share))
    name = await keep(store, ONE, b"x")
    shutil.rmtree(share)
    with pytest.raises(BlobError, match=r"share cannot be used: the folder is not there"):
        await store.get(ONE, name)


async def test_j2_a_wrong_key_and_an_unknown_bucket_are_named(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BlobError, match="there is no such bucket"):
        await keep(open_blobs("s3://nowhere/x"), ONE, b"x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BlobError, match="s3://bucket cannot be used") as refused:
        await keep(open_blobs("s3://bucket"), ONE, b"x")
    assert "wrong" not in str(refused.value)
