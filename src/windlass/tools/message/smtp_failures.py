"""What a mail server's refusal means for trying again."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.message.services import MailServer

__all__ = ["before_data", "category_of", "configuration", "of_code", "of_recipients"]

_FORBIDDEN = {530, 534, 535, 538}
"""Authentication is required, is too weak, has failed, must be encrypted (RFC 4954)."""


def category_of(code: int, said: str = "") -> Category:
    if 400 <= code < 500:
        return Category.TRANSIENT
    # 5.7.x is the class of "not for security or policy reasons" (RFC 3463).
    return Category.PERMISSION if code in _FORBIDDEN or said.startswith("5.7.") else Category.LOGIC


def of_code(code: int, said: str, what: str, server: MailServer) -> ToolError:
    return ToolError(f"{server} refused {what}: {code} {said}", category=category_of(code, said))


def of_recipients(refused: Sequence[dict[str, Any]], server: MailServer) -> ToolError:
    """Nobody on the list was taken. If some may be taken later, later is worth a try."""
    found = {category_of(told["code"], told["reason"]) for told in refused}
    order = (Category.TRANSIENT, Category.PERMISSION, Category.LOGIC)
    listed = "; ".join(f"{told['recipient']}: {told['code']} {told['reason']}" for told in refused[:5])
    more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
    return ToolError(
        f"{server} takes mail for none of the recipients: {listed}{more}",
        category=next(category for category in order if category in found),
        advice=("correct the addresses, or ask who runs the server",),
        output={"accepted": [], "refused": list(refused)},
    )


def configuration(message: str, *advice: str) -> ToolError:
    return ToolError(message, category=Category.CONFIGURATION, advice=advice)


def before_data(error: Exception, server: MailServer) -> ToolError:
    """A failure while nothing has been handed over yet."""
    from aiosmtplib import SMTPAuthenticationError, SMTPException, SMTPResponseException, SMTPTimeoutError

    encryption = next((e for e in (error, error.__cause__) if isinstance(e, ssl.SSLError)), None)
    if encryption is not None:
        return configuration(
            f"no encrypted connection to {server}: {encryption.reason or encryption}",
            "check the host's name, its certificate, and whether `security` is starttls (port 587) or tls (port 465)",
        )
    match error:
        case SMTPAuthenticationError():
            message = f"{server} refused the login: {error.code} {_words(error.message)}"
            category = Category.TRANSIENT if 400 <= error.code < 500 else Category.PERMISSION
            return ToolError(message, category=category, advice=("check the variables of user_env and password_env",))
        case SMTPResponseException() if error.code < 200:
            return configuration(f"{server} does not speak SMTP", "check host, port and `security` of the service")
        case SMTPResponseException():
            return of_code(error.code, _words(error.message), "the mail", server)
        case SMTPTimeoutError():
            return ToolError(f"{server} does not answer", category=Category.TRANSIENT)
        case ConnectionError() | OSError():
            return ToolError(f"no connection to {server}: {_words(str(error))}", category=Category.TRANSIENT)
        case SMTPException():  # what the server cannot do: STARTTLS, a login
            return configuration(f"{server}: {_words(str(error))}", "check host, port and `security` of the service")
        case _:
            return configuration(f"{server}: {_words(str(error))}", "correct the service in your settings")


def _words(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text.encode("utf-8", "replace").decode())[:300]
