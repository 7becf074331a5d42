"""Estimate the tokens of a text, and correct the estimate by the counts that a provider reports (F1).

No provider's vocabulary is loaded: it would be tens of megabytes, and some are not public. A text is split as the
tokenizers of current models split it before they look anything up (a word with the one character before it, up to
three digits, a run of signs, line ends), and each piece counts the average of its kind and length. The averages were
measured with the vocabulary o200k_base; tests/context/samples has texts with their true counts.

A provider counts with a vocabulary of its own: `TokenRate` learns its ratio from the usage of each reply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windlass.context.chinese import WORDS

__all__ = ["TokenRate", "estimate_tokens"]

_PIECE = re.compile(
    r"(?P<han>[^\r\n\w]?[\u3400-\u9fff\uf900-\ufaff]+)"
    r"|(?P<syllables>[^\r\n\w]?[\u3040-\u30ff\uac00-\ud7af]+)"
    r"|(?P<cyrillic>[^\r\n\w]?[\u0400-\u04ff]+)"
    r"|(?P<word>[^\r\n\w]?_?[A-Z]*[a-z]+(?:'(?:s|t|re|ve|m|ll|d)\b)?)"
    r"|(?P<capitals>[^\r\n\w]?_?[A-Z]+)"
    r"|(?P<letters>[^\r\n\w]?[^\W\d_a-zA-Z\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|(?P<digits>[0-9]{1,3})"
    r"|(?P<signs> ?[!-/:-@\[-`{-~]+[\r\n/]*)"
    r"|(?P<lines>[^\S\r\n]*[\r\n]+)"
    r"|(?P<pictures> ?[\u2190-\u2bff\U0001f000-\U0001faff]+)"
    r"|(?P<space>\s+(?!\S)|\s+)"
    r"|(?P<joiners>[\u200d\ufe0f]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)

_AFTER_SPACE = (1.0, 1.0, 1.0, 1.0, 1.0, 1.01, 1.01, 1.05, 1.06, 1.12, 1.19, 1.19, 1.22, 1.3, 1.39, 1.4, 1.5, 1.7)
"""Tokens of a lower-case word with a space before it, by its length with that space."""
_AFTER_SIGN = (1.0, 1.0, 1.02, 1.05, 1.1, 1.12, 1.28, 1.33, 1.45, 1.55, 1.8, 1.9, 2.3, 2.5, 3.0, 3.2, 3.5, 3.7)
"""The same with one of `_COMMON` before it."""
_AFTER_RARE = (1.0, 1.0, 1.15, 1.3, 1.4, 1.5, 1.75, 1.85, 2.0, 2.1, 2.4, 2.5, 2.8, 2.9, 3.1, 3.3, 3.5, 3.7)
_COMMON = frozenset("._(-\"'$")
_ALONE = (1.0, 1.0, 1.01, 1.05, 1.06, 1.06, 1.1, 1.17, 1.29, 1.43, 1.5, 1.5, 1.7, 1.7, 2.0, 2.4, 2.8, 3.2)
_CAPITALS = (1.0, 1.0, 1.05, 1.2, 1.3, 1.4, 1.75, 1.77, 2.1, 2.3, 2.5, 2.7, 3.0, 3.3, 3.5, 3.7, 4.0, 4.2)
_SIGNS = (1.0, 1.0, 1.05, 1.18, 1.5, 1.9, 2.2, 2.4)
_LONG_WORD = 0.25
"""Tokens of each further letter of a word that is longer than the tables."""

SAMPLED = 64 * 1024
"""Characters above which a text is estimated by samples: the estimate of a log of 50 MB takes milliseconds."""
_SAMPLES, _SAMPLE = 16, 4096


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a model makes of the text."""
    if len(text) <= SAMPLED:
        return _round(_measure(text))
    step = (len(text) - _SAMPLE) // (_SAMPLES - 1)
    found = sum(_measure(text[place * step : place * step + _SAMPLE]) for place in range(_SAMPLES))
    return _round(found * len(text) / (_SAMPLES * _SAMPLE))


def _round(tokens: float) -> int:
    return int(tokens + 0.999)


def _measure(text: str) -> float:
    total = 0.0
    for match in _PIECE.finditer(text):
        start, end = match.span()
        size = end - start
        match match.lastgroup:
            case "word":
                first = text[start]
                if first == " ":
                    table = _AFTER_SPACE
                elif first.isalpha():
                    table = _ALONE
                else:
                    table = _AFTER_SIGN if first in _COMMON else _AFTER_RARE
                total += _of_length(table, size)
            case "capitals":
                total += _of_length(_CAPITALS, size)
            case "signs":
                total += _of_signs(text, start, end)
            case "han":
                total += _of_chinese(text[start:end])
            case "syllables" | "cyrillic" | "letters" as kind:
                total += max(1.0, size * _EACH[kind])
            case "pictures":
                total += sum(_ASTRAL if sign > "\uffff" else _SYMBOL for sign in text[start:end] if sign != " ")
            case "joiners":
                total += size * 0.7
            case "other":
                total += 1.1
            case _:
                total += 1.0
    return total


_EACH = {"syllables": 0.68, "cyrillic": 0.3, "letters": 0.6}
"""Tokens of each letter of other scripts."""
_ASTRAL, _SYMBOL = 1.9, 1.5


def _of_length(table: tuple[float, ...], size: int) -> float:
    last = len(table) - 1
    return table[size] if size <= last else table[last] + (size - last) * _LONG_WORD


def _of_chinese(text: str) -> float:
    words = place = 0
    rest = len(text)
    while place < len(text):
        for size in (4, 3, 2):
            if text[place : place + size] in WORDS and place + size <= len(text):
                words, rest, place = words + 1, rest - size, place + size
                break
        else:
            place += 1
    return max(1.0, words + rest * _HAN)


_HAN = 0.88
"""Tokens of a Chinese character that is in none of the words: it may be in a rarer one."""


def _of_signs(text: str, start: int, end: int) -> float:
    signs = text[start:end].strip()
    size = len(signs)
    if size < len(_SIGNS):
        return _SIGNS[size]
    # A ruler of one sign is one token for each 16 or more of them; a jumble is not.
    return 1.0 + size / 24 if len(set(signs)) <= 2 else size * 0.36


@dataclass(slots=True)
class TokenRate:
    """The ratio of a provider's own count to our estimate, learnt from each reply."""

    ratio: float = 1.0
    """1.0 until the first reply."""

    def count(self, estimate: int) -> int:
        """The tokens that the provider is going to count."""
        return _round(estimate * self.ratio)

    def learn(self, estimate: int, counted: int) -> None:
        """Take the provider's count of a request into account. A count that cannot be true is left out."""
        if estimate < LEAST_LEARNT:
            return
        ratio = counted / estimate
        if 1 / FARTHEST <= ratio <= FARTHEST:
            self.ratio = ratio


LEAST_LEARNT = 200
"""Tokens of a request below which the provider's own additions to it would spoil the ratio."""
FARTHEST = 4.0
"""The largest ratio that is believed: servers without a counter report 0, or 1."""
