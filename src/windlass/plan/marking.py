"""Values in a prompt are marked as data, so that an agent does not take them for orders.

An earlier step's output that a plan prints into a prompt (`{{ steps.log.output }}`) was made by a tool or another agent
and may hold anything. It is put between `<data from="…">` and `</data>`. The user's own `inputs` are not marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from windlass.plan.template import TemplateProblem, references

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["mark_data", "shows_only_inputs", "unmarked"]

_OF_THE_USER = frozenset({"inputs", "execution", "index"})


@cache
def _lexer() -> Environment:
    """Jinja2, to take texts apart; imported for plans that print something into a prompt."""
    from jinja2 import Environment

    return Environment(keep_trailing_newline=True, autoescape=False)


def mark_data(prompt: str, *, items_of_user: bool) -> str:
    """The same template with every printed value marked that did not come from the user.

    `items_of_user`: the items of the step's `foreach` stand in the plan itself, or are an input.
    """
    if "{{" not in prompt:
        return prompt
    from jinja2 import TemplateSyntaxError

    known = _OF_THE_USER | {"item"} if items_of_user else _OF_THE_USER
    try:
        return "".join(_marked(prompt, known - _assigned(prompt)))
    except (TemplateSyntaxError, TemplateProblem, RecursionError):
        return prompt  # it cannot be read: whoever fills it in says so


def shows_only_inputs(expression: str) -> bool:
    """True for an expression whose value comes from the user alone."""
    try:
        return all(reference.root in _OF_THE_USER for reference in references(expression, expression=True))
    except (TemplateProblem, RecursionError):
        return False


def _assigned(prompt: str) -> set[str]:
    """Names that loops and the like give to something else."""
    if "{%" not in prompt:
        return set()
    from jinja2 import nodes

    return {name.name for name in _lexer().parse(prompt).find_all(nodes.Name) if name.ctx in ("store", "param")}


def _marked(prompt: str, known: frozenset[str]) -> Iterator[str]:
    """The template piece by piece, as its own grammar takes it apart: braces in quotes or in `raw` print nothing."""
    opening, printed = "", ""
    for _line, kind, text in _lexer().lex(prompt):
        if kind == "variable_begin":
            opening, printed = text, ""
        elif kind == "variable_end":
            yield opening + _as_data(printed, known) + text
            opening = printed = ""
        elif opening:
            printed += text
        else:
            yield text
    yield opening + printed  # what was never closed


def _as_data(printed: str, known: frozenset[str]) -> str:
    expr = printed.strip()
    roots = {reference.root for reference in references(expr, expression=True)}
    if roots <= known:
        return printed
    import html

    source = html.escape(" ".join(expr.split())).replace("\\", "\\\\")
    return f" ({expr}) | as_data('{source}') "


_MARK = re.compile(r"\(((?:(?!\) \| as_data\().)*)\) \| as_data\('[^']*'\) ?", re.DOTALL)


def unmarked(text: str) -> str:
    """Remove the marks from a template, for a message about it."""
    return _MARK.sub(r"\1 ", text)
