"""The tools of MCP servers as tools of Windlass: `mcp.SERVER.TOOL`.

From the outside in: `servers` finds the servers that the user has named, `toolset.McpTools` is all their tools, `tool`
one of them, `line` keeps one server warm, `connection` is one conversation with it, `wire` carries it.
`described` and `tool` turn what strangers send into what is used here: bounded, cleaned, checked.

Nothing here decides whether a tool may be used, or when it is tried again: the gates and the engine do.
"""

from windlass.tools.mcp.servers import McpServer, find_servers
from windlass.tools.mcp.toolset import McpTools

__all__ = ["McpServer", "McpTools", "find_servers"]
