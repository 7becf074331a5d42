"""The engine as tools of an MCP client: Claude Code, OpenCode and whoever else speaks the protocol (I2).

- `tools` are the tools about executions, `programs` those about programs and single tools; `serve` makes a server of
  them, for stdio and for HTTP.
- `attending` is what they share: a call that starts something or looks at it, from its beginning to its answer.
- `request` turns what a client asks for into a plan, and chooses its runtime (A6); `single` makes a plan of one use of
  a tool or one program, `toolbox` says what there is to know of a tool. The command line uses these two as well.
- `driving` says who drives what was started: this process, or one that outlives the client.
- `waiting` follows an execution while a call waits, `asking` passes its questions on to the person at the client.
- `models` is what tools answer with; `look` and `money` fill that in; `telling` says errors;
  `clean` blots out secrets.

Importing this package does not import the `mcp` library; the server does, when it is made.
"""
