"""The validator: jsonschema's, with a budget of work that every rule pays from: no schema and no value takes for ever.

A schema of a few lines can ask for 2^30 checks, and jsonschema prints the whole value into each of its messages. So a
rule pays for being asked, and pays the weight of the value for each complaint. The budget grows with the value.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Any

from windlass.errors import UsageError
from windlass.schemas.patterns import read_pattern
from windlass.schemas.shape import Shape

__all__ = ["Exhausted", "WorkBudget", "library", "validator_class", "work_budget"]

MOST_WORK = 1_000_000
"""Rules asked for one value, however large: a few seconds of work."""
NOTHING: dict[str, Any] = {"not": {}}
"""A schema that no value fits: stands for `false`, which jsonschema does not charge for."""


class Exhausted(Exception):
    """The budget of work is used up."""


class WorkBudget:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._left = min(30_000 + 50 * shape.total, MOST_WORK)

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise Exhausted


work_budget: ContextVar[WorkBudget] = ContextVar("work_budget")


def library(name: str = "jsonschema") -> Any:
    """jsonschema takes a tenth of a second to import: only who checks something pays for that."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            "checking arguments against a JSON Schema needs the `jsonschema` library, which is not installed",
            advice=("pip install 'windlass[code]'",),
        ) from error


@lru_cache(maxsize=1)
def validator_class() -> Any:
    base = library().Draft202012Validator
    own = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "required": _required,
        "dependentRequired": _dependent_required,
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
    }
    rules = {name: _paid(own.get(name, rule), prints=name not in own) for name, rule in base.VALIDATORS.items()}
    return library("jsonschema.validators").extend(base, rules)


def _paid(rule: Callable[..., Any], *, prints: bool) -> Callable[..., Any]:
    """A rule that pays. `prints`: its complaints have the whole value in their text."""

    def paid(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        mine = work_budget.get()
        mine.spend(1 + (len(value) // 8 if isinstance(value, (list, dict)) else 0))
        for error in rule(validator, value, instance, schema) or ():
            passed_on = isinstance(error.validator, str)
            mine.spend(mine.shape.weight(instance) if prints and not passed_on else 1)
            yield error

    return paid


def _error(message: str = "", path: tuple[str, ...] = ()) -> Any:
    return library().ValidationError(message, path=path)


def _found(pattern: str, text: str) -> bool:
    ready = read_pattern(pattern)
    work_budget.get().spend(ready.cost(text))
    return ready.found_in(text)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield _error()


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if _found(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if inner == NOTHING:
            yield _error(name)
        else:
            yield from validator.descend(value, inner, path=name)


def _required(validator: Any, names: list[str], instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for name in names:
            if name not in instance:
                yield _error(name)


def _dependent_required(validator: Any, needs: dict[str, list[str]], instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for name, others in needs.items():
            if name in instance:
                yield from _required(validator, others, instance, schema)


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        work_budget.get().spend(work_budget.get().shape.weight(instance))
        if len({json.dumps(_whole(part), sort_keys=True) for part in instance}) < len(instance):
            yield _error()


def _whole(value: Any) -> Any:
    """For JSON Schema, 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(part) for part in value]
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    return value


def _multiple_of(validator: Any, step: float, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, bool) or not isinstance(instance, (int, float)):
        return
    # As they are written: 19.99 is a multiple of 0.01, though not for a computer's fractions.
    if (Fraction(str(instance)) / Fraction(str(step))).denominator != 1:
        yield _error()
