"""One tool of one MCP server; and `UnlistedTool`, one whose server was not asked for its tools yet.

A result is plain data: structured content if there is some, else its text. Images, audio, blobs and texts that are too
long become files among the step's artifacts; the result says where.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import mimetypes
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windlass.core.approval import changes
from windlass.errors import ApprovalOutdated, Category, Failure, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Health, Terms, Tool
from windlass.redact import Redactor
from windlass.schemas import misfits
from windlass.tools.mcp.described import Described, clean, shortened
from windlass.tools.mcp.line import McpLine

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

__all__ = ["McpTool", "UnlistedTool", "value_of"]

MOST_NOTES = 200
"""Reports of progress that are shown for one use."""
MOST_NOTE = 500
MOST_ROUNDS = 100
"""Times that a server may ask to be asked again."""
ROUND = 0.25
"""Seconds before it is asked again."""


class McpTool(Tool):
    def __init__(self, name: str, tool: Described, line: McpLine) -> None:
        self.name, self._tool, self._line = name, tool, line
        self.description, self.schema, self.returns = tool.description, tool.schema, tool.returns
        self.terms = Terms(timeout=line.server.told.timeout, sensitive=tool.sensitive)

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return self._tool.effect

    def circuit(self, arguments: Mapping[str, Any]) -> str:
        """A server that is down is down for all its tools."""
        return f"mcp.{self._line.server.name}"

    async def health(self) -> Health:
        try:
            return Health(True, f"speaks MCP {await self._line.check()}")
        except ToolError as error:
            return Health(False, str(error), next(iter(error.failure.advice), ""))

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if wrong := self.validate(arguments):
            raise ToolError(f"{self.name}: {'; '.join(wrong)}", category=Category.CONFIGURATION)
        progress = _Progress(call, self._line.redactor)
        given = dict(arguments)

        async def act(client: Client) -> CallToolResult:
            # A connected server has listed its tools anew: a person allowed the tool as it was described before.
            if call.approved is not None and self._line.described.get(self._tool.original) != self._tool:
                raise ApprovalOutdated(changes({f"tool {self.name}": "then"}, {f"tool {self.name}": "now"}))
            return await _called(client, self._tool.original, given, progress, call.env.get("TRACEPARENT"))

        result = await self._line.use(f"using {clean(self._tool.original, 80, lines=False)}", act, call.meter)
        return value_of(result, self.name, self._tool, call, self._line.redactor)


class _Progress:
    """A server's messages while it works, as notes."""

    def __init__(self, call: Call, redactor: Redactor) -> None:
        self._call, self._redactor, self._count = call, redactor, 0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._count += 1
        if self._count <= MOST_NOTES:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            words = self._redactor.text(clean(message or "", MOST_NOTE, lines=False))
            self._call.output("note", f"{share} {words}".rstrip() + "\n")


async def _called(
    client: Client, name: str, arguments: dict[str, Any], progress: _Progress, span: str | None
) -> CallToolResult:
    """As the library's `call_tool`, but results are checked by `results`: a stranger's schema must not hold us up.

    `span` is the attempt's, for a server that traces: MCP has a place for it.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, InputRequiredResult
    from pydantic import TypeAdapter

    either: TypeAdapter[Any] = TypeAdapter(CallToolResult | InputRequiredResult)
    state: str | None = None
    for _ in range(MOST_ROUNDS):
        meta: Any = {"traceparent": span} if span else None
        params = CallToolRequestParams(name=name, arguments=arguments, request_state=state, _meta=meta)
        request = CallToolRequest(params=params)
        found = await client.session.send_request(request, either, progress_callback=progress)
        if isinstance(found, CallToolResult):
            return found
        if found.input_requests:
            break
        state = found.request_state
        await asyncio.sleep(ROUND)
    raise ToolError(
        f"{clean(name, 80, lines=False)} does not answer without asking a person or a model something first, "
        "which is not passed on",
        category=Category.CONFIGURATION,
        advice=("give it what it asks for in its arguments, or use another tool",),
    )


class UnlistedTool(Tool):
    """Starts its server on its first use, and is then what that says it is."""

    description = "A tool of an MCP server that was not asked yet."
    schema: dict[str, Any] = {"type": "object"}
    terms = Terms(sensitive=True)  # nobody knows what it does

    def __init__(
        self,
        name: str,
        ensure: Callable[[Iterable[str]], Awaitable[None]],
        find: Callable[[str], Tool | None],
        failure: Callable[[str], Failure | None],
    ) -> None:
        """`failure` is why the server of that name did not tell its tools when it was last asked, if it did not."""
        self.name = name
        self._server = name.split(".")[1]
        self._ensure, self._find, self._failure = ensure, find, failure

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.ONCE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    def circuit(self, arguments: Mapping[str, Any]) -> str:
        return f"mcp.{self._server}"

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        await self._ensure([self.name])
        tool = self._find(self.name)
        if tool is None or isinstance(tool, UnlistedTool):
            # A failure to start may pass: its own category decides about retries and the breaker.
            raise ToolError.of(self._failure(self._server) or self._missing())
        if call.approved is not None:
            raise ApprovalOutdated([f"its server has said what the tool {self.name} is, which was not known before"])
        if wrong := tool.validate(arguments):
            raise ToolError(f"{self.name}: {'; '.join(wrong)}", category=Category.CONFIGURATION)
        return await tool.execute(arguments, call)

    def _missing(self) -> Failure:
        return Failure(
            Category.CONFIGURATION,
            f"MCP server {self._server} has no tool {self.name}",
            advice=(f"windlass tools lists what it has: mcp.{self._server}.*",),
        )


MOST_TEXT = 1024 * 1024
"""Characters of a text that stand in the result itself."""
MOST_DATA = 4 * 1024 * 1024
"""Characters of structured content, written as JSON."""
MOST_FILES = 20
MOST_ERROR = 2_000
_ENDINGS = {
    "image/webp": ".webp",
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/webm": ".weba",
    "text/markdown": ".md",
}
"""Endings that Python does not know on every machine."""


def value_of(result: CallToolResult, name: str, tool: Described, call: Call, redactor: Redactor) -> Any:
    """Raises ToolError if the tool says that it failed, or gave what it should not."""
    found = _ResultParts(name, call)
    for block in result.content:
        found.take(block)
    text = "\n".join(found.texts)
    if result.is_error:
        kept = ", ".join(file["path"] for file in found.files)
        said = clean(text, MOST_ERROR) or (f"it failed, and left {kept}" if kept else "it failed without a message")
        raise ToolError(f"{name}: {redactor.text(said)}", category=Category.LOGIC)
    data = result.structured_content
    if data is None:
        return _worded(text, found)
    if _size(data) > MOST_DATA:
        message = f"{name} gave structured content of more than {MOST_DATA >> 20} MiB: ask it for less"
        raise ToolError.of(Failure(Category.RESOURCE, message, final=True))
    if tool.returns is not None and (wrong := misfits(tool.returns, data, part="key")):
        # It has done what it does: trying again would not make its answer fit.
        message = f"{name} returned a result that does not match its schema: {'; '.join(wrong[:3])}"
        raise ToolError.of(Failure(Category.LOGIC, message, final=True), output=data)
    for file in found.files:
        call.output("note", f"{name} left a file: {file['path']}\n")
    if found.left_out:
        call.output("note", f"{name}: {_left_out(found)}\n")
    return data


def _left_out(found: _ResultParts) -> str:
    more = "1 further file was" if found.left_out == 1 else f"{found.left_out} further files were"
    return f"({more} left out: {MOST_FILES} of one use are kept)"


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
    if found.left_out:
        text = f"{text}\n{_left_out(found)}".lstrip("\n")
    return {"text": text, "files": found.files} if found.files else text


class _ResultParts:
    def __init__(self, name: str, call: Call) -> None:
        self.texts: list[str] = []
        self.files: list[dict[str, Any]] = []
        self.left_out = 0
        """Files beyond the most that are kept."""
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
            self.left_out += 1
            return
        kind = clean(kind, 100, lines=False)
        folder = self._call.artifacts
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = self._name.replace(".", "-")
        plain = kind.partition(";")[0].strip()
        ending = _ENDINGS.get(plain) or mimetypes.guess_extension(plain) or ".bin"
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
