"""Mail over SMTP, step by step, so that the meaning of a failure is known at each step.

Up to the last recipient nothing has been handed over, and any failure may be tried again. From DATA on only the
server's answer gives the outcome: without one, it is unknown. `compose` makes the bytes of a mail: headers that cannot
be broken out of, in 7 bits, so that any server can carry it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.errors import Category, ToolError
from windlass.ports import Meter
from windlass.tools.message.arguments import Email
from windlass.tools.message.content import Attachment
from windlass.tools.message.once import OutcomeUnknown
from windlass.tools.message.services import MailServer

if TYPE_CHECKING:
    from email.headerregistry import Address

    from aiosmtplib import SMTP, SMTPRecipientRefused

__all__ = ["compose", "configuration", "connected", "deliver", "envelope", "greeted"]

COMMAND = 15.0
"""Seconds that the server may take for an answer."""
TAKEOVER = 45.0
"""Seconds that it may take to confirm that it has the mail."""
FAREWELL = 3.0
LOOK = 5.0
"""Seconds for a look at how it is."""
_REASON = 500


class Taken(NamedTuple):
    code: int
    response: str


@asynccontextmanager
async def connected(server: MailServer, timeout: float | None = None) -> AsyncIterator[SMTP]:
    """A connection on which a mail can be sent: encrypted and logged in, as the settings say."""
    client = _client(server, timeout or COMMAND)
    from aiosmtplib import SMTPException

    try:
        try:
            await client.connect()
        except (SMTPException, OSError, ValueError) as error:
            raise before_data(error, server) from error
        yield client
        # It has all it needs: whether the farewell works says nothing about the mail.
        with suppress(SMTPException, OSError):
            await client.quit(timeout=FAREWELL)
    finally:
        client.close()


def _client(server: MailServer, timeout: float) -> SMTP:
    try:
        from aiosmtplib import SMTP
    except ImportError:
        raise ToolError(
            "mail needs the package aiosmtplib, which is not installed",
            category=Category.CONFIGURATION,
            advice=("pip install 'windlass[messages]'",),
        ) from None
    if server.security == "none" and server.user is not None and not server.local:
        raise configuration(
            f"{server} would get the password unencrypted", "set security to starttls or tls for this service"
        )
    return SMTP(
        hostname=server.host,
        port=server.port,
        username=server.user,
        password=server.password,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        tls_context=ssl.create_default_context() if server.security != "none" else None,
        local_hostname="localhost",  # the name of this machine is nobody's business
        timeout=timeout,
    )


async def envelope(client: SMTP, server: MailServer, sender: str, recipients: Sequence[str], size: int) -> Any:
    """Say who writes to whom. The recipients that the server would not take, if it took any."""
    from aiosmtplib import SMTPException, SMTPRecipientRefused

    refused: list[SMTPRecipientRefused] = []
    try:
        options = [f"SIZE={size}"] if client.supports_extension("size") else []
        await client.mail(sender, options=options)
        for recipient in recipients:
            try:
                await client.rcpt(recipient)
            except SMTPRecipientRefused as refusal:
                refused.append(refusal)
    except (SMTPException, OSError) as error:
        raise before_data(error, server) from error
    told = [_refusal(refusal) for refusal in refused]
    if len(refused) == len(recipients):
        raise of_recipients(told, server)
    return told


def _refusal(refused: SMTPRecipientRefused) -> dict[str, Any]:
    return {"recipient": refused.recipient, "code": refused.code, "reason": plain(refused.message)}


async def deliver(client: SMTP, server: MailServer, mail: bytes, meter: Meter) -> Taken:
    """Hand it over. A ToolError that is not `OutcomeUnknown` means that the server does not have it."""
    from aiosmtplib import SMTPDataError, SMTPException

    meter.add(sent=len(mail))  # the client does not tell what became of it, nor what is said around it
    try:
        answer = await client.data(mail, timeout=TAKEOVER)
    except SMTPDataError as refusal:
        if 400 <= refusal.code < 600:
            raise of_code(refusal.code, plain(refusal.message), "the mail", server) from refusal
        raise _unknown(server, f"it answered {refusal.code}") from refusal
    except (SMTPException, OSError) as error:
        raise _unknown(server, plain(str(error))) from error
    return Taken(answer.code, plain(answer.message))


async def greeted(server: MailServer) -> str:
    """The server's greeting, without logging in."""
    from aiosmtplib import SMTPException

    async with connected(server._replace(user=None, password=None), LOOK) as client:
        try:
            answer = await client.ehlo()
        except (SMTPException, OSError) as error:
            raise before_data(error, server) from error
    return plain(answer.message).partition("\n")[0]


def plain(text: str) -> str:
    """The server's words, as much as is worth keeping, as JSON can carry them."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in shown)[:_REASON]


def _unknown(server: MailServer, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection to {server} ended after the mail was handed over and before it was confirmed ({why}): it "
        "may or may not be delivered",
        "look for its Message-ID in the server's log, or ask a recipient",
    )


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
        f"{server} refused all recipients: {listed}{more}",
        category=next(category for category in order if category in found),
        advice=("correct the addresses, or ask the server's administrator",),
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
