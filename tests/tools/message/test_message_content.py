"""H1: what may leave and to whom: look-alike addresses, broken headers, secrets and foreign files stay here."""

from __future__ import annotations

import base64
import html
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from message_world import MailServer, WebServer, World

from windlass.errors import Category
from windlass.tools.message.services import Recipients, address_problem, sender_of

ALLOWED = Recipients(["ana@example.com", "*@team.test", "bob@xn--bcher-kva.example"])
FIT = ["ana@example.com", "ana@EXAMPLE.com", "a.b+c@team.test", "x@Team.Test", "bob@xn--bcher-kva.example"]
LOOK_ALIKE = {
    "another local part": "anna@example.com",
    "case of the local part": "Ana@example.com",
    "plus addressing": "ana+x@example.com",
    "a dot more": "a.na@example.com",
    "a subdomain": "x@sub.team.test",
    "a domain that ends alike": "x@evilteam.test",
    "a domain that begins alike": "x@team.test.evil.org",
    "a trailing dot": "x@team.test.",
    "a Cyrillic letter": "\u0430na@example.com",
    "a wide letter": "\uff41na@example.com",
    "the long s": "x@teaſm.test",
    "an international domain": "bob@bücher.example",
    "a display name": "Ana <ana@example.com>",
    "angle brackets": "<ana@example.com>",
    "a name that is an address": "ana@example.com <x@evil.org>",
    "a comment": "ana@example.com(x@evil.org)",
    "a comment in between": "ana(x)@example.com",
    "two with a comma": "ana@example.com,x@evil.org",
    "two with a semicolon": "ana@example.com;x@evil.org",
    "two with a space": "ana@example.com x@evil.org",
    "two at signs": "x@evil.org@team.test",
    "a quoted local part": '"x@evil.org,"@team.test',
    "a route": "@evil.org:ana@example.com",
    "a percent relay": "x%evil.org@team.test",
    "a bang path": "evil.org!x@team.test",
    "an address literal": "x@[127.0.0.1]",
    "a header": "ana@example.com\r\nBcc: x@evil.org",
    "a line break at the end": "ana@example.com\n",
    "a command": "ana@example.com>\r\nRCPT TO:<x@evil.org",
    "a NUL": "ana@example.com\0",
    "a tab": "\tana@example.com",
    "a space": " ana@example.com",
    "the entry itself": "*@team.test",
    "an encoded word": "=?utf-8?q?a=0D=0ABcc=3Ax=40evil.org?=@team.test",
    "nothing": "",
    "no domain": "ana@",
    "no local part": "@team.test",
    "an empty label": "x@team..test",
    "much": f"{'a' * 65}@team.test",
}


@pytest.mark.parametrize("address", FIT)
def test_h1_an_address_on_the_list_fits(address: str) -> None:
    assert ALLOWED.allow(address)


@pytest.mark.parametrize("name", LOOK_ALIKE)
async def test_h1_a_look_alike_fits_nobody_and_nothing_is_sent(name: str, world: World, server: MailServer) -> None:
    assert not ALLOWED.allow(LOOK_ALIKE[name])
    for field in ("to", "cc", "bcc"):
        failure = await world.failing("message.email", **{"to": "ana@example.com", field: [LOOK_ALIKE[name]]})
        assert failure.category in (Category.PERMISSION, Category.CONFIGURATION)
    assert server.lines == [], "nobody was even connected to"


def test_h1_an_entry_that_fits_nobody_is_told_and_an_empty_list_is_nobody() -> None:
    wild = ["*", "*@*", "@team.test", "ana*@example.com", "*@*.test", "*@team.test ", "ana@example.com, b@c.d"]
    assert Recipients(wild).unusable == wild
    assert not Recipients(wild).allow("ana@example.com")
    assert not Recipients([]).allow("ana@example.com")
    assert address_problem("*@team.test") is not None, "the entry of a list is no address"


@pytest.mark.parametrize(
    "sender",
    ["", "nobody", "a@b.c\r\nBcc: x@evil.org", "Ä <ä@b.c>", "a@b.c, x@evil.org", "=?utf-8?q?a=0D=0AX=3A?= <a@b.c>"],
)
def test_h1_a_sender_that_is_no_address_is_none(sender: str) -> None:
    assert sender_of(sender) is None


INJECTIONS = {
    "CRLF": "Hi\r\nBcc: x@evil.org",
    "LF": "Hi\nBcc: x@evil.org",
    "CR": "Hi\rBcc: x@evil.org",
    "a folded line": "Hi\r\n Bcc: x@evil.org",
    "the end of the headers": "Hi\r\n\r\nthe body",
    "the end of the mail": "Hi\r\n.\r\nMAIL FROM:<x@evil.org>",
    "NEL": "Hi\x85Bcc: x@evil.org",
    "a line separator": "Hi\u2028Bcc: x@evil.org",
    "a paragraph separator": "Hi\u2029Bcc: x@evil.org",
    "vertical tab": "Hi\x0bBcc: x@evil.org",
    "form feed": "Hi\x0cBcc: x@evil.org",
    "NUL": "Hi\0",
    "escape": "Hi\x1b[31m",
    "delete": "Hi\x7f",
    "half a character": "Hi\ud800",
}


@pytest.mark.parametrize("name", INJECTIONS)
async def test_h1_a_subject_cannot_be_broken_out_of(
    name: str, world: World, server: MailServer, web: WebServer
) -> None:
    failure = await world.failing("message.email", subject=INJECTIONS[name])
    assert "subject" in failure.message
    assert "title" in (await world.failing("message.send", service="chat", text="x", title=INJECTIONS[name])).message
    assert (server.lines, web.requests) == ([], [])


HEADERS = {"Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"}
HEADERS |= {"Content-Transfer-Encoding"}


async def test_h1_an_encoded_word_in_a_subject_stays_one_header(world: World, server: MailServer) -> None:
    crafty = "=?utf-8?q?Hi=0D=0ABcc:_x@evil.org?= " + "ü" * 200
    short = "=?utf-8?q?Hi=0D=0ABcc:_x@evil.org?="
    for number, subject in enumerate((crafty, short, "ü" * 500, "x " * 250, "x" * 500)):
        await world.email(subject=subject, step=f"s{number}")
        mail = server.mails[-1]
        head = mail.raw.partition(b"\r\n\r\n")[0]
        assert b"\r\nBcc" not in head
        assert max(len(line) for line in head.splitlines()) <= 998
        assert mail.parsed["Subject"].strip() == subject.strip()
        assert set(mail.parsed.keys()) == HEADERS


async def test_h1_dots_and_commands_in_a_body_stay_in_the_body(world: World, server: MailServer) -> None:
    body = "one\r\n.\r\nMAIL FROM:<x@evil.org>\n.\nRCPT TO:<x@evil.org>\n..\n"
    await world.email(text=body)
    (mail,) = server.mails
    found = mail.parsed.get_body()
    assert found is not None
    assert found.get_content().splitlines() == body.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"subject": "  "}, "subject: is empty"),
        ({"text": " \n"}, "text: is empty"),
        ({"html": ""}, "html: is empty"),
        ({"text": None}, "give `text`, `html` or both"),
        ({"to": []}, "needs a recipient"),
        ({"to": [f"a{n}@team.test" for n in range(51)]}, "50"),
        ({"text": "a\x08b"}, "control character"),
        ({"text": "Dear {{ name }}"}, "not filled in"),
        ({"subject": "{% if x %}"}, "not filled in"),
        ({"service": "mial"}, "did you mean 'mail'"),
        ({"service": "chat"}, "message.send"),
    ],
)
async def test_h1_what_makes_no_sense_is_said_before_anything_is_sent(
    arguments: dict[str, Any], words: str, world: World, server: MailServer, web: WebServer
) -> None:
    failure = await world.failing("message.email", **arguments)
    assert words in failure.message
    assert server.lines == []


async def test_h1_a_template_is_sent_as_it_stands_where_that_is_meant(world: World, server: MailServer) -> None:
    await world.email(text="write {{ name }}", literal=True)
    assert b"{{ name }}" in server.mails[0].raw


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────

CANARY = "canary-5f2c9e"
TOKEN = "ghp_" + "A1b2C3d4E5" * 4
WRAPPED = {
    "as it is": (f"it is {CANARY}!", "DEPLOY_TOKEN"),
    "in JSON": (f'{{"token":"{CANARY}"}}', "DEPLOY_TOKEN"),
    "in base64": (f"x {base64.b64encode(f'user:{CANARY}'.encode()).decode()} y", "DEPLOY_TOKEN"),
    "in percent escapes": (quote(f" {CANARY}").replace("-", "%2D"), "DEPLOY_TOKEN"),
    "in HTML escapes": ("".join(f"&#{ord(c)};" for c in CANARY), "DEPLOY_TOKEN"),
    "after a bracket": (f"[{CANARY}]", "DEPLOY_TOKEN"),
    "a known form": (f"see {TOKEN}", "github token"),
    "a private key": ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "private key"),
    "a password in an address": ("git clone https://me:hunter22@git.test/x", "token in an address"),
    "of a service": ("the-webhook-of-ours-1", "CHAT_ADDRESS"),
}


@pytest.mark.parametrize("name", WRAPPED)
async def test_h1_a_secret_never_leaves_and_only_its_kind_is_named(
    name: str, world: World, server: MailServer, web: WebServer
) -> None:
    text, kind = WRAPPED[name]
    world.env["DEPLOY_TOKEN"] = CANARY
    world.env["CHAT_ADDRESS"] += "/the-webhook-of-ours-1"
    (world.work / "notes.txt").write_text(f"line\n{text}\n")
    (world.work / "wide.txt").write_bytes(f"line\n{html.unescape(text)}".encode("utf-16"))
    tries: list[tuple[str, dict[str, Any]]] = [
        ("message.email", {"text": text}),
        ("message.email", {"html": f"<p>{text}</p>"}),
        ("message.email", {"attachments": ["notes.txt"]}),
        ("message.email", {"attachments": ["wide.txt"]}),
        ("message.send", {"service": "chat", "text": text}),
        ("message.send", {"service": "chat", "text": "x", "attachments": "notes.txt"}),
        ("message.webhook", {"service": "hook", "data": {"deep": [{"er": text}]}}),
    ]
    if "\n" not in text:
        tries.append(("message.email", {"subject": text}))
        tries.append(("message.send", {"service": "chat", "text": "x", "title": text}))
    for tool, arguments in tries:
        failure = await world.failing(tool, **arguments)
        assert failure.category is Category.PERMISSION, (tool, arguments)
        assert kind in failure.message
        told = failure.message + "".join(failure.advice) + "".join(world.said)
        assert CANARY not in told
        assert TOKEN not in told
        assert "hunter22" not in told
    assert (server.lines, web.requests) == ([], [])
    assert not world.book.exists(), "nothing was begun"


async def test_h1_a_secret_in_an_address_or_the_name_of_a_file_stays_too(world: World, server: MailServer) -> None:
    world.env["DEPLOY_TOKEN"] = CANARY
    (world.work / f"{CANARY}.txt").write_text("x")
    for arguments in ({"to": f"{CANARY}@team.test"}, {"attachments": f"{CANARY}.txt"}):
        failure = await world.failing("message.email", **arguments)
        assert failure.category is Category.PERMISSION
        assert CANARY not in failure.message
    assert server.lines == []


# ── attachments ──────────────────────────────────────────────────────────────────────────────────────


async def test_h1_only_files_of_the_working_directory_are_attached(
    world: World, server: MailServer, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text("private")
    (world.work / ".windlass").mkdir()
    (world.work / ".windlass" / "windlass.db").write_text("state")
    (world.work / "link").symlink_to(tmp_path / "outside.txt")
    (world.work / "folder").mkdir()
    os.mkfifo(world.work / "fifo")
    (world.work / "a\nb.txt").write_text("x")
    (world.work / "=?utf-8?q?a=0D=0AX?=").write_text("x")
    bad = ["../outside.txt", str(tmp_path / "outside.txt"), "link", ".windlass/windlass.db", "folder", "fifo", "none",
           "/dev/zero", "/etc/passwd", "a\nb.txt", "", "x\0", "=?utf-8?q?a=0D=0AX?="]  # fmt: skip
    for path in bad:
        failure = await world.failing("message.email", attachments=[path])
        assert failure.category in (Category.PERMISSION, Category.CONFIGURATION), path
    assert server.lines == []


async def test_h1_a_message_is_bounded_with_all_that_is_attached(world: World, server: MailServer) -> None:
    world.more = {"largest": 1000}
    (world.work / "a").write_bytes(b"x" * 600)
    (world.work / "b").write_bytes(b"x" * 600)
    failure = await world.failing("message.email", attachments=["a", "b"])
    assert "1000" in failure.message
    assert "1000" in (await world.failing("message.email", text="ü" * 501)).message
    assert "1000" in (await world.failing("message.email", attachments="a", text="x" * 401)).message
    assert server.lines == []
    await world.email(attachments=["a"])
    assert len(server.mails) == 1


async def test_h1_an_attached_message_is_a_file_like_others(world: World, server: MailServer) -> None:
    (world.work / "old.eml").write_text("Subject: x\n\nBcc: x@evil.org\n")
    (world.work / "log.txt.gz").write_bytes(b"\x1f\x8b\x08")
    await world.email(attachments=["old.eml", "log.txt.gz"])
    files = list(server.mails[0].parsed.iter_attachments())
    assert [file.get_content_type() for file in files] == ["application/octet-stream"] * 2
