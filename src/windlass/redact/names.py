"""Secrets in environment variables: by the variable's name, and the password inside an address or a connection string.

A variable is not a secret because it has a secret's name: `PWD` is a folder, `SSH_AUTH_SOCK` a socket, and a value that
is the path of an existing file says where a secret is, not the secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

__all__ = ["is_secret_name", "secrets_in"]

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
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)@")
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


def _parts(value: str) -> Iterator[str]:
    """Passwords inside an address (`scheme://user:password@host`) or a connection string (`Password=…;`)."""
    if (address := _ADDRESS.match(value)) is not None:
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
