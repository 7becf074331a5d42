"""Hide secrets in everything that goes to a network or a log (I6).

`names` tells which environment variables hold secrets; `redactor` replaces each, however it is written (JSON, HTML,
URL, hex, base64), with its name in brackets.
"""

from __future__ import annotations

from windlass.redact.redactor import Redactor

__all__ = ["Redactor"]
