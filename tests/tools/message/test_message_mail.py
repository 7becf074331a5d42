"""H1: mail reaches a real server as it was meant, and every refusal says what it means."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from message_world import NOW, MailServer, World, certificate

from windlass.errors import Category
from windlass.plan.model import Effect
from windlass.ports import health_of
from windlass.tools.message import smtp


async def test_h1_a_mail_arrives_with_both_bodies_and_its_attachment(world: World, server: MailServer) -> None:
    (world.work / "täglich.csv").write_bytes(b"a,b\n1,\xff\n")
    told = {"text": "Grüße\n.\n..dots\n", "html": "<p>Grüße</p>", "subject": "Übersicht – heute", "cc": ["b@team.test"]}
    result = await world.email(attachments="täglich.csv", bcc=["c@team.test", "ana@example.com"], **told)
    (mail,) = server.mails
    assert mail.recipients == ["ana@example.com", "b@team.test", "c@team.test"]
    assert mail.sender == "w@example.com"
    found = mail.parsed
    assert (found["From"], found["To"], found["Cc"], found["Bcc"]) == (
        "Wind Lass <w@example.com>", "ana@example.com", "b@team.test", None,
    )  # fmt: skip
    assert found["Subject"] == "Übersicht – heute"
    assert found["Message-ID"] == result["message_id"]
    assert found["Date"].datetime.timestamp() == NOW
    text, html = found.get_body(("plain",)), found.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().replace("\r\n", "\n") == "Grüße\n.\n..dots\n"
    assert html.get_content().strip() == "<p>Grüße</p>"
    (file,) = found.iter_attachments()
    assert (file.get_filename(), file.get_content_type()) == ("täglich.csv", "text/csv")
    assert file.get_payload(decode=True) == b"a,b\n1,\xff\n"
    assert mail.raw.isascii(), "any server can carry it"
    assert result == {
        "service": "mail",
        "sent_at": "2023-11-14T22:13:20.000Z",
        "repeated": False,
        "message_id": result["message_id"],
        "code": 250,
        "response": "2.0.0 queued as 7",
        "accepted": ["ana@example.com", "b@team.test", "c@team.test"],
        "refused": [],
    }


async def test_h1_a_recipient_that_the_server_refuses_is_reported_and_the_others_get_it(
    world: World, server: MailServer
) -> None:
    server.refuse["x@team.test"] = "550 5.1.1 no such user"
    result = await world.email(cc="x@team.test")
    assert result["accepted"] == ["ana@example.com"]
    assert result["refused"] == [{"recipient": "x@team.test", "code": 550, "reason": "5.1.1 no such user"}]
    assert [mail.recipients for mail in server.mails] == [["ana@example.com"]]
    assert any("x@team.test was refused" in said for said in world.said)


REFUSALS = {
    "nobody is known there": ({"ana@example.com": "550 5.1.1 no such user"}, Category.LOGIC, "no such user"),
    "not by policy": ({"ana@example.com": "554 5.7.1 relay denied"}, Category.PERMISSION, "relay denied"),
    "greylisted": ({"ana@example.com": "451 4.7.1 come back"}, Category.TRANSIENT, "come back"),
    "the sender is refused": ({"MAIL": "553 not you"}, Category.LOGIC, "not you"),
    "it closes down": ({"MAIL": "421 closing"}, Category.TRANSIENT, "closing"),
    "a login is needed": ({"MAIL": "530 5.7.0 log in"}, Category.PERMISSION, "log in"),
    "no data now": ({"DATA": "451 later"}, Category.TRANSIENT, "later"),
    "the content is refused": ({"END": "554 5.6.0 looks like spam"}, Category.LOGIC, "spam"),
    "out of space after all of it": ({"END": "452 4.3.1 full"}, Category.TRANSIENT, "full"),
    "it closes down after all of it": ({"END": "421 closing"}, Category.TRANSIENT, "closing"),
    "it hangs up at the recipient": ({"ana@example.com": "hang up"}, Category.TRANSIENT, "connection"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_h1_a_refusal_has_a_category_and_leaves_the_way_open(name: str, world: World, server: MailServer) -> None:
    refuse, category, words = REFUSALS[name]
    server.refuse.update(refuse)
    failure = await world.failing("message.email")
    assert (failure.category, failure.final) == (category, False)
    assert words in failure.message.lower()
    server.refuse.clear()
    server.mails.clear()
    assert (await world.email())["repeated"] is False, "the same attempt may hand it over: the server does not have it"
    assert len(server.mails) == 1


@pytest.mark.parametrize("end", ["hang up", "hang", "999 what", "nonsense", "200 fine?"])
async def test_h1_without_an_answer_to_the_whole_mail_nobody_knows_and_it_is_not_sent_again(
    end: str, world: World, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "TAKEOVER", 0.3)
    server.refuse["END"] = end
    failure = await world.failing("message.email")
    assert failure.final
    assert failure.kind == "cut_off"
    assert "may or may not" in failure.message
    server.refuse.clear()
    again = await world.failing("message.email")
    assert again.final
    assert "may or may not" in again.message
    assert len(server.mails) == 1


async def test_h1_a_server_that_is_not_there_silent_or_no_mail_server_is_told_apart(
    world: World, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    gone = MailServer()
    gone.port = port
    world.mail(gone)
    assert (await world.failing("message.email")).category is Category.TRANSIENT
    async with MailServer(greeting="hang").serving() as silent:
        world.mail(silent)
        with monkeypatch.context() as soon:
            soon.setattr(smtp, "COMMAND", 0.3)
            assert (await world.failing("message.email")).category is Category.TRANSIENT
    async with MailServer(greeting="SSH-2.0-OpenSSH").serving() as other:
        world.mail(other)
        failure = await world.failing("message.email")
    assert failure.category is Category.CONFIGURATION
    assert "does not speak SMTP" in failure.message


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_h1_an_encrypted_connection_is_checked_and_the_login_goes_over_it(
    security: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path)
    how = {"starttls": context} if security == "starttls" else {"implicit": context}
    world.env.update(MAIL_USER="w", MAIL_PASSWORD="a long secret")
    async with MailServer(login=("w", "a long secret"), **how).serving() as server:
        world.mail(server, security=security, user_env="MAIL_USER", password_env="MAIL_PASSWORD")
        failure = await world.failing("message.email")
        assert (failure.category, server.mails) == (Category.CONFIGURATION, []), "nobody vouches for the certificate"
        assert "encrypted" in failure.message
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        await world.email()
        world.env["MAIL_PASSWORD"] = "a wrong secret"
        refused = await world.failing("message.email", step="other")
    assert [(mail.encrypted, mail.user) for mail in server.mails] == [(True, "w")]
    assert refused.category is Category.PERMISSION
    assert "secret" not in refused.message


async def test_h1_a_certificate_for_another_host_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path, "other.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with MailServer(starttls=context).serving() as server:
        world.mail(server, security="starttls")
        assert (await world.failing("message.email")).category is Category.CONFIGURATION
    assert server.mails == []


async def test_h1_a_server_without_starttls_gets_nothing_in_the_clear(world: World, server: MailServer) -> None:
    world.mail(server, security="starttls")
    failure = await world.failing("message.email")
    assert failure.category is Category.CONFIGURATION
    assert not any(line.startswith(("MAIL", "AUTH")) for line in server.lines)


async def test_h1_a_password_never_goes_unencrypted_to_another_machine(world: World) -> None:
    world.env.update(MAIL_USER="w", MAIL_PASSWORD="a long secret")
    about = {"smtp": "mail.test:25", "sender": "w@example.com", "security": "none"}
    world.services["mail"] = {**about, "user_env": "MAIL_USER", "password_env": "MAIL_PASSWORD"}
    failure = await world.failing("message.email")
    assert failure.category is Category.CONFIGURATION
    assert "unencrypted" in failure.message


async def test_h1_a_mail_that_is_stopped_while_it_is_handed_over_stays_unknown(
    world: World, server: MailServer
) -> None:
    server.refuse["END"] = "hang"
    task = asyncio.create_task(world.email())
    await server.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "may or may not" in (await world.failing("message.email")).message


def test_h1_messages_are_sensitive_rated_and_done_once(world: World) -> None:
    world.more = {"rate": "5/h"}
    for tool in world.tools().values():
        terms = tool.terms
        assert (terms.sensitive, str(terms.rate), terms.timeout) == (True, "5/3600s", 60.0)
        assert tool.effect({}) is Effect.ONCE


async def test_h1_health_greets_the_server_and_sends_nothing(world: World, server: MailServer) -> None:
    tool = world.tools()["message.email"]
    health = await health_of(tool)
    assert health.ok
    assert "mail.test" in health.detail
    assert {line.split()[0] for line in server.lines} <= {"EHLO", "QUIT"}
    world.recipients = ("*",)
    assert "matches no address" in (await health_of(world.tools()["message.email"])).detail
    world.recipients = ()
    world.mail(server, user_env="MAIL_USER")
    health = await health_of(world.tools()["message.email"])
    assert (health.ok, "MAIL_USER" in health.detail, "export" in health.advice) == (False, True, True)
    world.services.clear()
    assert "no mail service is set up" in (await health_of(world.tools()["message.email"])).detail
