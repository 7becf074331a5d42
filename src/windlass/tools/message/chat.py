"""Chat, push and the like, through apprise: one address of the settings is one service.

apprise answers yes or no, and the reason is only in its log. Details that tell a refused connection from one that was
lost half-way are logged for debugging, beside payloads and addresses: `apprise_log` collects them, and they go no
further.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

from windlass.errors import Category, ToolError
from windlass.ports import Meter
from windlass.tools.message.arguments import Send
from windlass.tools.message.content import Attachment
from windlass.tools.message.once import OutcomeUnknown
from windlass.tools.message.services import MessageService
from windlass.tools.message.webhook import GATEWAYS, of_status
from windlass.tools.threads import in_thread

__all__ = ["Channel", "channel", "say"]

_STATUS = re.compile(r"\berror[=:]\s?(\d{3})\b")
_NEVER_CONNECTED = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|ProxyError|SSLError|Connection refused|"
    r"Name or service not known|nodename nor servname|Temporary failure in name resolution|No route to host"
)
_SHOWN = 400


class Channel(NamedTuple):
    service: str
    kind: str
    plugin: Any
    """apprise's own object, which holds the secrets."""


def channel(service: MessageService, url: str) -> Channel:
    """The service behind an address. Nothing is sent."""
    try:
        from apprise import Apprise, AppriseAsset
    except ImportError:
        raise ToolError(
            "chat and push services need the package apprise, which is not installed",
            category=Category.CONFIGURATION,
            advice=("pip install 'windlass[messages]'",),
        ) from None
    asset = AppriseAsset(
        app_id="Windlass",
        app_desc="Windlass",
        async_mode=False,  # in the thread that we give it,
        service_timeout=0,  # and in no other
        storage_mode="memory",
        http_redirects=False,  # what is meant for one place goes to no other
        secure_logging=True,
    )
    with apprise_log():
        plugin = Apprise.instantiate(url, asset=asset)
    if plugin is None:
        web = url.lower().startswith(("http://", "https://"))
        raise ToolError(
            f"message service {service.name!r}: apprise does not know this kind of address",
            category=Category.CONFIGURATION,
            advice=(
                "use message.webhook for it" if web else "compare it with https://appriseit.com/services/",
                f"check {service.settings.url_env or 'its url in your settings'}",
            ),
        )
    plugin.retry = 0  # whether a message is repeated is not for the address to say
    plugin.optional = False  # nor that one which did not arrive counts as sent
    return Channel(service.name, str(plugin.service_name), plugin)


async def say(
    to: Channel, given: Send, attached: Sequence[Attachment], clean: Callable[[str], str], meter: Meter
) -> dict[str, Any]:
    """Hand it over. A ToolError that is not `OutcomeUnknown` means that the service has not taken it."""
    if attached and not to.plugin.attachment_support:
        raise ToolError(f"{to.kind} takes no attachments", advice=("leave `attachments` out, or use another service",))
    # apprise does not tell what it makes of it: it counts as it is handed over.
    texts = f"{given.title}{given.text}".encode("utf-8", "replace")
    meter.add(sent=len(texts) + sum(len(file.data) for file in attached))
    arrived, log = await in_thread(lambda: _notify(to, given, attached))
    if not arrived:
        raise _why(to, log, clean)
    return {"kind": to.kind}


def _notify(to: Channel, given: Send, attached: Sequence[Attachment]) -> tuple[bool, AppriseLog]:
    from apprise import Apprise, AppriseAttachment
    from apprise.attachment.memory import AttachMemory

    in_memory: Any = AttachMemory  # it has no types
    files = AppriseAttachment([in_memory(file.data, name=file.name, mimetype=file.mime) for file in attached])
    apprise = Apprise(asset=to.plugin.asset)
    apprise.add(to.plugin)
    with apprise_log() as log:
        arrived = apprise.notify(
            body=given.text,
            title=given.title,
            notify_type=given.level,
            body_format=given.format,
            attach=files if attached else None,
        )
    return bool(arrived), log


def _why(to: Channel, log: AppriseLog, clean: Callable[[str], str]) -> ToolError:
    """The failure in its log. Of several recipients, the one of whom the least is known counts for all."""
    warned, details = log.texts(logging.WARNING), log.texts(logging.DEBUG)
    said = "; ".join(warned) or "it said no more"
    message = f"message service {to.service!r} ({to.kind}) did not confirm the message: {clean(said)[:_SHOWN]}"
    if any(text.startswith("Sent ") for text in log.texts(logging.INFO, logging.INFO)):
        return OutcomeUnknown(f"{message}; a part of it, or some of its recipients, has arrived")
    broken = [text for text in details if "Exception: " in text]
    unconnected = [text for text in broken if _NEVER_CONNECTED.search(text)]
    statuses = [int(found[1]) for text in warned if (found := _STATUS.search(text))]
    if len(unconnected) < len(broken) or log.full or not (statuses or unconnected):
        return OutcomeUnknown(f"{message}; it may or may not have arrived")
    if not statuses:
        return ToolError(message, category=Category.TRANSIENT)
    return of_status(next((status for status in statuses if status in GATEWAYS), statuses[-1]), message)


MOST = 2000
"""Records that are kept of one call."""


class AppriseLog(list[tuple[int, str]]):
    """Level and text, in order."""

    @property
    def full(self) -> bool:
        """There may have been more."""
        return len(self) >= MOST

    def texts(self, lowest: int, highest: int = logging.CRITICAL) -> list[str]:
        return [text for level, text in self if lowest <= level <= highest]


_log: ContextVar[AppriseLog | None] = ContextVar("windlass_apprise_heard", default=None)
_lock = Lock()


class _AppriseFilter(logging.Filter):
    def __init__(self, lowest: int) -> None:
        super().__init__()
        self._lowest = lowest

    def filter(self, record: logging.LogRecord) -> bool:
        log = _log.get()
        if log is None:
            return record.levelno >= self._lowest  # somebody else's use of apprise: as it was before
        if not log.full:
            log.append((record.levelno, record.getMessage()))
        return False


@contextmanager
def apprise_log() -> Iterator[AppriseLog]:
    """For this thread, and those that apprise starts from it."""
    logger = logging.getLogger("apprise")
    with _lock:
        if not any(isinstance(found, _AppriseFilter) for found in logger.filters):
            logger.addFilter(_AppriseFilter(logger.getEffectiveLevel()))
            logger.setLevel(logging.DEBUG)
    log = AppriseLog()
    token = _log.set(log)
    try:
        yield log
    finally:
        _log.reset(token)
