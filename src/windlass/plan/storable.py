"""Values in a plan that was built in Python and that JSON cannot hold: the journal could not keep them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.errors import Problem
from windlass.plan.model import Plan
from windlass.plan.schema import kind_of
from windlass.values import CheckedValue

__all__ = ["unique_keys", "unstorable_values"]

DEEPEST = 100
"""Nested lists and mappings of a value."""
MOST_BITS = 14_000
"""Bits of a whole number: beyond some 4,300 digits, no reader of JSON takes it."""


def unstorable_values(plan: Plan) -> list[Problem]:
    """The problems of values that cannot be stored."""
    found = [*_unstorable(plan.inputs, "inputs"), *_unstorable(plan.env, "env")]
    problems = [Problem(f"`{where}`: {said}", where=where) for where, said in found]
    for index, step in enumerate(plan.steps):
        for where, said in _unstorable(step, ""):
            key = where.removeprefix(".")
            problems.append(Problem(f"step {step.id}: `{key}`: {said}", where=f"steps[{index}].{key}"))
    return problems


def _unstorable(value: Any, where: str, around: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """The places in a value that JSON cannot hold, each with the reason. `around` are the ids of what holds it."""
    if id(value) in around:
        yield where, "a list or mapping that holds itself cannot be stored as JSON"
    elif isinstance(value, CheckedValue | Mapping | list | tuple):
        if len(around) >= DEEPEST:
            yield where, f"nested deeper than {DEEPEST} levels"
            return
        if isinstance(value, Mapping):
            yield from ((where, f"the key {key!r:.80} is not text") for key in value if not isinstance(key, str))
        for place, inner in _parts(value):
            yield from _unstorable(inner, where + place, (*around, id(value)))
    elif not _is_storable(value):
        yield where, f"{kind_of(value)} cannot be stored as JSON"


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of the pairs, as a hook of `json.loads`. ValueError: a key stands twice, as for 1 and "1"."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"two keys of a mapping are the same as text: {twice!r:.80}")
    return found


def _parts(value: CheckedValue | Mapping[str, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The values inside one, each with its place."""
    if isinstance(value, CheckedValue):
        given = [name for name in value.model_fields if name in value.model_fields_set]
        yield from ((f".{name.rstrip('_')}", getattr(value, name)) for name in given)
    elif isinstance(value, Mapping):
        yield from ((f".{key}", inner) for key, inner in value.items())
    else:
        yield from ((f"[{index}]", inner) for index, inner in enumerate(value))


def _is_storable(value: Any) -> bool:
    if value is None or isinstance(value, bool | float):
        return True
    if isinstance(value, int):
        return value.bit_length() <= MOST_BITS
    try:
        if isinstance(value, str):
            value.encode()
        else:
            from pydantic_core import to_json  # writes dates and the like as text

            to_json(value)
    except ValueError:
        return False
    return True
