"""Mail over SMTP, step by step, so that it is known at each step what a failure means.

Up to the last recipient nothing has been handed over, and whatever fails may be tried again. From DATA on only the
server's answer says what came of it: without one, nobody knows.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.errors import Category, ToolError
from windlass.ports import Meter
from windlass.tools.message.once import OutcomeUnknown
from windlass.tools.message.services import MailServer
from windlass.tools.message.smtp_failures import before_data, configuration, of_code, of_recipients

if TYPE_CHECKING:
    from aiosmtplib import SMTP, SMTPRecipientRefused

__all__ = ["Taken", "connected", "deliver", "envelope", "greeted"]

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
    """What the server says of itself, without logging in."""
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
        f"the connection to {server} ended after the mail was handed over and before it was confirmed ({why}): nobody "
        "knows whether it will be delivered",
        "look for its Message-ID in the server's log, or ask a recipient",
    )
