"""Replace secrets in a text with their names: values of secret variables, what the caller adds, well-known keys.

Almost every text holds none, so the search is for plain substrings first, which costs little; a pattern is applied only
where one of them was found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from windlass.redact.names import SHORTEST, secrets_in
from windlass.redact.spellings import spellings

__all__ = ["Redactor"]


class _Kind(NamedTuple):
    """A well-known kind of key."""

    name: str
    hints: tuple[str, ...]
    """One of them is in every text that holds such a key, in lower case."""
    pattern: re.Pattern[str]
    """Its first group, if it has one, comes before the key and stays."""


def _kind(name: str, hints: str, pattern: str) -> _Kind:
    return _Kind(name, tuple(hints.split("|")), re.compile(pattern, re.DOTALL))


_ADDRESS = "token in an address"
_KINDS = (
    _kind("anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _kind("openai key", "sk-", r"sk-(?:proj-)?[A-Za-z0-9_-]{20,}"),
    _kind(
        "github token",
        "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    _kind("gitlab token", "glpat-", r"glpat-[A-Za-z0-9_-]{16,}"),
    _kind("aws key", "akia|asia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _kind("google key", "aiza", r"\bAIza[0-9A-Za-z_-]{30,}"),
    _kind("slack token", "xox", r"xox[abeprs]-[A-Za-z0-9-]{10,}"),
    _kind("slack webhook", "hooks.slack.com/", r"(hooks\.slack\.com/)(?:services|workflows)/[A-Za-z0-9/_-]{20,}"),
    _kind("npm token", "npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    _kind("stripe key", "k_live_", r"\b[rs]k_live_[A-Za-z0-9]{16,}"),
    _kind(_ADDRESS, "://", r"(://)[^/\s:@\"]{1,80}:[^/\s@\"]{3,}(?=@)"),
    _kind("bearer token", "bearer ", r"(?i)(bearer )[A-Za-z0-9._~+/-]{16,}=*"),
    _kind(
        "private key",
        "private key-----",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=\")|\Z)",
    ),
)


class Redactor:
    """Hides secrets. Make it once: it works out every spelling of what it looks for."""

    def __init__(self, env: Mapping[str, str] = os.environ, more: Mapping[str, str] | None = None) -> None:
        """`more` are secrets by name that no variable holds."""
        self._names: dict[str, str] = {}
        """The name of each spelling of each secret."""
        for name, value in (*secrets_in(env), *(more or {}).items()):
            if len(value) >= SHORTEST:
                for spelling in spellings(value):
                    self._names.setdefault(spelling, name)
        self._marks = {f"[{name}]" for name in self._names.values()}

    def text(self, text: str) -> str:
        """The text with each secret replaced by its name in brackets."""
        return self._hide(text, lambda _name: None)

    def found(self, text: str) -> tuple[str, ...]:
        """The names of the secrets that `text` would hide, each once, values of variables first."""
        names: dict[str, None] = {}
        self._hide(text, lambda name: names.setdefault(name))
        return tuple(names)

    def bytes(self, data: bytes) -> bytes:
        """The same for encoded text; bytes that are not UTF-8 stay as they are."""
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        clean = self.text(decoded)
        return data if clean is decoded or clean == decoded else clean.encode()

    def _hide(self, text: str, note: Callable[[str], None]) -> str:
        def mark(name: str) -> str:
            note(name)
            return f"[{name}]"

        if values := [value for value in self._names if value in text]:
            # The longest first: one secret may be the beginning of another.
            pattern = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
            text = re.sub(pattern, lambda match: mark(self._names[match[0]]), text)
        lower = text.lower()
        for kind in _KINDS:
            if any(hint in lower for hint in kind.hints):
                text = kind.pattern.sub(partial(self._key, kind, mark), text)
        return text

    def _key(self, kind: _Kind, mark: Callable[[str], str], match: re.Match[str]) -> str:
        before = match[1] if kind.pattern.groups else ""
        if match[0].removeprefix(before).partition(":")[2] in self._marks:
            return match[0]  # `://user:[NAME]@`: the password has been replaced by its own name already
        return before + mark(kind.name)
