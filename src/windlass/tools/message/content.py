"""The content of a message: no control characters, no unfilled template, no secret, not too large, and its attachments.

The look for secrets is against accidents: a log with a token in it, an agent that pastes its environment. It knows the
values of secret variables and the forms of well-known keys, as they are and in the usual wrappings (base64, percent and
HTML escapes, UTF-16). Somebody who hides a secret on purpose gets it past any such look; against that there are the
list of recipients and the person who is asked. Attachments are files of the working directory, and of nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import html
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from windlass.errors import Category, ToolError
from windlass.redact import Redactor
from windlass.tools.files.failures import Missing, explain, shown, unusable
from windlass.tools.files.look import regular
from windlass.tools.files.safe_path import Root, names_in

__all__ = ["Attachment", "Screen", "body_problems", "line_problems", "load", "too_large"]

_BREAKS_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line and paragraph separators, halves of characters."""
_BREAKS_A_BODY = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""The same, but for tabs and line breaks."""
_UNFILLED = re.compile(r"\{\{[^{}]{0,200}\}\}|\{%[^{}]{0,200}%\}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_PARTS = re.compile(r"[/?&=@:#;,]+")
_LONG_PART = 16


def line_problems(name: str, text: str, *, literal: bool = False) -> list[str]:
    """Everything wrong with a text of one line, as a header holds it."""
    if _BREAKS_A_LINE.search(text) is not None:
        return [f"{name}: has a line break or another control character in it; it must be one plain line"]
    return _unfilled(name, text, literal)


def body_problems(name: str, text: str, *, literal: bool = False) -> list[str]:
    if not text.strip():
        return [f"{name}: is empty"]
    if _BREAKS_A_BODY.search(text) is not None:
        return [f"{name}: has a control character in it; only tabs and line breaks may stand in a message"]
    return _unfilled(name, text, literal)


def _unfilled(name: str, text: str, literal: bool) -> list[str]:
    found = None if literal else _UNFILLED.search(text)
    if found is None:
        return []
    return [f"{name}: {found[0][:60]!r} is a template that was not filled in; with `literal: true` it is sent as it is"]


class Screen:
    """Looks through a message before it leaves."""

    def __init__(self, env: Mapping[str, str], secrets: Mapping[str, str], largest: int) -> None:
        """`secrets` by name, besides the variables whose names speak of them."""
        self.largest = largest
        more = dict(secrets)
        for name, value in secrets.items():
            # An address like slack://T0/B0/token: its long parts are secret one by one. A part with a dot is a host.
            for number, part in enumerate(_PARTS.split(value)):
                if len(part) >= _LONG_PART and "." not in part:
                    more[f"{name} (part {number})"] = part
        self._redactor = Redactor(env, more)

    def clean(self, text: str) -> str:
        """Text from the other side, without our secrets in it, for results and errors."""
        return self._redactor.text(text)

    def size(self, parts: Iterable[bytes]) -> None:
        total = sum(len(part) for part in parts)
        if total > self.largest:
            raise too_large(total, self.largest)

    def text(self, what: str, text: str) -> None:
        """Refuses what has a secret in it, saying which kind, never which."""
        for form in _unwrapped(text):
            if names := self._redactor.found(form):
                raise ToolError(
                    f"the {what} has a secret in it ({names[0]}): the message was not sent",
                    category=Category.PERMISSION,
                    advice=(f"take the secret out of the {what}", "if it was exposed, change it"),
                )

    def file(self, name: str, data: bytes) -> None:
        self.text("name of an attachment", name)
        # Without its NUL bytes, UTF-16 of plain characters is plain text.
        for form in {data, data.replace(b"\0", b"")}:
            self.text("attachment", form.decode("utf-8", "replace"))


def too_large(size: int, largest: int) -> ToolError:
    return ToolError(
        f"the message has {size} bytes or more, attachments included; {largest} are allowed",
        category=Category.LOGIC,
        advice=("send less, or a link", "raise messages.largest in your settings"),
    )


def _unwrapped(text: str) -> Iterator[str]:
    """Give the text, and the text with usual encodings (HTML, URL, base64) removed."""
    yield text
    for unwrap in (html.unescape, unquote):
        if (plain := unwrap(text)) != text:
            yield plain
    hidden = []
    for found in _BASE64.finditer(text):
        run = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            hidden.append(base64.b64decode(run + "=" * (-len(run) % 4)).decode("utf-8", "replace"))
        except binascii.Error:
            continue  # a word that only looks like it
    if hidden:
        yield "\n".join(hidden)


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
