"""The key of a home: the server's token, which also signs what the server gives out: sessions and links.

It stands in a file that only its user can read, and nowhere else: not in an address, not in a log. A link answers one
question and nothing else: it is bound to the question's digest and ends with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import urlencode

from windlass.errors import NotPermitted, WindlassError
from windlass.regular import read_beginning

__all__ = ["HomeKey"]

_SHORTEST = 20


class HomeKey:
    def __init__(self, home: Path) -> None:
        """Read the key of the home, or make one."""
        self.file = home / "server.token"
        self.token = self._read() or self._make()

    def signature(self, purpose: str, text: str) -> str:
        return base64.urlsafe_b64encode(self._digest(purpose, text)).decode().rstrip("=")

    def approval_link(self, execution: str, step: str, digest: str, expires_at: float, sent_to: str = "") -> str:
        """A path that answers one question and nothing else. Answered, it is used up: the question is closed.

        `sent_to` names the person or place that it is given to; the answer is recorded with it.
        """
        told = {"execution": execution, "step": step, "digest": digest, "until": str(int(expires_at))}
        told |= {"to": sent_to} if sent_to else {}
        # In hex, for it stands in messages that are searched for secrets: nothing in it looks like one.
        return "/approve?" + urlencode({**told, "key": self._digest("approve", _joined(told)).hex()})

    def has_signed_link(self, execution: str, step: str, digest: str, until: str, key: str, sent_to: str = "") -> bool:
        told = {"execution": execution, "step": step, "digest": digest, "until": until}
        told |= {"to": sent_to} if sent_to else {}
        return hmac.compare_digest(key.encode(), self._digest("approve", _joined(told)).hex().encode())

    def _digest(self, purpose: str, text: str) -> bytes:
        key = hashlib.sha256(f"windlass {purpose}:{self.token}".encode()).digest()
        return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")

    def _read(self) -> str | None:
        try:
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WindlassError(f"{self.file} cannot be read: {error.strerror}") from error
        found, text = read_beginning(descriptor, 4096)
        mode, token = found.st_mode, text.decode("ascii", "replace").strip()
        if not stat.S_ISREG(mode):
            flaw = "is not a regular file"
        elif mode & 0o077:
            flaw = "can be read by others on this machine, so it is no longer secret"
        elif len(token) < _SHORTEST:
            flaw = "contains no token"
        else:
            return token
        remove = "rm -r" if stat.S_ISDIR(mode) else "rm"
        raise NotPermitted(f"{self.file} {flaw}", advice=(f"remove it, and a new one is made: {remove} {self.file}",))

    def _make(self) -> str:
        token = secrets.token_urlsafe(32)
        draft = self.file.with_name(f".server.token.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
        try:
            os.link(draft, self.file)  # unlike a rename, it never takes the place of one that somebody just made
        except FileExistsError:
            return self._read() or token
        finally:
            draft.unlink()
        return token


def _joined(told: dict[str, str]) -> str:
    """Join values unambiguously: no part can pass for the end of another."""
    return "".join(f"{len(value)}:{value}" for value in told.values())
