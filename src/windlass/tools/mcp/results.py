"""The result of a server's tool as plain data: structured content if there is some, else its text.

Images, audio, blobs and texts that are too long become files among the step's artifacts; the result says where.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import os
import re
from typing import TYPE_CHECKING, Any

from windlass.errors import Category, Failure, ToolError
from windlass.ports import Call
from windlass.redact import Redactor
from windlass.schemas import misfits
from windlass.tools.mcp.described import Described, clean, shortened

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["value_of"]

MOST_TEXT = 1024 * 1024
"""Characters of a text that stand in the result itself."""
MOST_DATA = 4 * 1024 * 1024
"""Characters of structured content, written as JSON."""
MOST_FILES = 20
MOST_ERROR = 2_000


def value_of(result: CallToolResult, name: str, tool: Described, call: Call, redactor: Redactor) -> Any:
    """Raises ToolError if the tool says that it failed, or gave what it should not."""
    found = _ResultParts(name, call)
    for block in result.content:
        found.take(block)
    text = "\n".join(found.texts)
    if result.is_error:
        said = clean(text, MOST_ERROR) or "it says that it failed, and not why"
        raise ToolError(f"{name}: {redactor.text(said)}", category=Category.LOGIC)
    data = result.structured_content
    if data is None:
        return _worded(text, found)
    if _size(data) > MOST_DATA:
        message = f"{name} gave structured content of more than {MOST_DATA >> 20} MiB: ask it for less"
        raise ToolError.of(Failure(Category.RESOURCE, message, final=True))
    if tool.returns is not None and (wrong := misfits(tool.returns, data)):
        # It has done what it does: trying again would not make its answer fit.
        message = f"{name} gave something else than it says that it gives: {'; '.join(wrong[:3])}"
        raise ToolError.of(Failure(Category.LOGIC, message, final=True), output=data)
    for file in found.files:
        call.output("note", f"{name} left a file: {file['path']}\n")
    return data


def _size(data: Any) -> int:
    try:
        return len(json.dumps(data, allow_nan=False))
    except ValueError as error:
        message = "it gave a number that JSON does not know (not finite)"
        raise ToolError.of(Failure(Category.LOGIC, message, final=True)) from error


def _worded(text: str, found: _ResultParts) -> Any:
    if len(text) > MOST_TEXT:
        found.keep(text.encode("utf-8", "replace"), "text/plain")
        text = shortened(text, MOST_TEXT)
    return {"text": text, "files": found.files} if found.files else text


class _ResultParts:
    def __init__(self, name: str, call: Call) -> None:
        self.texts: list[str] = []
        self.files: list[dict[str, Any]] = []
        self._name, self._call = name, call

    def take(self, block: Any) -> None:
        match block.type:
            case "text":
                self.texts.append(block.text)
            case "image" | "audio":
                self._decode(block.data, block.mime_type)
            case "resource_link":
                self.texts.append(f"{clean(block.name, 200, lines=False)}: {block.uri}")
            case "resource" if hasattr(block.resource, "text"):
                self.texts.append(block.resource.text)
            case "resource":
                self._decode(block.resource.blob, block.resource.mime_type)

    def _decode(self, data: str, kind: str | None) -> None:
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.texts.append("(something that should have been base64 and is not)")
            return
        self.keep(content, kind or "application/octet-stream")

    def keep(self, content: bytes, kind: str) -> None:
        if len(self.files) >= MOST_FILES:
            return
        kind = clean(kind, 100, lines=False)
        folder = self._call.artifacts
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = self._name.replace(".", "-")
        ending = mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"
        ending = ending if re.fullmatch(r"\.[a-z0-9]{1,8}", ending) else ".bin"
        number = 1
        while True:
            path = folder / f"{stem}-{number}{ending}"
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileExistsError:  # of an earlier attempt, or of an earlier use in this step
                number += 1
        with open(fd, "wb") as file:
            file.write(content)
        self.files.append({"path": str(path), "mime_type": kind, "bytes": len(content)})
