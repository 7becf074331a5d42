"""The runtime `claude-code`: the real `claude`, driven through the claude-agent-sdk (A2).

`runner` is the port. It is made of the binary, its command line and environment, the wire, the messages on it, the
spending and the failures; `turn` puts them together. The SDK is imported by the first run.
"""
