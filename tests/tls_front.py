"""TLS before servers that have none of their own, as a load balancer does it: with certificates made for the test."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["TlsFront", "make_certificates"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_SSL_REQUEST = bytes([0, 0, 0, 8, 4, 210, 22, 47])
"""The first bytes of a PostgreSQL client that wants TLS."""


def make_certificates(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context for `localhost`, and the file of the authority that has signed for it."""
    folder.mkdir()
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    by = f"authority {folder.name}"
    authority = _sign(by, authority_key, by, authority_key, own=True)
    certificate = _sign("localhost", key, by, authority_key, own=False)
    names = folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"
    for file, made in zip(names, (authority, certificate), strict=False):
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    names[2].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(names[1], names[2])
    context.set_alpn_protocols(["h2", "postgresql"])
    return context, names[0]


def _sign(
    name: str, key: ec.EllipticCurvePrivateKey, by: str, with_key: ec.EllipticCurvePrivateKey, *, own: bool
) -> x509.Certificate:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=own, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name.replace(" ", "-"))]), critical=False)
        .sign(with_key, hashes.SHA256())
    )


class TlsFront:
    """Takes connections with TLS, and passes what they say to servers without; in a thread of its own."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._talks: set[asyncio.Task[None]] = set()

    def of_postgres(self, socket: Path) -> int:
        """The port of a PostgreSQL server that is reached through a socket."""
        return self._serve(lambda: asyncio.open_unix_connection(str(socket)), asks_first=True)

    def of_http2(self, port: int) -> int:
        """The port of a server that speaks HTTP/2, as Temporal's does."""
        return self._serve(lambda: asyncio.open_connection("127.0.0.1", port), asks_first=False)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end_talks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_talks(self) -> None:
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _serve(self, reach: Callable[[], Awaitable[Streams]], *, asks_first: bool) -> int:
        async def start() -> int:
            met = self._met(reach, asks_first)
            server = await asyncio.start_server(met, "localhost", 0, ssl=None if asks_first else self._context)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result()

    def _met(
        self, reach: Callable[[], Awaitable[Streams]], asks_first: bool
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if asks_first:
                if await reader.readexactly(8) != _SSL_REQUEST:
                    writer.close()  # who does not ask for TLS is not let in
                    return
                writer.write(b"S")
                await writer.start_tls(self._context)
            far_reader, far_writer = await reach()
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))

        def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(_until_broken(talk(reader, writer)))
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)

        return met


async def _until_broken(talk: Awaitable[None]) -> None:
    try:
        await talk
    except (OSError, asyncio.IncompleteReadError):
        return  # one of the two is gone


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
