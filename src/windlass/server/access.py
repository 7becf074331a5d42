"""Access to a server: the token of a home, login codes that work once, sessions, and signed links for approvals.

The token is the home's key (`homes.key`). A login code is good once and for a short time; it gives the browser a
session, signed with the token, so that it survives a restart of the server and ends when the token is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Callable
from pathlib import Path

from windlass.homes.key import HomeKey

__all__ = ["CODE_LIFE", "SESSION_LIFE", "Access"]

CODE_LIFE = 600.0
"""Seconds that a login code can be used."""
SESSION_LIFE = 30 * 86400.0
"""Seconds that a browser stays logged in."""
SET_BACK = 3600.0
"""Seconds by which a clock may be set back without an end to what was given out before."""
_MOST_CODES = 100


class Access:
    """The keys of one home."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: dict[str, float] = {}
        """Hashes of login codes, with their ends."""
        self._key = HomeKey(home)

    @property
    def token(self) -> str:
        return self._key.token

    @property
    def file(self) -> Path:
        return self._key.file

    @property
    def cookie(self) -> str:
        """Name of the session's cookie. Browsers keep cookies by host, not by port: each home has a name of its own."""
        return f"windlass_session_{self._key.signature('cookie', '')[:12]}"

    def has_token(self, given: str) -> bool:
        """Compare with the token. Takes as long for one that is nearly right as for any other."""
        return hmac.compare_digest(given.encode(), self._key.token.encode())

    # -- logging in ------------------------------------------------------------------------------

    def login_code(self) -> str:
        """A code that lets somebody in once, within ten minutes."""
        now = self._now()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        while len(self._codes) >= _MOST_CODES:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(24)
        self._codes[_hash(code)] = now + CODE_LIFE
        return code

    def redeem(self, code: str) -> str | None:
        """A session for a code, which is used up by that; None for one that is not good (any more)."""
        until = self._codes.pop(_hash(code), 0.0)
        return (
            self._signed("session", f"{secrets.token_urlsafe(12)}.{int(self._now() + SESSION_LIFE)}")
            if 0.0 < until - self._now() <= CODE_LIFE + SET_BACK
            else None
        )

    def has_session(self, cookie: str) -> bool:
        told = self._verified("session", cookie)
        return told is not None and self._fresh(told.rpartition(".")[2], SESSION_LIFE)

    # -- links -----------------------------------------------------------------------------------

    def approval_link(self, execution: str, step: str, digest: str, expires_at: float) -> str:
        return self._key.approval_link(execution, step, digest, expires_at)

    def may_answer(self, execution: str, step: str, digest: str, until: str, key: str, sent_to: str = "") -> bool:
        return self._key.has_signed_link(execution, step, digest, until, key, sent_to) and self._fresh(until)

    # -- inside ----------------------------------------------------------------------------------

    def _fresh(self, until: str, longest: float = math.inf) -> bool:
        """Not over yet, and not of a clock that was ahead, which made it last for more than the `longest` seconds."""
        return until.isdigit() and len(until) < 12 and 0 < int(until) - self._now() <= longest + SET_BACK

    def _signed(self, purpose: str, text: str) -> str:
        return f"{text}.{self._key.signature(purpose, text)}"

    def _verified(self, purpose: str, signed: str) -> str | None:
        text, _, signature = signed.rpartition(".")
        good = hmac.compare_digest(signature.encode(), self._key.signature(purpose, text).encode())
        return text if good and text else None


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
