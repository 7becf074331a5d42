"""Values of templates as plain data: the journal holds nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.plan.jinja import Undefined
from windlass.plan.schema import kind_of
from windlass.plan.storable import unique_keys
from windlass.plan.template import as_text
from windlass.plan.template_work import MOST_TEXT, counted, spend

__all__ = ["plain_value"]


def plain_value(value: Any) -> Any:
    """The value with lists in place of whatever else gives items, as `map` does. ValueError: it is no data."""
    match value:
        case Undefined():
            return str(value)  # raises
        case str():
            return _whole(value)
        case None | bool():
            return value
        case int() if str(value):  # raises for a number that is too long to be written
            return value
        case float() if math.isfinite(value):
            return value
        case Mapping():
            spend(len(value))
            return unique_keys([(str(as_text(plain_value(key))), plain_value(inner)) for key, inner in value.items()])
        case Iterable() if not isinstance(value, bytes):
            return [plain_value(inner) for inner in counted(value, 1)]
    raise ValueError(f"it gives {kind_of(value)}, which is not plain data")


def _whole(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise ValueError(f"it gives {len(text):,} characters of text; the limit is {MOST_TEXT:,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it gives text with half a character (a lone surrogate)") from None
    return text
