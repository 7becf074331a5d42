"""The surfaces over the network: HTTP, WebSocket and MCP. They translate and decide nothing."""
