"""The runtime `cli`: Windlass's own loop on a model API, with the engine's own tools (A4). It needs no other program.

- `runner`: the port, and one run;
- `target`: the model, its address and its key; pure, and shown to the user before anything is called;
- `wire`: the only file that speaks with a model: one request, streamed, and its usage;
- `conversation`: the messages so far, durable after every reply and every tool's result;
- `window`: keeps the conversation within the model's window: counts, summarises, cuts;
- `loop`: reply, tools, reply, … until the model is done or a limit is reached;
- `failures`: exceptions of the model clients as failures.

`pydantic_ai` takes 2.6 s to import, so every import of it stands inside a function, and `prepare` begins it early.
"""
