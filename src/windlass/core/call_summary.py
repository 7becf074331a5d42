"""One line about a tool call, for progress displays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["call_summary"]

LONGEST = 120
_MAIN_ARGUMENTS = ("path", "line", "command", "file", "url", "pattern", "query", "name", "source")
"""Arguments that identify a call best, the best first."""


def call_summary(arguments: Mapping[str, Any]) -> str:
    for key in _MAIN_ARGUMENTS:
        if isinstance(value := arguments.get(key), str) and value:
            return _one_line(value)
    return _one_line(json.dumps(arguments, ensure_ascii=False, default=str)) if arguments else ""


def _one_line(text: str) -> str:
    line = " ".join(text[: LONGEST * 8].encode("utf-8", "replace").decode().split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
