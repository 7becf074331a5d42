"""The address of a PostgreSQL journal. Its password is shown nowhere: not in errors, lists, settings or tracebacks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from windlass.errors import UsageError
from windlass.homes.names import user_folder
from windlass.regular import read_regular

__all__ = ["PostgresUrl", "find_journal", "is_postgres"]

SCHEMES = ("postgresql://", "postgres://")
EXAMPLE = "postgresql://USER@HOST:5432/DATABASE"
_HOST = r"(\[[0-9a-fA-F:.%]+\]|[^:/@\[\],]*)(:\d+)?"
_HOSTS = re.compile(f"{_HOST}(,{_HOST})*")
_SECRET_KEYS = frozenset({"password", "sslpassword"})


def is_postgres(text: str) -> bool:
    """Tell whether a text is meant as the address of a PostgreSQL database."""
    return text.startswith(SCHEMES)


def find_journal(env: Mapping[str, str] = os.environ) -> PostgresUrl | None:
    """The PostgreSQL journal of the environment or of the user's settings; None means the home's own file.

    For commands that only look: those that load all settings find the same there.
    """
    given = env.get("WINDLASS_JOURNAL", "")
    if not given:
        try:
            text = read_regular(user_folder(env) / "config.toml").decode()
        except (OSError, UnicodeDecodeError, UsageError):
            return None
        if "journal" not in text:
            return None
        import tomllib  # most users have no such line

        try:
            found = tomllib.loads(text).get("journal", "")
        except tomllib.TOMLDecodeError:
            raise UsageError(
                "your config.toml cannot be read", advice=("see what is wrong: windlass doctor",)
            ) from None
        given = found if isinstance(found, str) else ""
    return PostgresUrl(given) if given else None


class PostgresUrl:
    """An address that prints itself without its password; `secret` is the whole of it."""

    __slots__ = ("_passwords", "secret", "shown")

    def __init__(self, text: str) -> None:
        if not is_postgres(text):
            raise UsageError(f"the journal is an address like {EXAMPLE}")
        try:
            parts = urlsplit(text)
            users, _, hosts = parts.netloc.rpartition("@")
            user, _, password = users.partition(":")
            asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise UsageError(
                "the address of the journal cannot be read",
                advice=(f"write it like {EXAMPLE}", "escape signs like @ : / # ? % in a password: %40 %3A %2F …"),
            ) from None
        if parts.fragment or "@" in user + parts.path or not _HOSTS.fullmatch(hosts):
            raise UsageError(
                "the address of the journal cannot be read: it has a sign that must be escaped",
                advice=("escape signs like @ : / # ? % in a password: %40 %3A %2F …",),
            )
        hidden = urlencode([(key, value) for key, value in asked if key not in _SECRET_KEYS], quote_via=quote)
        self.secret = text
        self.shown = f"postgresql://{user + '@' if user else ''}{hosts}{parts.path}{'?' + hidden if hidden else ''}"
        secrets = (unquote(password), *(value for key, value in asked if key in _SECRET_KEYS))
        self._passwords = tuple(found for found in secrets if found)

    def __repr__(self) -> str:
        return f"PostgresUrl({self.shown!r})"

    def __str__(self) -> str:
        return self.shown

    def hide(self, text: str) -> str:
        """Replace the password in a text of the driver or the server."""
        for password in self._passwords:
            text = text.replace(password, "…")
        return text
