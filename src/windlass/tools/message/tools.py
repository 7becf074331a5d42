"""The message tools: each from its arguments to the record of its outcome; and their health, found without sending."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from windlass.clock import SystemClock
from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Health, Terms, Tool
from windlass.settings import MessageSettings
from windlass.tools.functional import FunctionalTool
from windlass.tools.message import chat, smtp, webhook
from windlass.tools.message.arguments import Email, EmailSent, Send, Sent, Webhook, WebhookSent
from windlass.tools.message.content import Attachment, Screen, body_problems, line_problems, load
from windlass.tools.message.once import MessageLog, OutgoingMessage
from windlass.tools.message.services import Kind, MessageService, Recipients, Services, address_problem, sender_of
from windlass.tools.threads import in_thread

__all__ = ["message_tools"]

TIMEOUT = 60.0


def message_tools(
    settings: MessageSettings, env: Mapping[str, str], now: Callable[[], float] | None = None, *, book: Path
) -> list[Tool]:
    """Make one of each. `env` holds the secrets, which must not leave; `book` is the file that remembers sent messages,
    one for a home."""
    work = _Messages(settings, env, now or SystemClock().now, MessageLog(book))
    made = partial(FunctionalTool, effect=Effect.ONCE, terms=Terms(TIMEOUT, rate=settings.rate, sensitive=True))
    return [
        made(
            "message.email",
            "Send a mail to people whom the settings allow",
            Email,
            work.email,
            result=EmailSent,
            health=lambda: _mail_health(work.services, work.recipients),
            check=work.email_problems,
            circuit=lambda given: work.circuit(given.service, "smtp"),
        ),
        made(
            "message.send",
            "Send a message to a chat or push service of the settings",
            Send,
            work.send,
            result=Sent,
            health=lambda: _chat_health(work.services),
            check=work.send_problems,
            circuit=lambda given: work.circuit(given.service, "url"),
        ),
        made(
            "message.webhook",
            "Post JSON to a webhook of the settings",
            Webhook,
            work.webhook,
            result=WebhookSent,
            health=lambda: _webhook_health(work.services),
            check=work.webhook_problems,
            circuit=lambda given: work.circuit(given.service, "url"),
        ),
    ]


class _Messages:
    def __init__(
        self, settings: MessageSettings, env: Mapping[str, str], now: Callable[[], float], book: MessageLog
    ) -> None:
        self.services = Services(settings, env)
        self.recipients = Recipients(settings.recipients)
        self._settings, self._env, self._now, self._book = settings, env, now, book

    def circuit(self, name: str | None, kind: Kind) -> str | None:
        """One service that does not work says nothing about the others."""
        if self.services.problem(name, kind) is not None:
            return None
        return f"message.{self.services.named(name, kind).name}"

    # -- mail ----------------------------------------------------------------------------------

    def email_problems(self, given: Email) -> list[str]:
        found = _listed(self.services.problem(given.service, "smtp"))
        for address in given.everybody:
            if (why := address_problem(address)) is not None:
                found.append(f"{address[:80]!r} {why}")
        if not given.subject.strip():
            found.append("subject: is empty")
        found += line_problems("subject", given.subject, literal=given.literal)
        for name, body in (("text", given.text), ("html", given.html)):
            if body is not None:
                found += body_problems(name, body, literal=given.literal)
        return found

    async def email(self, given: Email, call: Call) -> dict[str, Any]:
        service = self.services.named(given.service, "smtp")
        self._allowed(given)
        sender = sender_of(service.settings.sender or "")
        if sender is None:
            raise ToolError(
                f"message service {service.name!r}: its sender {service.settings.sender!r} is not a mail address",
                category=Category.CONFIGURATION,
                advice=("write it like windlass@example.com or Windlass <windlass@example.com>",),
            )
        server = self.services.mail_server(service)
        texts = {"subject": given.subject, "text": given.text or "", "html": given.html or ""}
        texts["list of recipients"] = " ".join(given.everybody)
        screen, attached = await self._screened(texts, given.attachments, call)
        parcel = self._parcel(call, service, [given.to, given.cc, given.bcc, texts], attached)
        if (known := parcel.known()) is not None:
            return known
        message_id = f"<{parcel.id}@{sender.domain}>"
        mail = smtp.compose(given, sender, message_id, self._now(), attached)
        async with smtp.connected(server) as client:
            refused = await smtp.envelope(client, server, sender.addr_spec, given.everybody, len(mail))

            async def deliver() -> dict[str, Any]:
                taken = await smtp.deliver(client, server, mail, call.meter)
                away = {told["recipient"] for told in refused}
                return {
                    "message_id": message_id,
                    "code": taken.code,
                    "response": screen.clean(taken.response),
                    "accepted": [address for address in given.everybody if address not in away],
                    "refused": refused,
                }

            result = await parcel.hand_over(deliver)
        for told in result["refused"]:
            call.output("note", f"{told['recipient']} was refused by the server: {told['code']} {told['reason']}\n")
        return result

    def _allowed(self, given: Email) -> None:
        strangers = [address for address in given.everybody if not self.recipients.allow(address)]
        if strangers:
            raise ToolError(
                f"mail may not go to {', '.join(strangers[:5])}: the settings do not list them as recipients",
                category=Category.PERMISSION,
                advice=("add them to messages.recipients in your own settings, exactly or as *@DOMAIN",),
            )

    # -- chat and webhooks ---------------------------------------------------------------------

    def send_problems(self, given: Send) -> list[str]:
        found = _listed(self.services.problem(given.service, "url"))
        found += line_problems("title", given.title, literal=given.literal)
        return found + body_problems("text", given.text, literal=given.literal)

    async def send(self, given: Send, call: Call) -> dict[str, Any]:
        service = self.services.named(given.service, "url")
        url = self.services.url(service)
        texts = {"title": given.title, "text": given.text}
        screen, attached = await self._screened(texts, given.attachments, call)
        parcel = self._parcel(call, service, [texts, given.format, given.level], attached)
        if (known := parcel.known()) is not None:
            return known
        to = await in_thread(lambda: chat.channel(service, url))
        return await parcel.hand_over(lambda: chat.say(to, given, attached, screen.clean, call.meter))

    def webhook_problems(self, given: Webhook) -> list[str]:
        found = _listed(self.services.problem(given.service, "url"))
        try:
            json.dumps(given.data, allow_nan=False)
        except (ValueError, RecursionError):
            found.append("data: has a number in it that JSON cannot write, or is nested too deep")
        return found

    async def webhook(self, given: Webhook, call: Call) -> dict[str, Any]:
        service = self.services.named(given.service, "url")
        url = webhook.target(service, self.services.url(service))
        # Without escapes, so that a secret in it is seen as what it is.
        text = json.dumps(given.data, ensure_ascii=False, separators=(",", ":"))
        screen, _ = await self._screened({"data": text}, [], call)
        parcel = self._parcel(call, service, given.data, [])
        if (known := parcel.known()) is not None:
            return known
        body = text.encode("utf-8", "backslashreplace")
        headers = {"Content-Type": "application/json", "User-Agent": "windlass", "Idempotency-Key": parcel.id}
        if service.settings.password_env is not None:
            secret = self.services.secret(service, service.settings.password_env)
            headers["Windlass-Signature"] = webhook.signature(secret, int(self._now()), body)

        async def post() -> dict[str, Any]:
            return {"id": parcel.id, **await webhook.post(service, url, body, headers, screen.clean, call.meter)}

        return await parcel.hand_over(post)

    # -- what all of them do -------------------------------------------------------------------

    async def _screened(
        self, texts: Mapping[str, str], paths: list[str], call: Call
    ) -> tuple[Screen, list[Attachment]]:
        """Check size and secrets of a message. Returns the attachments, read once."""
        screen = Screen(self._env, self.services.secrets(), self._settings.largest)

        def look() -> list[Attachment]:
            attached = load(call.workdir, call.home, paths, self._settings.largest)
            screen.size([*(text.encode("utf-8", "replace") for text in texts.values()), *(a.data for a in attached)])
            for what, text in texts.items():
                screen.text(what, text)
            for file in attached:
                screen.file(file.name, file.data)
            return attached

        return screen, await in_thread(look)

    def _parcel(self, call: Call, service: MessageService, content: Any, attached: list[Attachment]) -> OutgoingMessage:
        files = [[file.name, hashlib.sha256(file.data).hexdigest()] for file in attached]
        return OutgoingMessage(self._book, self._now, call, service.name, [content, files])


def _listed(problem: str | None) -> list[str]:
    return [] if problem is None else [problem]


_SET_UP = "describe one under [messages.services.NAME] in your own settings, as in: windlass docs messages"
Look = Callable[[MessageService], Awaitable[str]]
"""Says how a service is, or raises ToolError."""


async def _mail_health(services: Services, recipients: Recipients) -> Health:
    """Check that each mail server is described in full and answers. A login is tried only when a mail is sent."""
    if recipients.unusable:
        return Health(
            False,
            f"messages.recipients: {recipients.unusable[0][:80]!r} matches no address",
            "write ana@example.com or *@example.com",
        )

    async def look(service: MessageService) -> str:
        if sender_of(service.settings.sender or "") is None:
            raise ToolError(f"message service {service.name!r}: its sender is not a mail address")
        return await smtp.greeted(services.mail_server(service))

    return await _all(services, "smtp", look, "no mail service is set up")


async def _chat_health(services: Services) -> Health:
    """Check that apprise can read the address of each service that is not plain http(s)."""

    async def look(service: MessageService) -> str:
        url = services.url(service)
        if _is_web(url):
            return "a webhook"  # some of them apprise knows, too; none has to be
        return str((await in_thread(lambda: chat.channel(service, url))).kind)

    return await _all(services, "url", look, "no chat service is set up")


async def _webhook_health(services: Services) -> Health:
    async def look(service: MessageService) -> str:
        url = services.url(service)
        if not _is_web(url):
            return "for message.send"
        webhook.target(service, url)
        if service.settings.password_env is not None:
            services.secret(service, service.settings.password_env)
        return "a webhook"

    return await _all(services, "url", look, "no webhook is set up")


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


async def _all(services: Services, kind: Kind, look: Look, none: str) -> Health:
    fitting = services.of(kind)
    if not fitting:
        return Health(False, none, _SET_UP, unset=True)
    found = await asyncio.gather(*(_one(service, look) for service in fitting))
    wrong = [health for health in found if not health.ok]
    detail = "; ".join(health.detail for health in wrong or found)
    return Health(not wrong, detail, next((health.advice for health in wrong), ""))


async def _one(service: MessageService, look: Look) -> Health:
    try:
        return Health(True, f"{service.name}: {await look(service)}")
    except ToolError as error:
        advice = error.failure.advice
        return Health(False, f"{service.name}: {error}", advice[0] if advice else "")
