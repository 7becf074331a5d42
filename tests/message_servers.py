"""Servers on loopback that messages are sent to.

`MailServer` speaks SMTP, with STARTTLS, TLS and a login; it refuses, hangs and hangs up as it is told. `WebServer`
takes requests and answers as it is told. Both remember what has reached them.
"""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path

__all__ = ["Mail", "MailServer", "Request", "WebServer", "certificate"]


@dataclass(frozen=True)
class Mail:
    sender: str
    recipients: list[str]
    raw: bytes
    encrypted: bool
    user: str | None

    @property
    def parsed(self) -> EmailMessage:
        found = email.message_from_bytes(self.raw, policy=email.policy.default)
        assert isinstance(found, EmailMessage)
        return found


@dataclass
class MailServer:
    greeting: str = "220 mail.test ESMTP"
    starttls: ssl.SSLContext | None = None
    implicit: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None
    refuse: dict[str, str] = field(default_factory=dict)
    """Answers to RCPT by recipient, to MAIL under `MAIL`, to DATA under `DATA`, to the whole mail under `END`.
    `hang up` and `hang` are answers too; what has come is remembered before."""
    mails: list[Mail] = field(default_factory=list)
    """All that came in full, confirmed or not."""
    lines: list[str] = field(default_factory=list)
    port: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[MailServer]:
        talks: set[asyncio.Task[None]] = set()

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talks.add(task)
            try:
                await _Talk(self, reader, writer).run()
            except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                self.lines.append("(lost)")
            finally:
                talks.discard(task)
                writer.close()

        server = await asyncio.start_server(met, "127.0.0.1", 0, ssl=self.implicit)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(talks):
                task.cancel()
            await asyncio.gather(*talks, return_exceptions=True)


class _HungUp(ConnectionError):
    pass


class _Talk:
    def __init__(self, server: MailServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.encrypted, self.user = server.implicit is not None, None
        self.sender, self.recipients = "", list[str]()

    async def say(self, line: str) -> None:
        if line in ("hang", "hang up"):
            self.server.reached.set()
            if line == "hang":
                await asyncio.Event().wait()
            raise _HungUp
        self.writer.write(f"{line}\r\n".encode())
        await self.writer.drain()

    async def run(self) -> None:
        await self.say(self.server.greeting)
        while line := (await self.reader.readline()).decode("utf-8", "replace"):
            self.server.lines.append(line.rstrip("\r\n"))
            word, _, rest = line.strip().partition(" ")
            if word.upper() == "QUIT":
                await self.say("221 bye")
                return
            act = getattr(self, f"_{word.lower()}", None)
            await (act(rest) if act else self.say("502 what?"))

    async def _ehlo(self, _: str) -> None:
        offers = ["mail.test", "SIZE 10000000"]
        if self.server.starttls is not None and not self.encrypted:
            offers.append("STARTTLS")
        if self.server.login is not None:
            offers.append("AUTH PLAIN")
        for offer in offers[:-1]:
            await self.say(f"250-{offer}")
        await self.say(f"250 {offers[-1]}")

    async def _starttls(self, _: str) -> None:
        assert self.server.starttls is not None
        await self.say("220 go on")
        await self.writer.start_tls(self.server.starttls)
        self.encrypted = True

    async def _auth(self, rest: str) -> None:
        _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
        if (user, password) != self.server.login:
            await self.say("535 5.7.8 no")
            return
        self.user = user
        await self.say("235 welcome")

    async def _mail(self, rest: str) -> None:
        self.sender, self.recipients = rest[rest.index("<") + 1 : rest.index(">")], []
        await self.say(self.server.refuse.get("MAIL", "250 ok"))

    async def _rcpt(self, rest: str) -> None:
        who = rest[rest.index("<") + 1 : rest.index(">")]
        answer = self.server.refuse.get(who, "250 ok")
        if answer.startswith("250"):
            self.recipients.append(who)
        await self.say(answer)

    async def _rset(self, _: str) -> None:
        await self.say("250 ok")

    async def _data(self, _: str) -> None:
        answer = self.server.refuse.get("DATA", "354 go on")
        await self.say(answer)
        if not answer.startswith("354"):
            return
        raw = (await self.reader.readuntil(b"\r\n.\r\n"))[:-3].replace(b"\r\n..", b"\r\n.")
        self.server.mails.append(Mail(self.sender, list(self.recipients), raw, self.encrypted, self.user))
        await self.say(self.server.refuse.get("END", "250 2.0.0 queued as 7"))


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class WebServer:
    answer: str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    """Or `hang up`, or `hang`."""
    answers: list[str] = field(default_factory=list)
    """What the first requests are answered with, before `answer`."""
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[WebServer]:
        talks: set[asyncio.Task[None]] = set()

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talks.add(task)
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(Request(first.split()[1], headers, body))
                answer = self.answers.pop(0) if self.answers else self.answer
                if answer == "hang":
                    await asyncio.Event().wait()
                if answer != "hang up":
                    writer.write(answer.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1).encode())
                    await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.requests.append(Request("(lost)", {}, b""))
            finally:
                talks.discard(task)
                writer.close()

        server = await asyncio.start_server(met, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(talks):
                task.cancel()
            await asyncio.gather(*talks, return_exceptions=True)


def certificate(folder: Path, host: str = "localhost") -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate of its own making, and the file with which it can be trusted."""
    key, cert = folder / "key.pem", folder / f"{host}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", f"/CN={host}"]
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{host}"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert
