"""A mail as bytes: headers that cannot be broken out of, in 7 bits, so that any server can carry it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from windlass.tools.message.arguments import Email
from windlass.tools.message.content import Attachment

if TYPE_CHECKING:
    from email.headerregistry import Address

__all__ = ["compose"]

_SHORT = 65
"""Characters that fit in one line, with the name of the header."""


def compose(given: Email, sender: Address, message_id: str, at: float, attached: Sequence[Attachment]) -> bytes:
    """Put the whole mail together. Blind copies are named to the server only."""
    from email.message import EmailMessage
    from email.policy import SMTP
    from email.utils import format_datetime

    mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    mail["From"] = sender
    for header, addresses in (("To", given.to), ("Cc", given.cc)):
        if addresses:
            mail[header] = ", ".join(addresses)
    mail["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
    mail["Message-ID"] = message_id
    mail["Auto-Submitted"] = "auto-generated"  # so that nobody's holiday notice answers it (RFC 3834)
    if given.text is not None:
        mail.set_content(given.text)
        if given.html is not None:
            mail.add_alternative(given.html, subtype="html")
    elif given.html is not None:
        mail.set_content(given.html, subtype="html")
    for file in attached:
        main, _, sub = file.mime.partition("/")
        mail.add_attachment(file.data, maintype=main, subtype=sub, filename=file.name)
    return _subject(given.subject) + mail.as_bytes()


def _subject(text: str) -> bytes:
    """The header, made by hand: an EmailMessage reads encoded words in what it is given, and a line break that is
    hidden in one would end the header. Here they are text like any other."""
    from email.header import Header

    plain = text.isascii() and "=?" not in text and len(text) <= _SHORT
    encoded = text if plain else Header(text, "utf-8", header_name="Subject").encode(linesep="\r\n")
    return f"Subject: {encoded}\r\n".encode("ascii")
