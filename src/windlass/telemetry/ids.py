"""Ids of traces and spans, worked out from the execution: every process that drives it makes the same ones.

The trace has the execution's own id: a UUIDv7 has the 16 bytes of a trace id, the last seven of them random, as W3C
asks for.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from uuid import UUID

__all__ = ["attempt_span", "linked", "root_span", "span_id", "trace_id", "traceparent"]

SAMPLED = "01"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


def trace_id(execution: str) -> int:
    try:
        return UUID(execution).int
    except ValueError:  # an execution of a test or of a foreign journal
        return int.from_bytes(blake2b(execution.encode(), digest_size=16).digest()) or 1


def span_id(execution: str, *parts: str | int) -> int:
    """The id of the span that these parts name; the same parts always give the same id."""
    text = "\0".join((execution, *map(str, parts)))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) or 1


def root_span(execution: str) -> int:
    return span_id(execution, "execution")


def attempt_span(execution: str, step: str, attempt: int) -> int:
    return span_id(execution, "attempt", step, attempt)


def traceparent(execution: str, step: str, attempt: int) -> str:
    """The W3C header for children of an attempt."""
    return f"00-{trace_id(execution):032x}-{attempt_span(execution, step, attempt):016x}-{SAMPLED}"


def linked(text: str) -> tuple[int, int] | None:
    """The trace and span that a `traceparent` names; None if it is not a valid one."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    trace, span = int(found[1], 16), int(found[2], 16)
    return (trace, span) if trace and span else None
