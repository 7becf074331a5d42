"""Keep a conversation within a model's window (F1–F3). Pure: no I/O, no clock, no model; the runners call it.

- `tokens`: estimate the tokens of a text, corrected by the provider's own counts;
- `limits`: window, threshold, and the room of each part of a request;
- `messages`: a conversation as these rules see it, and the part of it to summarise;
- `pins`: facts that are carried verbatim: the task, the user's words, decisions, open problems, paths, identifiers;
- `summary`: the request to a summarising model, the check of its answer, key points without a model, and the message
  that takes the place of the older part.
"""
