"""Attachments: files of the working directory, and of nowhere else."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from windlass.tools.files.failures import Missing, explain, shown, unusable
from windlass.tools.files.look import regular
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.message.content import line_problems, too_large

__all__ = ["Attachment", "load"]

_CHUNK = 1 << 20


class Attachment(NamedTuple):
    name: str
    mime: str
    data: bytes


def load(workdir: Path, home: Path, paths: Sequence[str], largest: int) -> list[Attachment]:
    """The files, together not larger than that."""
    found: list[Attachment] = []
    left = largest
    if not paths:
        return found
    with Root(workdir, home) as root:
        for path in paths:
            try:
                found.append(_read(root, path, left, largest))
            except OSError as error:
                raise explain(error, f"attachment {shown(path)}") from error
            left -= len(found[-1].data)
    return found


def _read(root: Root, path: str, left: int, largest: int) -> Attachment:
    with root.locate(path) as place:
        if regular(place, path) is None:
            raise Missing(path, place.name, names_in(place.fd))
        name = os.path.basename(place.text)
        if line_problems("name", name, literal=True):
            raise unusable(path, "has a control character in its name: it cannot be attached", "rename the file")
        if "=?" in name:  # the beginning of an encoded word, which could hold a line break
            raise unusable(path, "has `=?` in its name: it cannot be attached", "rename the file")
        fd = place.open(os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            data = file.read(left + 1)
    if len(data) > left:
        raise too_large(largest + 1, largest)
    return Attachment(name, _mime(name), data)


def _mime(name: str) -> str:
    guessed, encoding = mimetypes.guess_type(name)
    # A message part that is itself a message or has parts would be read as structure, not as a file.
    if guessed is None or encoding is not None or guessed.startswith(("message/", "multipart/")):
        return "application/octet-stream"
    return guessed
