"""How an agent step is performed: choose a runtime, brief it, set budget aside, run it, and settle.

- `tool` is the agent as a tool, `attempt` the whole path of one attempt, `desk` what all of them share,
- `choose` finds the runtime, `permits` says what it may do, `purse` minds the budget,
- `host` is the engine's side of the running agent, `hands` lets it use the engine's own tools.
"""
