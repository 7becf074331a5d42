"""`http.download`: a file, whole and checked, or none.

It is written beside its place under a name of its own and takes the place at one stroke. An attempt that is killed
leaves that other file behind; the next attempt of the step finds it by its name and begins anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from windlass.errors import Category, ToolError
from windlass.plan.quantities import MB, shown_size
from windlass.ports import Call
from windlass.tools.files.failures import explain, shown, unusable
from windlass.tools.files.place import OpenedPath, discard, dress, kind
from windlass.tools.files.safe_path import Root
from windlass.tools.http.requests import Download
from windlass.tools.net.exchange import HttpAnswer
from windlass.tools.net.failures import TooMuch
from windlass.tools.threads import in_thread

__all__ = ["keep"]

STAYS_FREE = 64 * MB
"""Bytes of the disk that a download leaves alone."""
_LOOK_EVERY = 16 * MB


async def keep(answered: HttpAnswer, given: Download, call: Call) -> dict[str, Any]:
    """Write the body of an answer to its place: where it is, how large, and its hash."""
    name = given.path if given.path is not None else _file_name(given.name, answered.address.rest)
    folder = call.workdir if given.path is not None else _artifacts(call)
    try:
        with _place(folder, call.home, name) as place:
            old = place.stat()
            if old is not None and (kind(old) != "file" or not given.overwrite):
                raise unusable(name, "exists already" if kind(old) == "file" else "is not a regular file")
            size, digest = await _write(answered, given, call, place, old)
            path = place.text if given.path is not None else str(folder / place.text)
    except TooMuch:
        raise _too_large(answered.address.shown, given) from None
    except OSError as error:
        raise explain(error, f"http.download to {shown(name)}") from error
    return {"path": path, "artifact": given.path is None, "bytes": size, "sha256": digest}


async def _write(
    answered: HttpAnswer, given: Download, call: Call, place: OpenedPath, old: os.stat_result | None
) -> tuple[int, str]:
    mine = hashlib.sha256(call.effect_id.encode()).hexdigest()[:12]
    part = place.beside(f".windlass-{mine}.part")
    discard(part)
    _check_room(place.fd, _length(answered), given)
    mode = 0o666 if given.path is not None and old is None else 0o600
    fd = part.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        if old is not None:
            dress(fd, old)
        size, digest = await _stream(answered, given, fd)
        if given.sha256 is not None and digest != given.sha256.lower():
            raise ToolError(
                f"{answered.address.shown} has the wrong sha256: it is {digest}, not {given.sha256}",
                category=Category.LOGIC,
                advice=("check whether the file or the hash is wrong before you use either",),
            )
        copy = os.dup(fd)  # a thread cannot be cancelled, and must not be left with a descriptor that is closed
        await in_thread(lambda: _sync(copy))
        part.rename(place)
        place.sync()
    except BaseException:
        discard(part)
        raise
    finally:
        os.close(fd)
    return size, digest


async def _stream(answered: HttpAnswer, given: Download, fd: int) -> tuple[int, str]:
    size, digest, looked = 0, hashlib.sha256(), 0
    async for chunk in answered.response.aiter_bytes():
        size += len(chunk)
        if size > given.max_bytes:
            raise TooMuch
        if size - looked > _LOOK_EVERY:
            looked = size
            _check_room(fd, 0, given)
        digest.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return size, digest.hexdigest()


def _check_room(fd: int, size: int, given: Download) -> None:
    if size > given.max_bytes:
        raise _too_large(given.url.partition("?")[0], given)
    free = shutil.disk_usage(fd).free
    if free - size < STAYS_FREE:
        raise ToolError(
            f"http.download: the disk has {free // MB} MiB free, too little for a file of {size // MB} MiB or more",
            category=Category.RESOURCE,
            advice=("free some space, then: windlass resume",),
        )


def _too_large(what: str, given: Download) -> ToolError:
    return ToolError(
        f"{what} is larger than {shown_size(given.max_bytes)}: it was not kept",
        category=Category.RESOURCE,
        advice=("raise max_bytes, if you want a file of that size",),
    )


def _length(answered: HttpAnswer) -> int:
    """The size that the other side announces; 0 if it does not."""
    text = str(answered.response.headers.get("content-length", ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


@contextmanager
def _place(folder: Path, home: Path, name: str) -> Iterator[OpenedPath]:
    with Root(folder, home) as root:
        parts = root.parts(name)
        for depth in range(1, len(parts)):
            with root.locate("/".join(parts[:depth])) as parent:
                if parent.stat() is None:
                    os.mkdir(parent.name, dir_fd=parent.fd)
        with root.locate(name) as place:
            yield place


def _artifacts(call: Call) -> Path:
    call.artifacts.mkdir(mode=0o700, parents=True, exist_ok=True)
    return call.artifacts


def _file_name(told: str | None, rest: str) -> str:
    """A plain name, from what was asked for or from the end of the address."""
    last = told if told is not None else unquote(rest.partition("?")[0].rpartition("/")[2])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip(".-")[-100:].lstrip(".-") or "download"


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
