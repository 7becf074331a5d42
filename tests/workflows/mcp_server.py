"""A small MCP server over stdio, made with the library: what the plans use as `mcp.desk.*`."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("desk")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def shout(text: str) -> str:
    """The same, louder."""
    return text.upper()


if __name__ == "__main__":
    server.run()
