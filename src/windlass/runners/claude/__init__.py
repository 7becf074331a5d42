"""What the Claude Code runner is made of: the binary, its command line and environment, the wire, the messages on it,
the money, and what an end means. `turn` puts them together; `runners/claude_code.py` is the port."""
