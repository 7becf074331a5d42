"""Templates in a plan: Jinja2, sandboxed, strict about what is not there.

- `{{ steps.log.output.lines }}` standing alone keeps its type (a list stays a list); text around it makes text, and a
  space or a newline is text.
- `when` and `foreach` are expressions, with or without the braces.
- `compile_value` turns any argument structure into a `Compiled`, whose `render(scope)` is pure.
- Jinja2 itself is in `jinja`, imported for the first template that is more than a path.
- `references` lists what a template looks at, so that a plan is checked before anything runs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import Template

__all__ = [
    "Compiled",
    "Reference",
    "StepOutputs",
    "TemplateProblem",
    "as_text",
    "compile_expression",
    "compile_value",
    "never_list",
    "parse",
    "paths_in",
    "plain_path",
    "reference_of",
    "references",
    "syntax_problem",
]

# Most templates are a plain path. Jinja2 takes about 0.4 ms to compile one; a walk takes 1 µs.
_NAMES = r"([A-Za-z_][A-Za-z0-9_]*(?:\.(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+))*)"
_PATH = re.compile(rf"\s*{_NAMES}\s*\Z")
_SOLE_PATH = re.compile(rf"\{{\{{\s*{_NAMES}\s*\}}\}}\Z")
_RESERVED = frozenset({"true", "false", "none", "True", "False", "None", "not"})
_SOLE = re.compile(r"\A(?:\s*\{\{-|\{\{\+?)(?P<expr>(?:(?!\}\}|\{\{).)*?)(?:-\}\}\s*|\+?\}\})\Z", re.DOTALL)
# `{{ path }}` or `{{ path | filter }}` inside text. An opening brace before it would belong to it.
_PRINTED_PATH = re.compile(
    r"(?<!\{)\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*((?:\|\s*[a-z_]+\s*)*)\}\}"
)


class TemplateProblem(Exception):
    """A template that cannot be read, or that looks at something that is not there."""


class StepOutputs:
    """The `steps` of a scope that gives one step's output without making everything else that is known of the step.

    Jinja2 looks for a step of a name before any attribute, so that each can be reached.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        raise NotImplementedError

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Everything that templates see of the step. Raises KeyError."""
        raise NotImplementedError

    def _output(self, name: str) -> Any:
        """Output of the step of that name. Raises KeyError."""
        raise NotImplementedError


_UNSEEN = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*+"
"""White space and invisible characters, which a model ignores."""
_DATA_MARK = re.compile(rf"<(?={_UNSEEN}/?{_UNSEEN}data(?![\w-]))", re.IGNORECASE)


def as_data(value: Any, source: str) -> str:
    """Put a value between marks that it cannot close itself, as data in a prompt (see `marking`)."""
    body = _DATA_MARK.sub("&lt;", _printed_value(value))
    return f'<data from="{source}">\n{body}\n</data>'


def _quote(value: Any) -> str:
    return shlex.quote(_printed_value(value))


def _json(value: Any, indent: int | None = None) -> str:
    from windlass.plan.plain_value import plain_value

    return json.dumps(plain_value(value), ensure_ascii=False, indent=indent)


def _basename(value: Any) -> str:
    return _printed_value(value).rsplit("/", 1)[-1]


def _printed_value(value: Any) -> str:
    """Text for a value, as a template prints it. ValueError: it is no data, such as an object of Python."""
    from windlass.plan.plain_value import plain_value

    return str(value if isinstance(value, str) else as_text(plain_value(value)))


def as_text(value: Any) -> Any:
    """Format a value for use inside text: data as JSON, never in Python's notation."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


@cache
def _env() -> Environment:
    from windlass.plan.jinja import environment

    filters: dict[str, Callable[..., Any]] = {
        "quote": _quote,
        "json": _json,
        "tojson": _json,
        "basename": _basename,
        "as_data": as_data,
    }
    return environment(_printed_value, filters)


Render = Callable[[Mapping[str, Any]], Any]


class Compiled(NamedTuple):
    """An argument structure whose templates are ready to be filled in."""

    render: Render
    constant: bool
    """True where there is no template inside: `render` gives the same value always."""


class Reference(NamedTuple):
    """One thing a template looks at, like `steps.build.output` or `inputs.since`."""

    root: str
    name: str | None
    field: str | None


def compile_value(value: Any) -> Compiled:
    if isinstance(value, str):
        if "{" not in value:
            return Compiled(lambda _scope: value, True)
        if (path := _plain_path(_SOLE_PATH, value)) is not None:
            return Compiled(_path_walk(path), False)
        return _compile_text(value)
    if isinstance(value, dict):
        parts = [(key, *compile_value(inner)) for key, inner in value.items()]
        if any(not constant for _key, _render, constant in parts):
            return Compiled(lambda scope: {key: render(scope) for key, render, _ in parts}, False)
    elif isinstance(value, list | tuple):
        items = [compile_value(inner) for inner in value]
        if any(not item.constant for item in items):
            return Compiled(lambda scope: [item.render(scope) for item in items], False)
    return Compiled(lambda _scope: value, True)


@lru_cache(maxsize=512)
def _compile_text(text: str) -> Compiled:
    """Compile a text with a template in it; the caller handles plain paths."""
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return Compiled(lambda _scope: text, True)
    if sole := _SOLE.match(text):
        return Compiled(compile_expression(sole["expr"]), False)
    from windlass.plan.jinja import UNREADABLE

    try:
        template = _env().from_string(text)
    except UNREADABLE as error:
        raise _unreadable(error, text) from error
    return Compiled(lambda scope: _guarded(lambda: template.render(scope), text), False)


@lru_cache(maxsize=512)
def compile_expression(text: str) -> Render:
    """An expression that keeps the type of what it finds."""
    if (path := plain_path(text)) is not None:
        return _path_walk(path)
    from windlass.plan.jinja import UNREADABLE

    try:
        expression = _env().compile_expression(_bare(text), undefined_to_none=False)
    except UNREADABLE as error:
        raise _unreadable(error, text) from error
    return lambda scope: _guarded(lambda: expression(scope), text)


def _unreadable(error: Exception, text: str) -> TemplateProblem:
    reason = "it is nested too deep" if isinstance(error, RecursionError) else getattr(error, "message", error)
    return TemplateProblem(f"{reason} in {text!r}")


def _bare(text: str) -> str:
    return sole["expr"] if (sole := _SOLE.match(text.strip())) else text


def _plain_path(form: re.Pattern[str], text: str) -> list[str] | None:
    """`steps.a.output` as its parts, or None when it is more than a path."""
    found = form.match(text)
    if found is None:
        return None
    parts = found[1].split(".")
    return None if parts[0] in _RESERVED or parts == ["steps"] else parts  # all steps are no plain data


def _path_walk(parts: list[str]) -> Render:
    def render(scope: Mapping[str, Any]) -> Any:
        return _walk_from(scope, parts, 0)

    def render_output(scope: Mapping[str, Any]) -> Any:
        steps = scope.get("steps")
        if not isinstance(steps, StepOutputs):
            return render(scope)
        try:
            output = steps._output(name)
        except KeyError:
            return render(scope)
        return output if len(parts) == 3 else _walk_from(output, parts, 3)

    if parts[0] == "steps" and parts[2:3] == ["output"]:  # nearly all of them
        name = parts[1]
        return render_output
    return render


_SEQUENCES = (list, str)


def _walk_from(value: Any, parts: list[str], start: int) -> Any:
    for depth, key in enumerate(parts[start:], start):
        try:
            value = value[int(key) if type(value) in _SEQUENCES else key]
        except (KeyError, IndexError, TypeError, ValueError):
            known = ".".join(parts[:depth]) or "this template"
            raise TemplateProblem(f"{known} has no {key!r} in {'.'.join(parts)!r}") from None
    return value


def _guarded(render: Callable[[], Any], text: str) -> Any:
    from windlass.plan.jinja import UndefinedError
    from windlass.plan.plain_value import plain_value
    from windlass.plan.template_work import limited_work

    try:
        with limited_work():
            return plain_value(render())
    except UndefinedError as error:
        raise TemplateProblem(f"{error.message} in {text!r}") from error
    except Exception as error:  # a filter or operator may raise anything on data it does not fit
        raise TemplateProblem(f"{type(error).__name__}: {error} in {text!r}") from error


def syntax_problem(text: str, *, expression: bool = False) -> str | None:
    """Return the syntax error of a template, or None."""
    if _printed_paths(text, expression) is not None:
        return None
    try:
        if expression:
            compile_expression(text)
        else:
            _compile_text(text)
    except TemplateProblem as problem:
        return str(problem)
    return None


def references(text: str, *, expression: bool = False) -> set[Reference]:
    """Everything under `steps`, `inputs` and other roots that the template looks at."""
    return {reference_of(path) for path in paths_in(text, expression=expression)}


def paths_in(text: str, *, expression: bool = False) -> set[tuple[str, ...]]:
    """The same in full: `steps.a.output.stdout` as its four parts."""
    if (paths := _printed_paths(text, expression)) is not None:
        return set(map(tuple, paths))
    from windlass.plan.jinja import names_in

    return names_in(parse(text, expression=expression))


def parse(text: str, *, expression: bool) -> Template:
    """The tree of a template. Raises `TemplateProblem`."""
    from windlass.plan.jinja import UNREADABLE

    try:
        return _env().parse(_printed(text) if expression else text)
    except UNREADABLE as error:
        raise _unreadable(error, text) from error


def never_list(expression: str) -> bool:
    """Tell if an expression gives no list, whatever it finds: a number, a text, a mapping, a comparison."""
    from windlass.plan.jinja import is_scalar

    try:
        return is_scalar(parse(expression, expression=True))
    except TemplateProblem:
        return False


def plain_path(expression: str) -> list[str] | None:
    """The parts of an expression that is no more than a path."""
    return _plain_path(_PATH, _bare(expression))


def _printed(expression: str) -> str:
    return "{{ " + _bare(expression).strip() + " }}"


def _printed_paths(text: str, expression: bool) -> list[list[str]] | None:
    """The paths in a template of no more than `{{ path | filter }}`s, or None when there is more to it.

    Saves Jinja2's 0.2 ms for nearly every template of a large plan.
    """
    if expression:
        text = _printed(text)
        if not _PRINTED_PATH.fullmatch(text):
            return None
    rest = _PRINTED_PATH.sub(" ", text)
    if "{{" in rest or "{%" in rest or "{#" in rest:
        return None
    found = _PRINTED_PATH.findall(text)
    if not all(name in _env().filters for _, filters in found for name in filters.replace("|", " ").split()):
        return None
    paths = [path.split(".") for path, _ in found]
    return None if any(path[0] in _RESERVED for path in paths) else paths


def reference_of(path: Sequence[str]) -> Reference:
    root, *rest = path
    return Reference(root, rest[0] if rest else None, rest[1] if len(rest) > 1 else None)
