"""What messages take: the mail, the request, what is handed over to a chat service; also when they fail (H1)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from message_world import MailServer, WebServer, World

from windlass.core.resources import Resources
from windlass.errors import ToolError


async def used(world: World, tool: str, step: str = "s", **arguments: Any) -> Resources | None:
    """What one use took, whether it worked or failed."""
    call = world.call(step)
    with suppress(ToolError):
        await world.tools()[tool].execute(arguments, call)
    return call.meter.used


MAIL = {"to": "ana@example.com", "subject": "Hello", "text": "Good morning"}


async def test_h1_a_mail_counts_with_its_attachments(world: World, server: MailServer) -> None:
    (world.work / "photo.bin").write_bytes(bytes(range(256)) * 120)
    took = await used(world, "message.email", **MAIL, attachments=["photo.bin"])
    assert took == Resources(sent=len(server.mails[0].raw))
    assert len(server.mails[0].raw) > 30_720


async def test_h1_a_mail_that_was_refused_in_the_end_counts_and_one_that_never_left_does_not(
    world: World, server: MailServer
) -> None:
    server.refuse["END"] = "552 5.3.4 too much"
    took = await used(world, "message.email", "late", **MAIL)
    assert took == Resources(sent=len(server.mails[0].raw))
    server.refuse["ana@example.com"] = "550 5.1.1 nobody"
    assert await used(world, "message.email", "early", **MAIL) is None


async def test_h1_a_webhook_counts_both_ways(world: World, web: WebServer) -> None:
    web.answer = "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n" + "r" * 30_000
    took = await used(world, "message.webhook", service="hook", data={"text": "x" * 50_000})
    assert took is not None
    assert 50_000 < (took.sent or 0) < 51_000
    assert 30_000 < (took.received or 0) < 30_200


async def test_h1_a_webhook_that_is_refused_or_cut_off_counts_as_far_as_it_came(world: World, web: WebServer) -> None:
    web.answers = ["HTTP/1.1 500 Oh\r\nContent-Length: 9000\r\n\r\n" + "r" * 9_000, "hang up"]
    refused = await used(world, "message.webhook", "refused", service="hook", data={"text": "x" * 5_000})
    cut_off = await used(world, "message.webhook", "cut", service="hook", data={"text": "x" * 5_000})
    assert refused is not None
    assert 9_000 < (refused.received or 0) < 9_200
    assert cut_off is not None
    assert 5_000 < (cut_off.sent or 0) < 6_000
    assert cut_off.received is None


async def test_h1_a_chat_message_counts_as_it_is_handed_over(world: World, web: WebServer) -> None:
    took = await used(world, "message.send", service="chat", title="Ü", text="x" * 5_000)
    assert took == Resources(sent=5_002)


async def test_h1_a_message_that_was_sent_before_takes_nothing(world: World, server: MailServer) -> None:
    await used(world, "message.email", **MAIL)
    assert await used(world, "message.email", **MAIL) is None
    assert len(server.mails) == 1
