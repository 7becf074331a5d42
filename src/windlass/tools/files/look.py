"""Reading and listing: nothing here changes anything."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import os
import stat
from collections.abc import Callable
from itertools import islice
from typing import Any

from windlass.clock import iso
from windlass.errors import Category, ToolError
from windlass.globs import glob_filter
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.models import List, Read
from windlass.tools.files.place import OpenedPath, count_read, kind, walk
from windlass.tools.files.safe_path import Root, names_in

__all__ = ["encode", "list_entries", "path_filter", "read", "regular"]


def path_filter(glob: str | None) -> Callable[[str], bool]:
    try:
        return glob_filter(glob)
    except ValueError as error:
        raise ToolError(f"{shown(glob or '')} is not a pattern: {error}", category=Category.CONFIGURATION) from None


def regular(place: OpenedPath, path: str) -> os.stat_result | None:
    """Status of the regular file at a place; None when nothing is there. Anything else is refused."""
    found = place.stat()
    if path.endswith(("/", "/.")) or (found and stat.S_ISDIR(found.st_mode)):
        raise unusable(path, "names a directory, not a file", "name a file, or use files.list")
    if found and not stat.S_ISREG(found.st_mode):
        raise unusable(path, "is not a regular file but a device, FIFO, socket or link", "use a file")
    return found


def read(root: Root, arguments: Read, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    limit = max(1, arguments.max_bytes >> reduced)
    with root.locate(arguments.path) as place:
        if regular(place, arguments.path) is None:
            raise Missing(arguments.path, place.name, names_in(place.fd))
        fd = place.open(os.O_RDONLY)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise unusable(arguments.path, "became something else while it was being opened")
            data = _read(fd, arguments.offset, limit + 1, check)
        finally:
            os.close(fd)
    cut = len(data) > limit
    content, used = _decode(data[:limit], cut, arguments)
    return {
        "path": place.text,
        "content": content,
        "bytes": used,
        "truncated": cut,
        "sha256": hashlib.sha256(data[:used]).hexdigest(),
        "size": found.st_size,
    }


def _read(fd: int, offset: int, limit: int, check: Callable[[], None]) -> bytes:
    data = bytearray()
    while len(data) < limit:
        check()
        chunk = os.pread(fd, min(1 << 20, limit - len(data)), offset + len(data))
        if not chunk:
            break
        count_read(len(chunk))
        data += chunk
    return bytes(data)


def _decode(data: bytes, cut: bool, arguments: Read) -> tuple[str, int]:
    """The text, and how many bytes of it: a character that the limit cuts in two waits for the next read."""
    if arguments.encoding == "base64":
        return base64.b64encode(data).decode(), len(data)
    decoder = _codec(arguments.encoding).incrementaldecoder
    if decoder is None:
        raise _no_codec(arguments.encoding)
    decoding = decoder("strict")
    try:
        text = decoding.decode(data, final=not cut)
    except UnicodeError as error:
        raise unusable(
            arguments.path,
            f"is not {arguments.encoding} text from byte {arguments.offset} on: {error}",
            "read it with encoding: base64",
            "or name the encoding it has, e.g. latin-1",
        ) from None
    return text, len(data) - (len(decoding.getstate()[0]) if cut else 0)


def encode(content: str, encoding: str, path: str) -> bytes:
    """The bytes of content that is to be written."""
    try:
        if encoding == "base64":
            return base64.b64decode("".join(content.split()), validate=True)
        return _codec(encoding).encode(content)[0]
    except binascii.Error as error:
        raise unusable(path, f"cannot be written: the content is not base64 ({error})") from None
    except UnicodeError as error:
        raise unusable(path, f"cannot be written as {encoding}: {error}", "use encoding: utf-8") from None


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        "".encode(encoding)  # also refuses the codecs that are no text encodings, such as zip
        return codecs.lookup(encoding)
    except (LookupError, ValueError, UnicodeError):
        raise _no_codec(encoding) from None


def _no_codec(encoding: str) -> ToolError:
    return ToolError(
        f"{shown(encoding)} is not a text encoding that is known here",
        category=Category.CONFIGURATION,
        advice=("use utf-8, utf-16, latin-1, cp1252 … or base64",),
    )


def list_entries(root: Root, arguments: List, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    limit = max(1, arguments.max_entries >> reduced)
    wanted = path_filter(arguments.glob)
    with root.locate(arguments.path) as top:
        found = top.stat()
        if found is None:
            raise Missing(arguments.path, top.name, names_in(top.fd))
        if not stat.S_ISDIR(found.st_mode):
            raise unusable(arguments.path, "is not a directory", "use files.read for a file")
        start = "" if top.path == "." else f"{top.path}/"

        def enter(place: OpenedPath) -> bool:
            check()
            return place is top or (arguments.recursive and not root.is_state(place))

        entries = (
            _entry(place, found)
            for place, found in walk(top, enter)
            if place is not top and not root.is_state(place, found) and wanted(place.path.removeprefix(start))
        )
        some = list(islice(entries, limit + 1))
    return {
        "path": top.text,
        "entries": some[:limit],
        "truncated": len(some) > limit,
    }


def _entry(place: OpenedPath, found: os.stat_result) -> dict[str, Any]:
    what = kind(found)
    return {
        "path": place.text,
        "type": what,
        "bytes": found.st_size if what == "file" else 0,
        "modified": iso(found.st_mtime),
    }
