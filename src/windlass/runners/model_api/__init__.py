"""A model API called directly, with the engine's own tools in a loop (A4). What `runners/standalone.py` is made of:

- `target`: which model, where, with which key; pure, and told to the user before anything is called;
- `wire`: the only file that speaks with a model: one request, streamed;
- `conversation`: what was said so far, durable after every reply and every tool's result;
- `toolbox`: the tools' names as model APIs allow them, arguments in, results out, marked as data;
- `words`: text without half characters;
- `tally`: tokens and dollars of one run;
- `loop`: reply, tools, reply, … until the model is done or a limit is reached;
- `failures`: what an exception of the model clients means.

`pydantic_ai` takes 2.6 s to import, so every import of it stands inside a function.
"""
