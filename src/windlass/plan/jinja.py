"""Jinja2 as templates use it: sandboxed, strict, and without anything that renders differently from time to time.

Importing it takes longer than most commands take, and most plans print plain paths alone, which `template` walks
itself: it imports this module for the first template that is more than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.exceptions import UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from windlass.plan.template import StepOutputs
from windlass.plan.template_work import bound, check_call, check_operator, count_filters, count_printed

__all__ = ["UNREADABLE", "Undefined", "UndefinedError", "chain", "environment", "is_scalar", "names_in"]

UNREADABLE = (TemplateSyntaxError, SyntaxError, RecursionError, ValueError, OverflowError, MemoryError)
"""Exceptions by which Jinja2, or Python beneath it, rejects a template."""


class _Environment(ImmutableSandboxedEnvironment):
    # `"x" * 10**10` in a template would take the engine's memory before any limit could act.
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        # `output.items` means the key "items" of the data, not a method of dict; `steps.__class__` is a step.
        if isinstance(obj, dict | StepOutputs) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        # `output.1` and `output[1]` mean the key "1" of a mapping: its keys are text.
        if type(argument) is int and isinstance(obj, dict) and str(argument) in obj:
            return obj[str(argument)]
        return super().getitem(obj, argument)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for kind in (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends):
            if (found := tree.find(kind)) is not None:
                raise TemplateSyntaxError("a template of a plan cannot take in a file", found.lineno)
        return tree

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        return super()._generate(bound(source), *args, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        return super().call(context, function, *check_call(function, args, named), **named)


def environment(as_text: Callable[[Any], str], filters: dict[str, Callable[..., Any]]) -> Environment:
    """The environment of all templates: `as_text` formats what they print, `filters` are those of plans."""

    @pass_context
    def finalize(_context: Any, value: Any) -> Any:
        if isinstance(value, Undefined):
            return value
        count_printed(value)
        return as_text(value)

    # Unoptimized, and with a finalizer that asks for a context, nothing is computed while a template is only
    # checked: `{{ "%999999999d" % 1 }}` would use up the memory of the checking process.
    env = _Environment(
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        finalize=finalize,
        optimized=False,
    )
    env.filters["from_json"] = json.loads
    for impure in ("random", "urlize", "xmlattr", "safe", "escape", "e", "forceescape"):
        # The same plan must always render the same; and filters for HTML have no place in arguments.
        env.filters.pop(impure, None)
    env.filters |= filters
    count_filters(env.filters)
    env.globals.clear()
    env.globals["range"] = lambda *args: list(range(*args)[:100_000])
    return env


def names_in(tree: nodes.Template) -> set[tuple[str, ...]]:
    """The paths that a template looks at, but for the names that it gives to something itself."""
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param")}
    assigned |= {macro.name for macro in tree.find_all(nodes.Macro)}
    return {path for path in _walk(tree) if path[0] not in assigned}


def is_scalar(tree: nodes.Template) -> bool:
    """Tell if the one thing that a template prints is a number, a text, true, false, null or a mapping."""
    kinds = (nodes.Const, nodes.Dict, nodes.Compare, nodes.Test, nodes.UnaryExpr, nodes.Concat)
    match tree.body:
        case [nodes.Output(nodes=[printed])]:
            return isinstance(printed, kinds)
    return False


def _walk(node: nodes.Node) -> Iterator[tuple[str, ...]]:
    path = chain(node)
    if path is not None:
        yield path
        return
    if isinstance(node, nodes.Name) and node.ctx == "load":
        yield (node.name,)
    for child in node.iter_child_nodes():
        yield from _walk(child)


def chain(node: nodes.Node) -> tuple[str, ...] | None:
    """`steps.a.output` and `steps["a"].output` as ("steps", "a", "output")."""
    path: list[str] = []
    while True:
        if isinstance(node, nodes.Getattr):
            path.append(node.attr)
            node = node.node
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            path.append(node.arg.value)
            node = node.node
        elif isinstance(node, nodes.Name) and node.ctx == "load" and path:
            return (node.name, *reversed(path))
        else:
            return None
