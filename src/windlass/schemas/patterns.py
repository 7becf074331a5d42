r"""Regular expressions of JSON Schema and of `files.search`, matched by RE2 in a time that grows with the text alone.

A pattern may come from anywhere, and one `(a+)+$` keeps Python's `re` busy for years while it holds the interpreter.
RE2 has no such patterns, and therefore neither lookaround nor backreferences. Patterns are written as JavaScript has
them (ECMA 262, what JSON Schema asks for), which RE2 reads a little differently: so they are translated, and what
would mean something else there is refused. `\d`, `\w` and `\b` are ASCII, `\s` knows Unicode's spaces.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

__all__ = ["BadPattern", "Pattern", "line_pattern", "read_pattern"]

MOST_CHARACTERS = 1_000
MOST_INSTRUCTIONS = 100_000
"""Of RE2's program: the most that one character of a text can cost."""
STEPS_FOR_ONE = 4_000
"""Steps of RE2, one for each instruction and character at worst, that take as long as one rule of a schema."""
MOST_REPEATS = 1_000
"""RE2 refuses a larger number in `{…}`; such a repetition is written as several."""

_TOKEN = re.compile(
    r"""
      \\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})  # two halves of one character
    | \\(?:u\{(?P<code>[0-9a-fA-F]{1,6})\} | u(?P<four>[0-9a-fA-F]{4}) | x(?P<two>[0-9a-fA-F]{2}))
    | \\c(?P<control>[A-Za-z])
    | \\(?P<property>[pP]\{[^}]*\})
    | \\(?P<escape>.)
    | \{(?P<least>[0-9]{1,4})(?P<comma>,(?P<most>[0-9]{0,4}))?\}
    | (?P<group>\((?:\?:|\?<(?![=!])\w+>)?)
    | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACES = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_NO_SPACES = (
    r"\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_SETS = {"s": _SPACES, "S": _NO_SPACES, "d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W"}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_OPTIONS = ("log_errors", "never_nl", "literal", "case_sensitive")


class BadPattern(ValueError):
    """A pattern that is none, or that asks for what RE2 does not do."""


class Pattern:
    """A pattern that is ready for use."""

    def __init__(self, source: str, *, ignore_case: bool = False, literal: bool = False, lines: bool = False) -> None:
        import re2  # type: ignore[import-untyped]  # here, because few commands look for a pattern

        options = re2.Options()
        for name, value in zip(_OPTIONS, (False, lines, literal, not ignore_case), strict=True):
            setattr(options, name, value)
        try:
            self._compiled: Any = re2.compile(source, options)
        except (re2.error, UnicodeError) as error:
            raise BadPattern("it is not valid Unicode" if isinstance(error, UnicodeError) else _reason(error)) from None
        self.instructions: int = self._compiled.programsize
        if self.instructions > MOST_INSTRUCTIONS:
            raise BadPattern("its repetitions are too many; use maxLength or maxItems for lengths")

    def cost(self, text: str) -> int:
        """The most that looking for it in the text can cost, in rules of a schema."""
        return 1 + len(text) * self.instructions // STEPS_FOR_ONE

    def found_in(self, text: str) -> bool:
        """Tell if it fits anywhere in the text."""
        return self.span(text.encode("utf-8", "surrogatepass")) is not None

    def span(self, text: bytes, start: int = 0, end: int | None = None) -> tuple[int, int] | None:
        """The start and the end of the first match between the two places."""
        match = self._compiled.search(text, start, end)
        return match.span() if match else None


def _reason(error: Exception) -> str:
    said = error.args[0].decode(errors="replace")
    return f"{said} (a property has its short name here: \\p{{L}}, \\p{{Greek}})" if "\\p" in said.lower() else said


@lru_cache(maxsize=512)
def read_pattern(text: str) -> Pattern:
    """The pattern for whole texts, ready for use; `BadPattern` says why it is refused."""
    if len(text) > MOST_CHARACTERS:
        raise BadPattern(f"it is longer than {MOST_CHARACTERS} characters")
    return Pattern(_Translation(text).text)


def line_pattern(text: str, *, plain: bool, ignore_case: bool) -> Pattern:
    """A pattern that is looked for in each line of a text; `plain` takes it as it stands."""
    source = text if plain else f"(?m){_Translation(text).text}"
    return Pattern(source, ignore_case=ignore_case, literal=plain, lines=True)


class _Translation:
    """A pattern in RE2's words."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        open_groups: list[list[str]] = []
        parts: list[str] = []
        self._repeatable = False
        """The last part is one that a repetition may follow."""
        while self._at < len(pattern):
            token = self._next()
            plain = token["plain"]
            if token["group"]:
                open_groups.append(parts)
                parts, self._repeatable = [], False
            elif plain == ")":
                if not open_groups:
                    raise BadPattern("there is a `)` without its `(`")
                inner, parts = f"(?:{''.join(parts)})", open_groups.pop()
                self._add(parts, inner)
            elif token["least"] or plain in _REPEATS:
                if not self._repeatable:
                    raise BadPattern(f"there is nothing for `{token[0]}` to repeat")
                parts.append(self._repeated(parts.pop(), token))
                self._repeatable = False
            else:
                self._add(parts, *self._atom(token))
        if open_groups:
            raise BadPattern("there is a `(` without its `)`")
        self.text = "".join(parts)

    def _add(self, parts: list[str], text: str, repeatable: bool = True) -> None:
        parts.append(text)
        self._repeatable = repeatable

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self._pattern, self._at)
        if token is None:
            raise BadPattern("it ends too early")
        self._at = token.end()
        if token["group"] == "(" and self._pattern.startswith("?", self._at):
            raise BadPattern("lookahead, lookbehind and flags, `(?…`, are not supported")
        return token

    def _atom(self, token: re.Match[str]) -> tuple[str, bool]:
        plain, escape = token["plain"], token["escape"]
        if plain in ("^", "$", "|"):
            return plain, False
        if escape in ("b", "B"):
            return token[0], False
        if plain == "[":
            return self._set(), True
        if plain == ".":
            return r"[^\n\r\x{2028}\x{2029}]", True
        if plain == "{":
            raise BadPattern("`{` is not followed by `}` with one or two small numbers before it")
        inside = self._many(token)
        return (f"[{inside}]" if inside else _one(token)), True

    def _many(self, token: re.Match[str]) -> str | None:
        """A class of characters, as it is written between brackets; None for anything else."""
        if token["property"]:
            return "\\" + token["property"].replace("Script=", "").replace("sc=", "")
        return _SETS.get(token["escape"])

    def _set(self) -> str:
        head = "[^" if self._pattern.startswith("^", self._at) else "["
        self._at += len(head) - 1
        parts: list[str] = []
        while (token := self._next_inside())[0] != "]":
            many = self._many(token)
            first = many or _one(token, inside=True)
            if many or not re.match(r"-[^\]]", self._pattern[self._at :]):
                parts.append(first)
                continue
            self._at += 1
            token = self._next_inside()
            if self._many(token):
                raise BadPattern("a range of characters cannot end with a class")
            parts.append(f"{first}-{_one(token, inside=True)}")
        if not parts:
            raise BadPattern("there is nothing in `[]`")
        return f"{head}{''.join(parts)}]"

    def _next_inside(self) -> re.Match[str]:
        """The next character between brackets, where `(` and `{` are themselves."""
        token = _TOKEN.match(self._pattern, self._at)
        if token is None:
            raise BadPattern("there is a `[` without its `]`")
        if token["group"] or token["least"]:
            token = _TOKEN.match(self._pattern, self._at, self._at + 1)
            assert token is not None
        self._at = token.end()
        return token

    def _repeated(self, part: str, token: re.Match[str]) -> str:
        if token["least"]:
            least = int(token["least"])
            most = int(token["most"]) if token["most"] else None if token["comma"] else least
        else:
            least, most = _REPEATS[token[0]]
        if most is not None and most < least:
            raise BadPattern(f"`{token[0]}` has a minimum above its maximum")
        if self._pattern.startswith("?", self._at):
            self._at += 1  # as few as possible or as many: it is found or it is not
        more = f"{part}*" if most is None else _times(part, "0,", most - least)
        return f"(?:{_times(part, '', least)}{more})"


def _times(part: str, least: str, count: int) -> str:
    whole, rest = divmod(count, MOST_REPEATS)
    return f"{part}{{{least}{MOST_REPEATS}}}" * whole + (f"{part}{{{least}{rest}}}" if rest else "")


def _one(token: re.Match[str], inside: bool = False) -> str:
    """One character, by its number where it could mean something else."""
    char = token["plain"] or token["group"]
    if char == "\\":
        raise BadPattern("it ends with a `\\`")
    if char is None:
        code = _code(token, inside)
        return f"\\x{{{code:x}}}"
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"


def _code(token: re.Match[str], inside: bool) -> int:
    for name in ("code", "four", "two"):
        if token[name]:
            return int(token[name], 16)
    if token["high"]:
        return 0x10000 + ((int(token["high"], 16) - 0xD800) << 10) + int(token["low"], 16) - 0xDC00
    if token["control"]:
        return ord(token["control"]) % 32
    escape: str = token["escape"]
    if escape in _CONTROLS:
        return _CONTROLS[escape]
    if escape == "b" and inside:
        return 8
    if escape.isdigit() or escape == "k":
        raise BadPattern(f"`\\{escape}`: backreferences are not supported")
    if escape in "xu":
        raise BadPattern("`\\x` wants two digits, `\\u` four")
    if escape.isascii() and escape.isalnum():
        raise BadPattern(f"`\\{escape}` is not known")
    return ord(escape)
