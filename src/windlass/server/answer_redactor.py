"""Secrets are removed from everything that goes to a client, and so to the maker of its model (I6).

String by string, so that text that looks like the beginning of a key does not swallow the structure around it. A digest
still names the request as it really is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windlass.redact import Redactor
from windlass.settings.variables import with_mcp_variables

if TYPE_CHECKING:
    from windlass.settings import Settings

__all__ = ["AnswerRedactor"]


class AnswerRedactor:
    """Hides the secrets of the environment and, once the settings are known, those that they hold for MCP servers."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        """A `redactor` that is given knows all secrets."""
        self._knows_all = redactor is not None
        self._redactor = redactor or Redactor()
        self._known: Settings | None = None

    def know(self, settings: Settings) -> None:
        """Hide the secrets of these settings, too."""
        if not self._knows_all and settings is not self._known:
            self._known, self._redactor = settings, Redactor(with_mcp_variables(settings))

    def clean(self, value: Any) -> Any:
        """The value with every text in it cleaned."""
        match value:
            case str():
                return self._redactor.text(value)
            case list() | tuple():
                return [self.clean(one) for one in value]
            case dict():
                return {key: self.clean(one) for key, one in value.items()}
            case _:
                return value

    def hidden_in(self, value: Any) -> list[str]:
        """The names of the secrets that `clean` hides in it."""
        return list(self._redactor.found(json.dumps(value, ensure_ascii=False, default=str)))
