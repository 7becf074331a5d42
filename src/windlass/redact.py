"""Secrets do not leave: their values are blotted out of everything that goes to a network or a log (I6).

Known are the values of environment variables whose names speak of secrets, what the caller adds, and texts that have
the form of well-known keys. What is blotted out says which secret it was, not what it was.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping

__all__ = ["Redactor"]

_SPEAKS_OF_SECRETS = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|passw(?:or)?d|pwd|credentials?|auth)(?:$|_)")
_SHORTEST = 8
"""Shorter values are no secrets, and would blot out half of every text."""
_FORMS = {
    "anthropic key": r"sk-ant-[A-Za-z0-9_-]{16,}",
    "openai key": r"sk-(?:proj-)?[A-Za-z0-9_-]{20,}",
    "github token": r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    "gitlab token": r"glpat-[A-Za-z0-9_-]{16,}",
    "aws key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "google key": r"\bAIza[0-9A-Za-z_-]{30,}",
    "slack token": r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{30,}",
    "stripe key": r"\b[rs]k_live_[A-Za-z0-9]{16,}",
    "token in an address": r"(?<=://)[^/\s:@\"]{1,80}:[^/\s@\"]{3,}(?=@)",
    "bearer token": r"(?i)(?<=bearer )[A-Za-z0-9._~+/-]{16,}=*",
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=\")|\Z)",
}


class Redactor:
    """Blots out secrets. Make it once: it compiles what it looks for."""

    def __init__(self, env: Mapping[str, str] = os.environ, more: Mapping[str, str] | None = None) -> None:
        """`more` are secrets by name that no variable holds."""
        named = {name: value for name, value in env.items() if _SPEAKS_OF_SECRETS.search(name)}
        self._names: dict[str, str] = {}
        for name, value in {**named, **(more or {})}.items():
            if len(value) >= _SHORTEST:
                for form in _spellings(value):
                    self._names.setdefault(form, name)
        # The longest first: one secret may be the beginning of another.
        values = "|".join(re.escape(value) for value in sorted(self._names, key=len, reverse=True))
        forms = "|".join(f"(?P<f{number}>{pattern})" for number, pattern in enumerate(_FORMS.values()))
        self._pattern = re.compile(f"(?P<value>{values})|{_inline(forms)}" if values else _inline(forms), re.DOTALL)
        self._kinds = list(_FORMS)

    def text(self, text: str) -> str:
        return self._pattern.sub(self._blot, text)

    def bytes(self, data: bytes) -> bytes:
        """The same for encoded text; what is not UTF-8 stays as it is, but for its readable parts."""
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        clean = self.text(decoded)
        return data if clean is decoded or clean == decoded else clean.encode()

    def _blot(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        if groups.get("value") is not None:
            return f"[{self._names[groups['value']]}]"
        kind = next(number for number in range(len(self._kinds)) if groups[f"f{number}"] is not None)
        return f"[{self._kinds[kind]}]"


def _spellings(value: str) -> Iterable[str]:
    """A secret as it is, and as it stands inside JSON."""
    yield value
    for ascii_only in (True, False):
        inside = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        if inside != value:
            yield inside


def _inline(pattern: str) -> str:
    """`(?i)` may stand only at the beginning of a whole pattern: make it local to its own part."""
    return (
        re.sub(r"\(\?P<(f\d+)>\(\?i\)", r"(?P<\1>(?i:", pattern).replace("=*)", "=*))")
        if "(?i)" in pattern
        else pattern
    )
