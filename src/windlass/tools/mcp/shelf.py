"""The tools of each server, remembered on disk: to know them, nothing needs to be started.

One JSON file, each server's tools by the digest of its definition: after a change of it the server is asked again. Its
content passes the same checks as a server's answer. A file that is spoilt is as good as none.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from windlass.clock import Clock
from windlass.tools.mcp.described import Described, describe
from windlass.tools.mcp.servers import Unreadable, read_json

__all__ = ["ToolListCache"]

GOOD_FOR = 7 * 86400.0
"""Seconds after which a server is asked again what tools it has; every use of it asks, too."""
MOST_KEPT = 200
"""Servers that are remembered."""


class ToolListCache:
    def __init__(self, file: Path | None, clock: Clock) -> None:
        """Without a file, nothing is remembered."""
        self._file, self._clock = file, clock
        self._at_first: dict[str, Any] | None = None

    def tools(self, digest: str) -> list[Described] | None:
        """None when it is not known, or was found out too long ago."""
        if self._at_first is None:
            self._at_first = self._read()
        kept = self._at_first.get(digest)
        if not isinstance(kept, dict) or not isinstance(kept.get("tools"), list):
            return None
        seen = kept.get("seen")
        if not isinstance(seen, int | float) or not 0 <= self._clock.now() - seen < GOOD_FOR:
            return None
        return [found for raw in kept["tools"] if (found := describe(raw)[0]) is not None]

    def keep(self, digest: str, tools: list[Described]) -> str:
        """Empty, or why it could not be kept: then it is found out anew next time."""
        if self._file is None:
            return ""
        # Two processes may do this at once: then one of them finds out again what the other has found.
        kept = self._read()
        kept[digest] = {"seen": self._clock.now(), "tools": [tool.stored() for tool in tools]}
        newest = sorted(kept.items(), key=_seen, reverse=True)[:MOST_KEPT]
        try:
            _replace(self._file, json.dumps(dict(newest)))
        except OSError as error:
            return f"{self._file}: what tools it has cannot be remembered: {(error.strerror or 'unknown').lower()}"
        return ""

    def _read(self) -> dict[str, Any]:
        try:
            return (read_json(self._file) or {}) if self._file is not None else {}
        except Unreadable:
            return {}


def _seen(entry: tuple[str, Any]) -> float:
    seen = entry[1].get("seen") if isinstance(entry[1], dict) else None
    return float(seen) if isinstance(seen, int | float) else 0.0


def _replace(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # readable for its owner alone
    try:
        with open(fd, "w", encoding="utf-8") as new:
            new.write(text)
        os.replace(name, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
