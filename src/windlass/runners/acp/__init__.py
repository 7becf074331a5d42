"""Agents that speak the Agent Client Protocol (ACP): the runtimes `gemini`, `codex` and `acp` (A9).

`runner` has the methods of the port, and what is known of each agent; `turn` is one prompt in one process; `wire` is
JSON-RPC over its pipes; `updates` passes its notifications on; `questions` answers its requests for permission;
`failures` says what its errors mean. The messages are read as plain JSON, of which agents send more than the protocol
has; a library of its models would refuse those.
"""
