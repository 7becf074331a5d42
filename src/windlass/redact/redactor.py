"""Replace secrets in a text with their names: values of secret variables, what the caller adds, well-known keys.

Almost every text holds none. So one search for all of them at once comes first, by an engine that is made for it:
Rust's `regex`, which pydantic brings, takes 30 µs for 12 KB. Only a text in which it finds something is searched for
each secret.

Secrets in environment variables are found by the variable's name, and the password inside an address or a connection
string. A variable is not a secret because it has a secret's name: `PWD` is a folder, `SSH_AUTH_SOCK` a socket, and a
value that is the path of an existing file says where a secret is, not the secret.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote

__all__ = ["Redactor", "holds_secret", "is_secret_name", "secrets_in"]

SHORTEST = 8
"""Characters. Shorter values are not hidden: they would be found in half of all text."""
_WORD = re.compile(
    r"(?i)^(?:.*(?:password|passwd|passphrase|secret|token|apikey|credential|creds)s?"
    r"|keys?|pass|sshpass|pwd|pat|dsn|auth|oauth|jwt|bearer|cookies?|connstr)$"
)
"""One word of a name: NAME_WORD_NAME."""
_CONNECTION = re.compile(r"(?i)conn(?:ection)?_?str(?:ing)?(?:$|_)")
_NO_SECRET = re.compile(
    r"(?i)^(?:old)?pwd$|(?:^|_)public_?key$"
    r"|_(?:id|sock(?:et)?|file|filename|path|dir|home|name|user(?:name)?|host|port|url|uri|endpoint|type|method|mode"
    r"|algorithm|header|prefix|length|limit|size|count|budget|ttl|timeout|expiry|expires|enabled|disabled|provider)$"
)
"""Names that say something about a secret: where it is, how long, of which kind."""
_USER_IN_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)@")
_PAIR = re.compile(r"(?i)(?:^|[;\s])(?:password|pwd|accountkey|sharedaccesskey)\s*=\s*('[^']*'|\"[^\"]*\"|[^;\s]+)")
_KEY_IN_ADDRESS = re.compile(r"(?i)[?&](?:[a-z_-]*(?:password|token|secret|api_?key|sig(?:nature)?))=([^&#\s]+)")


def is_secret_name(name: str) -> bool:
    """Tell by its name whether a variable holds a secret."""
    if _NO_SECRET.search(name):
        return False
    return _CONNECTION.search(name) is not None or any(_WORD.match(word) for word in re.split(r"[_.\-]", name))


def secrets_in(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs of a name and a secret value; an address with a password is secret as a whole, and so is its password."""
    for name, value in env.items():
        parts = list(_parts(value))
        if parts or (is_secret_name(name) and not _is_existing_path(value)):
            yield name, value
            yield from ((name, part) for part in parts)
            # A key of many lines is printed, and journalled, line by line.
            lines = value.splitlines() if "\n" in value else ()
            yield from ((name, line) for line in lines if len(line) >= 2 * SHORTEST and not line.startswith("-----"))


def holds_secret(value: str) -> bool:
    """Tell whether an address or a connection string has a password or a key in it."""
    return any(_parts(value))


def _parts(value: str) -> Iterator[str]:
    """Passwords inside an address (`scheme://user:password@host`) or a connection string (`Password=…;`)."""
    if (address := _USER_IN_ADDRESS.match(value)) is not None:
        user, colon, password = address[1].partition(":")
        if colon:
            yield from {password, unquote(password)} - {""}
        elif len(user) >= 2 * SHORTEST:  # `https://KEY@host`, and not `ssh://git@host`
            yield user
    if "://" in value:
        for found in _KEY_IN_ADDRESS.finditer(value):
            yield from {found[1], unquote(found[1])}
    else:
        yield from (found[1].strip("'\"") for found in _PAIR.finditer(value))


def _is_existing_path(value: str) -> bool:
    if not value.startswith(("/", "~/")) or "\0" in value:
        return False
    try:
        return os.path.lexists(os.path.expanduser(value))
    except (OSError, ValueError):
        return False


class _Kind(NamedTuple):
    """A well-known kind of key."""

    name: str
    hints: tuple[str, ...]
    """One of them is in every text that holds such a key, in lower case."""
    pattern: re.Pattern[str]
    """Its first group, if it has one, comes before the key and stays."""


def _kind(name: str, hints: str, pattern: str) -> _Kind:
    return _Kind(name, tuple(hints.split("|")), re.compile(pattern, re.DOTALL))


LONGEST_SEARCHED = 32
"""Characters of a secret that are enough to suspect it: the last ones, as many secrets begin alike."""
MOST_SEARCHED = 500
"""Spellings of secrets that are searched for at once; with thousands, the engine falls back to a slow way."""
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
_AFTER_HINT = {"://": r"[^/\s:@\"]+:[^/\s@\"]+@", "sk-": "[A-Za-z0-9_-]{16}"}
"""Patterns that must follow hints which are common in texts without a key, in the first search."""


class Redactor:
    """Hides secrets. Make it once: it works out every spelling of what it looks for."""

    def __init__(self, env: Mapping[str, str] = os.environ, more: Mapping[str, str] | None = None) -> None:
        """`more` are secrets by name that no variable holds."""
        from pydantic_core import SchemaValidator
        from pydantic_core.core_schema import str_schema

        self._names: dict[str, str] = {}
        """The name of each spelling of each secret."""
        for name, value in (*secrets_in(env), *(more or {}).items()):
            if len(value) >= SHORTEST:
                for spelling in _spellings(value):
                    self._names.setdefault(spelling, name)
        self._marks = {f"[{name}]" for name in self._names.values()}
        hints = [_literal(hint) + _AFTER_HINT.get(hint, "") for kind in _KINDS for hint in kind.hints]
        # Half a character cannot be searched for, and no text that can be searched holds one.
        values = dict.fromkeys(_literal(value[-LONGEST_SEARCHED:]) for value in self._names if _is_whole(value))
        any_of_them = "|".join([f"(?i:{'|'.join(hints)})", *values])
        self._suspicious: Callable[[str], bool] = lambda _text: True
        if len(values) <= MOST_SEARCHED:
            self._suspicious = SchemaValidator(str_schema(strict=True, pattern=any_of_them)).isinstance_python

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
        if not self._suspicious(text) and _is_whole(text):
            return text

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


def _literal(text: str) -> str:
    """A pattern of Rust's `regex` that matches this text alone."""
    return re.sub(r"[^\w ]", lambda found: f"\\x{{{ord(found[0]):x}}}", text)


def _is_whole(text: str) -> bool:
    """Tell whether a text is free of half characters (surrogates), and so can be searched by Rust."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- the ways in which one secret may be written ---------------------------------------------------


def _spellings(value: str) -> Iterator[str]:
    """Every spelling: plain (the first), inside JSON, HTML and addresses, in hex and base64. Some may come twice."""
    in_json = [*_in_json(value), *_in_escaped_json(value)]
    # An output that is JSON itself stands in JSON once more when it leaves.
    for text in dict.fromkeys((value, *in_json, *(twice for once in in_json for twice in _in_json(once)))):
        yield text
        yield html.escape(text, quote=False)
        for double, single in _QUOTES_IN_HTML:
            yield html.escape(text).replace("&quot;", double).replace("&#x27;", single)
    raw = value.encode("utf-8", "surrogateescape")
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted
        yield _lower_escapes(quoted)
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64(raw)


_QUOTES_IN_HTML = (("&quot;", "&#x27;"), ("&quot;", "&#39;"), ("&#34;", "&#39;"), ("&quot;", "&apos;"))
"""Python and React; Lodash; Jinja and Go; XML."""
_ESCAPED_IN_JSON = (("<>&", "04x"), ("<>&'", "04x"), ("<>&'=", "04x"), ("<>&'+`", "04X"))
"""Signs that are written as `\\u0026` for JSON that may stand in a page: by Go, Flask, Gson, .NET."""


def _in_json(text: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]


def _in_escaped_json(text: str) -> Iterator[str]:
    for usual in _in_json(text):
        yield usual.replace("/", "\\/")  # PHP
        for signs, form in _ESCAPED_IN_JSON:
            yield usual.translate({ord(sign): f"\\u{ord(sign):{form}}" for sign in signs})


def _lower_escapes(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return first + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that the secret alone decides, with 0, 1 or 2 bytes of other text in its first group.

    `user:password` in a Basic header is a case of it: where the password begins depends on the user's name.
    """
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        mixed_end = -1 if (before + len(raw)) % 3 else None
        core = encoded[(0, 2, 3)[before] : mixed_end].decode()
        yield core
        yield core.translate({ord("+"): "-", ord("/"): "_"})
