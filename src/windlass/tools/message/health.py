"""The health of the services, found without sending anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from windlass.errors import ToolError
from windlass.ports import Health
from windlass.tools.message.chat import channel
from windlass.tools.message.services import Kind, MessageService, Recipients, Services, sender_of
from windlass.tools.message.smtp import greeted
from windlass.tools.message.webhook import target
from windlass.tools.threads import in_thread

__all__ = ["chat_health", "mail_health", "webhook_health"]

_SET_UP = "describe one under [messages.services.NAME] in your own settings: docs/messages.md"
Look = Callable[[MessageService], Awaitable[str]]
"""Says how a service is, or raises ToolError."""


async def mail_health(services: Services, recipients: Recipients) -> Health:
    """Check that each mail server is described in full and answers. A login is tried only when a mail is sent."""
    if recipients.unusable:
        return Health(
            False,
            f"messages.recipients: {recipients.unusable[0][:80]!r} fits nobody",
            "write ana@example.com or *@example.com",
        )

    async def look(service: MessageService) -> str:
        if sender_of(service.settings.sender or "") is None:
            raise ToolError(f"message service {service.name!r}: its sender is not a mail address")
        return await greeted(services.mail_server(service))

    return await _all(services, "smtp", look, "no mail service is set up")


async def chat_health(services: Services) -> Health:
    """Check that apprise can read the address of each service that is not plain http(s)."""

    async def look(service: MessageService) -> str:
        url = services.url(service)
        if _is_web(url):
            return "a webhook"  # some of them apprise knows, too; none has to be
        return str((await in_thread(lambda: channel(service, url))).kind)

    return await _all(services, "url", look, "no chat service is set up")


async def webhook_health(services: Services) -> Health:
    async def look(service: MessageService) -> str:
        url = services.url(service)
        if not _is_web(url):
            return "for message.send"
        target(service, url)
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
