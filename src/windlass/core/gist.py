"""A use of a tool in one line, for progress displays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["gist"]

LONGEST = 120
_TELLING = ("path", "line", "command", "file", "url", "pattern", "query", "name", "source")
"""Arguments that say most about a use, the most telling first."""


def gist(arguments: Mapping[str, Any]) -> str:
    for key in _TELLING:
        if isinstance(value := arguments.get(key), str) and value:
            return _one_line(value)
    return _one_line(json.dumps(arguments, ensure_ascii=False, default=str)) if arguments else ""


def _one_line(text: str) -> str:
    line = " ".join(text[: LONGEST * 8].encode("utf-8", "replace").decode().split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
