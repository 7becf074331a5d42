"""Bounds of what a template computes: it fills in values on the event loop that carries all executions forward.

Each turn of a loop, call, filter and operator is counted with the size of what it works on, and a text that would be
too long is refused before it is made. `limited_work` counts one rendering; `bound` puts the counting into the tree of
a template, `count_filters` into the filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from string import Formatter
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext, Macro

__all__ = [
    "MOST_TEXT",
    "bound",
    "check_call",
    "check_operator",
    "count_filters",
    "count_printed",
    "counted",
    "limited_work",
    "spend",
]

MOST_TURNS = 1_000_000
"""Turns of all loops of one rendering; other work counts as so many turns as take about as long."""
MOST_TEXT = 64 << 20
"""Characters of a text, and items of a list, that a template may make."""
MOST_REPEATED = 8 << 20
"""The same for repetition and padding."""
MOST_WIDTH = 1_000_000
"""Characters to which one value is formatted, spaces of an indent, digits of a number."""
_TURN = 10
_USE = 20
"""Units of a filter, and of a method."""
_CALL = 200
"""Units of a macro, or of a loop that calls itself."""
_COSTLY = {"title": 200, "wordwrap": 1000, "wordcount": 100, "striptags": 100, "urlencode": 100} | dict.fromkeys(
    ("sort", "groupby", "unique", "dictsort", "pprint"), 2
)
"""Times that a filter works longer on each item, or character, than others."""

_PLAIN = frozenset({str, int, float, bool, list, dict, type(None)})

_left: ContextVar[list[int] | None] = ContextVar("windlass_template_work", default=None)


@contextmanager
def limited_work() -> Iterator[None]:
    """Count the work of one rendering within this; one inside another counts for that."""
    token = _left.set([MOST_TURNS * _TURN]) if _left.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _left.reset(token)


def spend(units: int) -> None:
    left = _left.get()
    if left is not None:
        left[0] -= units
        if left[0] < 0:
            raise SecurityError(
                f"it computes too long: a template may take {MOST_TURNS:,} turns of its loops, or do as much with"
                " filters, calls and large values"
            )


def count_printed(value: Any) -> None:
    """Count what a template prints: text alone comes to the most that it may give."""
    spend(_TURN + (len(value) // 10 if isinstance(value, str) else _size(value)))


def bound(tree: nodes.Template) -> nodes.Template:
    """The tree with its loops, lists and joined texts counted."""
    for loop in list(tree.find_all(nodes.For)):
        printed = sum(len(data.data) for part in loop.body for data in _within(part, nodes.TemplateData))
        loop.iter = _filter("_turns", loop.iter, nodes.Const(printed // 10))
    for joined in list(tree.find_all(nodes.Concat)):
        joined.nodes = [_filter("_joined", nodes.List(list(joined.nodes), lineno=joined.lineno))]
    for compared in list(tree.find_all(nodes.Compare)):
        compared.expr = _filled(compared.expr)
        for operand in compared.ops:
            operand.expr = _filled(operand.expr)
    for made in list(tree.find_all(nodes.List)):
        made.items = [_filled(item) for item in made.items]
    for group in list(tree.find_all(nodes.Tuple)):
        if group.ctx == "load":
            group.items = [_filled(item) for item in group.items]
    for pair in list(tree.find_all(nodes.Pair)):
        pair.value = _filled(pair.value)
    return tree


def _within(part: nodes.Node, kind: type[nodes.TemplateData]) -> Iterator[nodes.TemplateData]:
    if isinstance(part, kind):
        yield part
    yield from part.find_all(kind)


def _filled(item: nodes.Expr) -> nodes.Expr:
    """A value that goes into a list, or is compared, counted with all that is in it, unless it is plain."""
    return item if isinstance(item, nodes.Const) else _filter("_looked_at", item)


def _filter(name: str, value: Any, *args: nodes.Expr) -> Any:
    made = nodes.Filter(value, name, list(args), [], None, None)
    return made.set_lineno(value.lineno, override=True).set_environment(value.environment)


def _turns(items: Any, printed: int) -> Any:
    return counted(items, _TURN + printed)


def _joined(parts: list[Any]) -> str:
    texts = [part if isinstance(part, str) else str(_looked_at(part)) for part in parts]
    _check_length(sum(map(len, texts)))
    spend(_TURN + sum(map(len, texts)) // 100)
    return "".join(texts)


def _looked_at(value: Any) -> Any:
    """The value, counted with all that is in it: a list may have the same one many times."""
    if isinstance(value, str):
        spend(len(value) // 100)
    elif isinstance(value, list | tuple | dict):
        weight = _weight(value, {})
        if weight > MOST_TURNS * _TURN:
            raise SecurityError(f"a list may have {MOST_TURNS * _TURN:,} values, with all those in its lists")
    return value


def _weight(value: Any, known: dict[int, int]) -> int:
    """The number of values in a list or mapping, with those in its lists: each as often as it is in there."""
    if not isinstance(value, (list, tuple, dict)):
        return 1
    if (found := known.get(id(value))) is None:
        spend(len(value))
        inner = value.values() if isinstance(value, dict) else value
        lists = [one for one in inner if isinstance(one, (list, tuple, dict))]
        found = known[id(value)] = 1 + len(value) + sum([_weight(one, known) for one in lists])
    return found


def count_filters(filters: dict[str, Callable[..., Any]]) -> None:
    """Have each filter counted, and those that `bound` puts into trees at hand."""
    for name, function in filters.items():
        filters[name] = _counted_filter(name, function)
    filters |= {"_turns": _turns, "_joined": _joined, "_looked_at": _looked_at}


def _counted_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0
    costs, check = _COSTLY.get(name, 1), _FILTERS.get(name)

    @wraps(function)
    def filtered(*args: Any, **named: Any) -> Any:
        value = args[first]
        spend(_USE + _size(value) * costs)
        if type(value) not in _PLAIN and isinstance(value, Iterator):
            value = list(counted(value, 1)) if check is not None else counted(value, 1)
            args = (*args[:first], value, *args[first + 1 :])
        if check is not None:
            _foreseen(check, value, *args[first + 1 :], **named)
        return function(*args, **named)

    return filtered


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Count the work of an operator. Raises `SecurityError` for what would be too long."""
    if operator == "**":
        raise SecurityError("powers are not available in templates")
    spend(1 + _size(left) + _size(right))
    if operator == "*":
        for sized, count in ((left, right), (right, left)):
            if isinstance(count, int) and isinstance(sized, str | bytes | list | tuple):
                length = len(sized) if isinstance(sized, str | bytes) else _weight(sized, {})
                if length * count > MOST_REPEATED:
                    raise SecurityError("a template may not repeat text to more than 8 MiB")
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MOST_WIDTH:
            raise SecurityError("a number in a template may not be so long")
    elif operator == "+" and isinstance(left, str | bytes | list | tuple) and isinstance(right, type(left)):
        _check_length(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        _check_length(_percent(left, *(right if isinstance(right, tuple) else (right,))))


def check_call(function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Count a call, and check it if it is that of a method that makes long texts; returns the arguments to give."""
    own = isinstance(function, Macro | LoopContext)
    spend((_CALL if own else _USE) + sum(map(_size, args)) + sum(map(_size, named.values())))
    method = getattr(function, "__wrapped__", function)
    owner = getattr(method, "__self__", None)
    if not isinstance(owner, str | bytes | int):
        return args
    spend(_size(owner))
    args = tuple(list(counted(one, 1)) if isinstance(one, Iterator) else one for one in args)
    if (check := _METHODS.get(getattr(method, "__name__", ""))) is not None:
        _foreseen(check, owner, *args, **named)
    return args


def _foreseen(length: Callable[..., int], *args: Any, **named: Any) -> None:
    try:
        found = length(*args, **named)
    except (TypeError, ValueError, AttributeError):
        return  # what is asked for says itself what is wrong with its arguments
    _check_length(found)


def _check_length(length: int) -> None:
    if length > MOST_TEXT:
        raise SecurityError(f"a template may not make a text or a list of more than {MOST_TEXT:,} characters or items")


def counted(items: Any, units: int) -> Any:
    """The items, each counted with so many units."""
    if isinstance(items, str | bytes | Sequence | Mapping | Set):
        spend(len(items) * units)
        return items
    return _counted_one_by_one(items, units)


def _counted_one_by_one(items: Iterable[Any], units: int) -> Iterator[Any]:
    for item in items:
        spend(units)
        yield item


def _size(value: Any) -> int:
    """Units of work for one look at all of a value, without what is inside its items."""
    if isinstance(value, (str, bytes)):
        return len(value) // 100
    return len(value) if isinstance(value, (list, tuple, dict, set, frozenset)) else 0


# ── The length of what is made, from the arguments ───────────────────────────────────────────────────


def _padded(value: Any, width: int = 80, *_: Any) -> int:
    return width if width > MOST_REPEATED else 0


def _limited(count: int, most: int = MOST_WIDTH) -> int:
    return 0 if count <= most else MOST_TEXT + 1


def _replaced(text: Any, old: str, new: str, *_: Any) -> int:
    whole = str(text)
    return len(whole) + whole.count(str(old)) * len(str(new))


def _join(separator: Any, items: Any) -> int:
    return len(items) * len(separator) + sum(len(item) for item in items if isinstance(item, str | bytes))


def _join_filter(items: Any, d: Any = "", attribute: Any = None) -> int:
    return _join(str(d), [str(_looked_at(item)) for item in items] if attribute is None else list(items))


def _indented(text: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    return len(text) + (str(text).count("\n") + 1) * (width if isinstance(width, int) else len(width))


def _wrapped(text: Any, width: int = 79, break_long_words: Any = True, wrapstring: Any = None, *_: Any) -> int:
    return len(text) + len(text) * len(wrapstring or "\n") // max(1, width)


def _percent(text: str, *args: Any) -> int:
    """The most characters of `text % args`."""
    fields = re.findall(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?", text)
    return _formatted(text, [part for field in fields for part in field if part], len(fields), args)


def _format(text: str, *args: Any, **named: Any) -> int:
    """The most characters of `text.format(…)`."""
    specs = [spec or "" for _, name, spec, _ in Formatter().parse(text) if name is not None]
    widths = [part for spec in specs for part in ("*" if "{" in spec else "", *re.findall(r"\d+", spec)) if part]
    return _formatted(text, widths, len(specs), [*args, *named.values()])


def _formatted(text: str, widths: Sequence[str], fields: int, args: Iterable[Any]) -> int:
    given = [inner for one in args for inner in (one.values() if isinstance(one, dict) else (one,))]
    numbers = [int(width) for width in widths if width != "*"]
    if "*" in widths:
        numbers += [one for one in given if isinstance(one, int)]
    if any(number > MOST_WIDTH for number in numbers):
        raise SecurityError(f"a template may not format a value to more than {MOST_WIDTH:,} characters")
    longest = max([len(one if isinstance(one, str) else str(_looked_at(one))) for one in given], default=0)
    return len(text) + fields * (longest + max(numbers, default=0))


def _translated(text: str, table: Mapping[Any, Any]) -> int:
    return len(text) * max((len(one) for one in table.values() if isinstance(one, str)), default=1)


_METHODS: dict[str, Callable[..., int]] = {
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": lambda text, tabsize=8: len(text) + text.count("\t") * tabsize,
    "replace": _replaced,
    "join": _join,
    "format": _format,
    "format_map": lambda text, mapping: _format(text, mapping),
    "translate": _translated,
    "to_bytes": lambda _, length=1, *__, **___: _limited(length),
}
_FILTERS: dict[str, Callable[..., int]] = {
    "center": _padded,
    "indent": _indented,
    "wordwrap": _wrapped,
    "replace": lambda text, old, new, count=None: _replaced(text, old, new),
    "join": _join_filter,
    "format": lambda text, *args, **named: _percent(str(text), *args, named),
    "batch": lambda _, linecount, fill_with=None: _limited(linecount),
    "slice": lambda _, slices, fill_with=None: _limited(slices),
    "round": lambda _, precision=0, method="common": _limited(precision, 1000),
    "json": lambda _, indent=None: _limited(indent or 0, 100),
    "tojson": lambda _, indent=None: _limited(indent or 0, 100),
    "sum": lambda items, attribute=None, start=0: len(items) ** 2 if isinstance(start, list | tuple) else 0,
}
