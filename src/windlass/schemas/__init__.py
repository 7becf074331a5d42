"""JSON Schema in plain words: what is wrong with a value, and whether a schema can be used for a tool's arguments.

Both a schema and a value may come from a model or from a repository that was just cloned, so nothing here trusts
either: no value is too deep or too large to be answered about, no pattern and no web of refs takes for ever
(`patterns.py`, `rules.py`), and nothing is ever fetched. Checked schemas are kept by their canonical text.

The validator is the `jsonschema` library with a bound on its work. jsonschema-rs supports all of draft 2020-12, but has
no bound: twelve levels of `anyOf` and `$ref` kept it busy for 32 seconds, and a call into it cannot be stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

from windlass.schemas.inspect import cleaned, faults
from windlass.schemas.rules import Exhausted, WorkBudget, library, validator_class, work_budget
from windlass.schemas.shape import NotPlain, Shape
from windlass.schemas.words import Part, in_words

__all__ = ["checker", "misfits", "unusable"]

MOST_COMPLAINTS = 20
LONGEST_COMPLAINT = 300
MOST_BYTES = 64 * 1024
MOST_LEVELS = 32
KEPT = 256
"""Schemas that are kept ready."""


class _Ready(NamedTuple):
    reasons: tuple[str, ...]
    """Reasons why it cannot be used."""
    validator: Any = None


def misfits(schema: Mapping[str, Any], value: Any, *, part: Part = "argument") -> list[str]:
    """Everything wrong with the value, at most 20 complaints; one that says so if the schema itself is at fault. Its
    parts are called arguments, or keys of data."""
    return _misfits(_ready(schema), value, part)


def checker(schema: Mapping[str, Any]) -> Callable[[Any], list[str]]:
    """`misfits` of that schema, as it is now: for many values, the schema is looked at once."""
    return partial(_misfits, _ready(schema))


def _misfits(ready: _Ready, value: Any, part: Part = "argument") -> list[str]:
    if ready.reasons:
        return _trimmed([f"its schema cannot be used: {ready.reasons[0]}"])
    try:
        shape = Shape(value)
        if not shape.exact:
            value = json.loads(json.dumps(value, default=dict))
            shape = Shape(value)
    except NotPlain as error:
        return _trimmed([f"the value cannot be checked: {error}"])
    token = work_budget.set(WorkBudget(shape))
    found: list[str] = []
    try:
        for wrong in ready.validator.iter_errors(value):
            found += islice(in_words(wrong, part), MOST_COMPLAINTS)
            if len(found) >= MOST_COMPLAINTS:
                break
    except (Exhausted, RecursionError):
        found.append("the rest of the value could not be checked: there is too much in it, or in its schema")
    finally:
        work_budget.reset(token)
    return _trimmed(found)


def unusable(schema: Any, *, of_arguments: bool = True) -> list[str]:
    """Reasons why the schema cannot be used; empty when it can. A schema of arguments must be one of an object."""
    ready = _ready(schema)
    if ready.reasons:
        return _trimmed(list(ready.reasons))
    if of_arguments and schema.get("type") != "object":
        return ['its `type` is not "object": arguments have names']
    return []


def _trimmed(sentences: list[str]) -> list[str]:
    kept = list(dict.fromkeys(sentences))[:MOST_COMPLAINTS]
    return [s if len(s) <= LONGEST_COMPLAINT else s[: LONGEST_COMPLAINT - 1] + "…" for s in kept]


def _ready(schema: Any) -> _Ready:
    if not isinstance(schema, Mapping):
        return _Ready((f"it is not a mapping but {type(schema).__name__}",))
    try:
        Shape(schema, MOST_LEVELS)
    except NotPlain as error:
        return _Ready((str(error),))
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"), default=dict)
    if len(text) > MOST_BYTES:
        return _Ready((f"it is larger than {MOST_BYTES // 1024} KiB",))
    try:
        return _prepared(text)
    except RecursionError:  # the caller's stack is nearly full: true now, and not to be kept
        return _Ready(("it is nested too deeply to be checked here",))


@lru_cache(maxsize=KEPT)
def _prepared(text: str) -> _Ready:
    schema = json.loads(text)
    if reasons := faults(schema):
        return _Ready(tuple(reasons))
    # A registry of its own: jsonschema's would fetch what a ref names.
    nothing = library("referencing.jsonschema").EMPTY_REGISTRY
    return _Ready((), validator_class()(cleaned(schema), registry=nothing))
