"""The terms of a tool's use: its own, overridden by the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from windlass.ports import Terms, Tool
from windlass.settings import ToolSettings

__all__ = ["PLAIN", "TermsOfUse"]

PLAIN = Terms()
"""Terms of a tool without any; always this very object."""


class TermsOfUse:
    def __init__(self, settings: Mapping[str, ToolSettings] | None = None) -> None:
        # The most exact word comes first: a whole name before a pattern, a longer pattern before a shorter one.
        said = sorted((settings or {}).items(), key=lambda item: ("*" not in item[0], len(item[0])), reverse=True)
        self._settings = said
        self._known: dict[str, tuple[Tool, Terms]] = {}

    def of(self, tool: Tool) -> Terms:
        known = self._known.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._known[tool.name] = (tool, self._merged(tool))
        return known[1]

    def enabled(self, name: str) -> bool:
        """True unless the settings disable the tool: the most exact pattern decides."""
        told = next((word for pattern, word in self._settings if fnmatchcase(name, pattern)), None)
        return told is None or told.enabled

    def _merged(self, tool: Tool) -> Terms:
        terms = tool.terms
        for pattern, told in reversed(self._settings):  # the most exact last, so that it stands
            if fnmatchcase(tool.name, pattern):
                terms = msgspec.structs.replace(
                    terms, **{n: v for n in Terms.__struct_fields__ if (v := getattr(told, n)) is not None}
                )
        return PLAIN if terms == PLAIN else terms
