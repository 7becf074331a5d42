"""The runtime `open-code`: the real `opencode`, by whichever contract it speaks (A3, A7, A8).

`runner` is the port. `probe` finds the program and its contract; `server` keeps servers warm and `serve` does a turn on
one; `oneshot` is a process for each turn; `legacy` is the older program; `lines` and `reading` turn output and events
into calls of the host; `permissions` and `environment` limit an agent; `failures` turns errors into failures.
The engine's own tools are not offered to OpenCode: it has its own.
"""
