"""A small MCP server over stdio, made with the library: what the plans use as `mcp.desk.*`.

It is as ill as the file `mood` says, once: it ends before it acts or after, or answers with an internal error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations

T = TypeVar("T")
server = MCPServer("desk")
FOLDER = Path(os.environ["DESK"])
READS = ToolAnnotations(read_only_hint=True)


def in_some_mood(act: Callable[[], T]) -> T:
    mood = FOLDER / "mood"
    way = mood.read_text() if mood.exists() else ""
    mood.unlink(missing_ok=True)
    if way == "error":
        raise MCPError(-32603, "the desk is in disorder")
    if way == "ends before":
        os._exit(3)
    done = act()
    if way == "ends after":
        os._exit(3)
    return done


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return in_some_mood(lambda: a + b)


@server.tool(annotations=READS, structured_output=False)
def shout(text: str) -> str:
    """The same, louder."""
    return in_some_mood(text.upper)


@server.tool(structured_output=False)
def note(text: str) -> str:
    """Write a line into the book. It is there as often as it is asked for."""

    def write() -> str:
        with (FOLDER / "notes").open("a") as book:
            book.write(f"{text}\n")
        return "noted"

    return in_some_mood(write)


if __name__ == "__main__":
    (FOLDER / "pid").write_text(str(os.getpid()))
    server.run()
