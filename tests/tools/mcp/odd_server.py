"""An MCP server made with the library, over stdio or streamable HTTP: tools that work, and tools that are trouble.

    python odd_server.py                stdio
    python odd_server.py PORT           streamable HTTP on loopback

What it does beside its answers, it writes into files of its working directory.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, Resolve
from mcp_types import AudioContent, CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("odd")
PIXEL = b"\x89PNG\r\n\x1a\n not really"


def note(name: str, text: str = "") -> None:
    with Path(name).open("a") as file:
        file.write(f"{text}\n")


note("started", str(os.getpid()))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def work(steps: int, ctx: Context) -> str:
    """Tells how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}\x1b[31m\nof {steps}")
    return "done"


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def hang() -> str:
    """Never ends by itself."""
    note("hanging")
    try:
        await asyncio.Event().wait()
    except BaseException as error:
        note("cancelled", type(error).__name__)
        raise
    return "never"


@server.tool()
def die(code: int) -> str:
    """Ends the server."""
    print("these are my last words", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool(structured_output=False)
def flood(size: int) -> str:
    """Much text."""
    return "x" * size


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """The same again."""
    return text


@server.tool(structured_output=False)
def picture(times: int = 1) -> list[Any]:
    """A picture with a word about it."""
    data = base64.b64encode(PIXEL).decode()
    return [TextContent(text="here it is"), *[ImageContent(data=data, mime_type="image/png")] * times]


@server.tool(structured_output=False)
def sound(fails: bool) -> CallToolResult:
    """A sound without a word about it."""
    data = base64.b64encode(b"RIFF not really").decode()
    return CallToolResult(content=[AudioContent(data=data, mime_type="audio/wav")], is_error=fails)


@server.tool(structured_output=False)
def environment() -> str:
    """The names of the variables that it sees."""
    return " ".join(sorted(os.environ))


@server.tool(structured_output=False)
def refuse() -> str:
    """Fails, and says a secret."""
    raise ToolError(f"no, and the key is {os.environ.get('ODD_KEY', 'missing')} " + "!" * 5000)


def grown() -> str:
    """Came later."""
    return "grown"


@server.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    """Gets another tool."""
    server.add_tool(grown, structured_output=False)
    await ctx.notify_tools_changed()
    return "there is one more"


class Name(BaseModel):
    name: str


def _ask() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool(structured_output=False)
def who(answer: Annotated[ElicitationResult[Name], Resolve(_ask)]) -> str:
    """Asks a person first."""
    return f"the answer was {type(answer).__name__}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
