"""Values in a prompt are marked as data, so that an agent does not take them for orders.

An earlier step's output that a plan prints into a prompt (`{{ steps.log.output }}`) was made by a tool or another agent
and may hold anything. It is put between `<data from="…">` and `</data>`. The user's own `inputs` are not marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from windlass.plan.template import TemplateProblem, references

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["JoinedValue", "joined_value", "mark_data", "shows_only_inputs", "unmarked"]

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

    try:
        known = _known(prompt, items_of_user)
        return "".join(part.marked(known) for part in _parts(prompt))
    except (TemplateSyntaxError, TemplateProblem, RecursionError):
        return prompt  # it cannot be read: whoever fills it in says so


def shows_only_inputs(expression: str) -> bool:
    """True for an expression whose value comes from the user alone."""
    try:
        return all(reference.root in _OF_THE_USER for reference in references(expression, expression=True))
    except (TemplateProblem, RecursionError):
        return False


class JoinedValue(NamedTuple):
    """A value that is marked as data inside a word or a path."""

    template: str
    shown: str
    """The word as the agent sees it, with `…` in place of the value."""


# Letters of ASCII alone: some languages have no spaces between words.
_JOINED_BEFORE = re.compile(r"(?:[A-Za-z0-9_/-]|[A-Za-z0-9_]\.)\Z")
_JOINED_AFTER = re.compile(r"[A-Za-z0-9_/-]|\.[A-Za-z0-9_]")
_LAST_WORD = re.compile(r"\S{0,40}\Z")
_FIRST_WORD = re.compile(r"\S{0,40}")


def joined_value(prompt: str, *, items_of_user: bool) -> JoinedValue | None:
    """Find the first value that is marked as data and stands directly beside the letters of a word or a path."""
    if "{{" not in prompt:
        return None
    from jinja2 import TemplateSyntaxError

    try:
        known = _known(prompt, items_of_user)
        parts = list(_parts(prompt))
        marked = [at for at, part in enumerate(parts) if part.is_marked(known)]
    except (TemplateSyntaxError, TemplateProblem, RecursionError):
        return None  # the check of templates says so
    for at in marked:
        before = parts[at - 1].text if at and parts[at - 1].kind == "data" else ""
        after = parts[at + 1].text if parts[at + 1 : at + 2] and parts[at + 1].kind == "data" else ""
        if _JOINED_BEFORE.search(before) or _JOINED_AFTER.match(after):
            expression = " ".join(parts[at].text.split())
            start, end = _LAST_WORD.findall(before)[0], _FIRST_WORD.findall(after)[0]
            shown = f'{start}<data from="{expression}">…</data>{end}'
            return JoinedValue(f"{{{{ {expression} }}}}", shown)
    return None


def _known(prompt: str, items_of_user: bool) -> frozenset[str]:
    """Names in a prompt whose values come from the user."""
    known = _OF_THE_USER | {"item"} if items_of_user else _OF_THE_USER
    return known - _assigned(prompt)


def _assigned(prompt: str) -> set[str]:
    """Names that loops and the like give to something else."""
    if "{%" not in prompt:
        return set()
    from jinja2 import nodes

    return {name.name for name in _lexer().parse(prompt).find_all(nodes.Name) if name.ctx in ("store", "param")}


class _TemplatePart(NamedTuple):
    """A part of a template: a token of it, or a whole `{{ … }}`."""

    kind: str
    text: str
    opening: str = ""
    closing: str = ""

    def is_marked(self, known: frozenset[str]) -> bool:
        if self.kind != "value":
            return False
        return not {reference.root for reference in references(self.text.strip(), expression=True)} <= known

    def marked(self, known: frozenset[str]) -> str:
        text = _as_data(self.text.strip()) if self.is_marked(known) else self.text
        return self.opening + text + self.closing


def _parts(prompt: str) -> Iterator[_TemplatePart]:
    """The template piece by piece, as its own grammar takes it apart: braces in quotes or in `raw` print nothing."""
    opening, printed = "", ""
    for _line, kind, text in _lexer().lex(prompt):
        if kind == "variable_begin":
            opening, printed = text, ""
        elif kind == "variable_end":
            yield _TemplatePart("value", printed, opening, text)
            opening = printed = ""
        elif opening:
            printed += text
        else:
            yield _TemplatePart(kind, text)
    yield _TemplatePart("unclosed", opening + printed)


def _as_data(expr: str) -> str:
    import html

    source = html.escape(" ".join(expr.split())).replace("\\", "\\\\")
    return f" ({expr}) | as_data('{source}') "


_MARK = re.compile(r"\(((?:(?!\) \| as_data\().)*)\) \| as_data\('[^']*'\) ?", re.DOTALL)


def unmarked(text: str) -> str:
    """Remove the marks from a template, for a message about it."""
    return _MARK.sub(r"\1 ", text)
