"""The engine as tools of an MCP client: Claude Code, OpenCode and others (I2).

- `tools` are the tools about executions, programs and single tools; `serve` makes a server of them,
  and `endpoint` is its HTTP endpoint.
- `call` is their common part: a call that starts an execution or looks at one, from its beginning to its answer, with
  the questions that it passes on to the person at the client; it follows an execution while it waits.
- `driving` chooses the driver of a new execution: this process, or one that outlives the client.
- `models` are the tools' answers; `look` fills them in; `answers` sends them, errors and progress, without secrets.

Importing this package does not import the `mcp` library; the server does, when it is made.
"""
