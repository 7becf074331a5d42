"""Exceptions of a client: troubles with a server, with a category and advice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.errors import Category, WindlassError

__all__ = ["ClientError", "Refused", "Unreachable", "refusal"]


class ClientError(WindlassError):
    """Base of what a client raises."""


class Unreachable(ClientError):
    """Nobody answers at the server's address, or the line is cut. What was asked may or may not have happened."""

    category = Category.TRANSIENT


class Refused(ClientError):
    """The server says no, and why."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        category: Category = Category.LOGIC,
        advice: Sequence[str] = (),
        where: str = "",
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        """The HTTP status, or the WebSocket's close code."""
        self.category = category
        self.where = where
        self.problem = dict(problem or {})
        """All that the server said: the problems of a plan one by one, the reasons against a resume."""


def refusal(status: int, body: bytes) -> Refused:
    """The exception for an error response."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        text = body[:200].decode(errors="replace").strip()
        return Refused(f"the server answered {status}: {text or 'nothing'}", status=status)
    told = str(problem.get("category", ""))
    return Refused(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        status=status,
        category=Category(told) if told in set(Category) else Category.LOGIC,
        advice=[str(line) for line in problem.get("advice") or ()],
        where=str(problem.get("where") or ""),
        problem=problem,
    )
