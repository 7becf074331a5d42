"""Comparisons with `steps.ID.status` in templates: words that are no status, and the ends of a step that `when` needs.

Jinja2's own tree is read, so this module is imported for templates that name a status or an error alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from jinja2 import nodes

from windlass.plan.jinja import chain
from windlass.plan.schema import nearest
from windlass.plan.template import parse

__all__ = ["STATUSES", "compared_statuses", "nearest_status", "needed_ends"]

_ENDS = frozenset(("completed", "failed", "skipped"))
STATUSES = ("completed", "failed", "skipped", "pending", "running", "waiting", "paused")
"""Every status of a step; the first three are those of one that has ended."""
_USUAL_WORDS = {
    **dict.fromkeys(("success", "successful", "succeeded", "done", "ok", "passed", "finished"), "completed"),
    **dict.fromkeys(("error", "errored", "failure"), "failed"),
}
"""Words of other tools for a status."""

Ends: TypeAlias = Mapping[str, frozenset[str]]
"""Steps, each with the statuses with which an expression can be true."""


def compared_statuses(text: str, *, expression: bool) -> Iterator[tuple[str, str]]:
    """Each step whose status a template compares with a text, and the text. Raises `TemplateProblem`."""
    for node in parse(text, expression=expression).find_all(nodes.Compare):
        for step, _operator, words in _status_comparisons(node):
            yield from ((step, word) for word in words)


def nearest_status(word: str) -> str | None:
    """The status that was probably meant."""
    return _USUAL_WORDS.get(word.lower()) or nearest(word.lower(), STATUSES)


def needed_ends(when: str) -> Ends:
    """The ends of other steps that a condition needs in any case. Raises `TemplateProblem`."""
    (printed,) = parse(when, expression=True).find_all(nodes.Output)
    return _needed(printed.nodes[0])


def _needed(node: nodes.Node) -> Ends:
    match node:
        case nodes.And():
            left, right = _needed(node.left), _needed(node.right)
            return {step: left.get(step, _ENDS) & right.get(step, _ENDS) for step in (*left, *right)}
        case nodes.Or():
            left, right = _needed(node.left), _needed(node.right)
            return {step: left[step] | right[step] for step in left if step in right}
        case nodes.Not(node=nodes.Test(node=inner, name="none")):
            return _of_error(inner)
        case nodes.Not(node=nodes.Compare() as inner):
            return {step: _ENDS - ends for step, ends in _compared(inner).items()}
        case nodes.Compare():
            return _compared(node) or _error_compared(node)
    return _of_error(node)


def _compared(node: nodes.Compare) -> Ends:
    """The ends that one comparison with a status allows; none for a chain of several."""
    found = list(_status_comparisons(node))
    if len(found) != 1 or len(node.ops) != 1:
        return {}
    ((step, operator, words),) = found
    return {step: _ENDS & words if operator in ("eq", "in") else _ENDS - words}


def _error_compared(node: nodes.Compare) -> Ends:
    """`steps.a.error != none`"""
    match node.ops:
        case [nodes.Operand(op="ne", expr=nodes.Const(value=None))]:
            return _of_error(node.expr)
    return {}


def _of_error(node: nodes.Node) -> Ends:
    """`steps.a.error`, which only a step that failed has."""
    match chain(node):
        case ("steps", step, "error", *_):
            return {step: frozenset(("failed",))}
    return {}


def _status_comparisons(node: nodes.Compare) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Each step whose status is compared with texts: its name, the operator, and the texts."""
    left: nodes.Node = node.expr
    for operand in node.ops:
        sides = ((left, operand.expr), (operand.expr, left))
        for status, other in sides if operand.op in ("eq", "ne") else sides[:1]:
            match chain(status):
                case ("steps", step, "status") if (words := _texts(other, operand.op)) is not None:
                    yield step, operand.op, words
        left = operand.expr


def _texts(node: nodes.Node, operator: str) -> frozenset[str] | None:
    """The text, or for `in` the list of texts, that a status is compared with; None for anything else."""
    match node:
        case nodes.Const(value=str(text)) if operator in ("eq", "ne"):
            return frozenset((text,))
        case nodes.List(items=items) | nodes.Tuple(items=items) if operator in ("in", "notin"):
            texts = [item.value for item in items if isinstance(item, nodes.Const) and isinstance(item.value, str)]
            return frozenset(texts) if len(texts) == len(items) else None
    return None
