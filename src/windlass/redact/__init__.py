"""Hide secrets in everything that goes to a network or a log (I6).

`names` says which environment variables hold secrets, `spellings` how a secret may be written (JSON, HTML, URL, hex,
base64), and `redactor` replaces each with its name in brackets.
"""

from __future__ import annotations

from windlass.redact.redactor import Redactor

__all__ = ["Redactor"]
