"""Keep a conversation within a model's window (F1–F3). Pure: no I/O, no clock, no model; the runners call it.

- `tokens`: estimate the tokens of a text, corrected by the provider's own counts;
- `limits`: window, threshold, and the room of each part of a request;
- `messages`: a conversation as these rules see it, and the part of it to summarise;
- `pins`: facts that are carried verbatim: the task, the user's words, decisions, open problems, paths, identifiers;
- `summary`: the request to a summarising model, the check of its answer, key points without a model, and the message
  that takes the place of the older part.
"""

from windlass.context.limits import ContextLimits, ContextRule
from windlass.context.messages import ContextMessage, ContextUse, cut_point, shorten_middle
from windlass.context.pins import Pin, PinList
from windlass.context.summary import SummaryMessage, key_points, problem_of, replacement, summary_prompt
from windlass.context.tokens import TokenRate, estimate_tokens

__all__ = [
    "ContextLimits",
    "ContextMessage",
    "ContextRule",
    "ContextUse",
    "Pin",
    "PinList",
    "SummaryMessage",
    "TokenRate",
    "cut_point",
    "estimate_tokens",
    "key_points",
    "problem_of",
    "replacement",
    "shorten_middle",
    "summary_prompt",
]
