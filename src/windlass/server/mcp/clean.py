"""Secrets are removed from everything that goes to a client, and so to the maker of its model (I6).

String by string, so that text that looks like the beginning of a key does not swallow the structure around it. A digest
still names the request as it really is.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from windlass.redact import Redactor

__all__ = ["clean", "cleaned", "hidden_in"]

M = TypeVar("M", bound=BaseModel)


@cache
def _redactor() -> Redactor:
    return Redactor()


def clean(value: Any) -> Any:
    """The value with every text in it cleaned."""
    match value:
        case str():
            return _redactor().text(value)
        case list() | tuple():
            return [clean(one) for one in value]
        case dict():
            return {key: clean(one) for key, one in value.items()}
        case _:
            return value


def hidden_in(value: Any) -> list[str]:
    """The names of the secrets that `clean` hides in it."""
    return list(_redactor().found(json.dumps(value, ensure_ascii=False, default=str)))


def cleaned(answer: M) -> M:
    return type(answer).model_validate(clean(answer.model_dump()))
