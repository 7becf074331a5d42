"""Agent steps: choose a runtime, brief it, reserve budget, run it, and settle.

- `tool` is the agent as a tool, `attempt` the whole path of one attempt, `deps` the parts that all of them share,
- `runtimes` finds the runtime and minds its breakers, `permits` its permissions, `reservation` its budget,
- `host` is the engine's side of the running agent, `agent_tools` lets it use the engine's own tools.
"""
