"""Values in a prompt are marked as data, so that an agent does not take them for orders.

What a plan prints into a prompt from an earlier step (`{{ steps.log.output }}`) was made by a tool or another agent and
may hold anything. It is put between `<data from="…">` and `</data>`. What the user says (`inputs`) stands as it is.
"""

from __future__ import annotations

import html
import re

from windlass.plan.template import references

__all__ = ["mark_data"]

_PRINTED = re.compile(r"\{\{(?P<trim>[-+]?)(?P<expr>.*?)(?P<end>[-+]?)\}\}", re.DOTALL)
_OF_THE_USER = frozenset({"inputs", "execution", "index"})


def mark_data(prompt: str, *, items_of_user: bool) -> str:
    """The same template with every printed value marked that did not come from the user.

    `items_of_user`: the items of the step's `foreach` stand in the plan itself.
    """
    return _PRINTED.sub(lambda found: _marked(found, items_of_user), prompt)


def _marked(found: re.Match[str], items_of_user: bool) -> str:
    expr = found["expr"].strip()
    known = _OF_THE_USER | {"item"} if items_of_user else _OF_THE_USER
    roots = {reference.root for reference in references(expr, expression=True)}
    if roots <= known:
        return found[0]
    source = html.escape(" ".join(expr.split())).replace("\\", "\\\\")
    return f"{{{{{found['trim']} ({expr}) | as_data('{source}') {found['end']}}}}}"
