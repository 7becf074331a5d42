"""Clients of the stream for `benchmarks.server`, in a process of their own: many connections, one loop, no library.

python -m benchmarks.listeners PORT READING SILENT

Connects, prints `ready`, listens until its stdin is closed, and prints what it saw as JSON. Every frame of every
connection is looked at: its position must follow the last one's, and its event's time says how long it took. That time
stands before the commit, so what is measured is a little more than the way from the commit to the client.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

BIN = 0.0005
"""Seconds; latencies are counted, not kept."""
PIECE = 1 << 18
HANDSHAKE = (
    "GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CLOSE = 0x88
MOST_KNOWN = 500
"""Pieces that are remembered by what is in them."""


@dataclass
class Listener:
    connection: socket.socket
    rest: bytes = b""
    """The beginning of a frame that has not come whole."""
    position: int = 0
    code: int = 0
    """With which it was closed, if it was."""


@dataclass
class Piece:
    """Whole frames as they came in at once, and what is left after them."""

    first: int = 0
    last: int = 0
    gaps: int = 0
    times: list[float] = field(default_factory=list)
    """When each frame's event happened."""
    rest: bytes = b""
    code: int = 0
    came: Counter[int] = field(default_factory=Counter)
    """How many clients had it, by when that was, in bins."""


class Seen:
    """All clients are sent the same, mostly in the same pieces: each piece is taken apart once."""

    def __init__(self) -> None:
        self.frames = 0
        self.gaps = 0
        self._times: dict[int, float] = {}
        self._known: dict[bytes, Piece] = {}
        self._pieces: list[Piece] = []

    def take(self, listener: Listener, data: bytes, now: float) -> None:
        data = listener.rest + data if listener.rest else data
        piece = self._known.get(data)
        if piece is None:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            piece = self._known[data] = self._taken_apart(data)
            self._pieces.append(piece)
        listener.rest = piece.rest
        listener.code = piece.code or listener.code
        if piece.times:
            self.gaps += piece.gaps + bool(listener.position and piece.first != listener.position + 1)
            listener.position = piece.last
            self.frames += len(piece.times)
            piece.came[int(now / BIN)] += 1

    def _taken_apart(self, data: bytes) -> Piece:
        piece = Piece()
        at, end = 0, len(data)
        while at + 2 <= end:
            size, head = data[at + 1], 2
            if size >= 126:
                head = 4 if size == 126 else 10
                if at + head > end:
                    break
                (size,) = struct.unpack_from("!H" if head == 4 else "!Q", data, at + 2)
            if at + head + size > end:
                break
            self._frame(piece, data[at], data[at + head : at + head + size])
            at += head + size
        piece.rest = data[at:]
        return piece

    def _frame(self, piece: Piece, kind: int, text: bytes) -> None:
        if kind == CLOSE:
            (piece.code,) = struct.unpack_from("!H", text)
            return
        if not text.startswith(b'{"position":'):
            return  # a heartbeat, or a ping
        position = int(text[12 : text.index(b",")])
        if position not in self._times:
            self._times[position] = json.loads(text)["at"]
        piece.gaps += bool(piece.last and position != piece.last + 1)
        piece.first = piece.first or position
        piece.last = position
        piece.times.append(self._times[position])

    def late(self) -> Counter[int]:
        """All frames that came, by how many bins after their events."""
        late: Counter[int] = Counter()
        for piece in self._pieces:
            for happened in piece.times:
                bins = int(happened / BIN)
                for came, clients in piece.came.items():
                    late[came - bins] += clients
        return late


def connect(port: int) -> Listener:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(HANDSHAKE.encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    assert head.startswith(b"HTTP/1.1 101"), head
    connection.setblocking(False)
    return Listener(connection, rest=head.partition(b"\r\n\r\n")[2])


def main() -> None:
    port, reading, silent = (int(word) for word in sys.argv[1:])
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    seen = Seen()
    selector = selectors.DefaultSelector()
    listeners = [connect(port) for _ in range(reading)]
    for listener in listeners:
        selector.register(listener.connection, selectors.EVENT_READ, listener)
    mute = [connect(port) for _ in range(silent)]
    selector.register(0, selectors.EVENT_READ, None)
    print("ready", flush=True)
    told = False
    while not told:
        for key, _mask in selector.select():
            if key.data is None:
                told = not os.read(0, 4096)
                continue
            try:
                piece = key.data.connection.recv(PIECE)
            except ConnectionError:
                piece = b""
            if piece:
                seen.take(key.data, piece, time.time())
            else:
                selector.unregister(key.data.connection)
    print(json.dumps(report(seen, listeners, mute)), flush=True)


def report(seen: Seen, listeners: list[Listener], mute: list[Listener]) -> dict[str, object]:
    return {
        "frames": seen.frames,
        "gaps": seen.gaps,
        "late": seen.late(),
        "least": min((listener.position for listener in listeners), default=0),
        "cut_off": sum(listener.code != 0 for listener in listeners),
        "silent_cut_off": sum(_is_over(listener.connection) for listener in mute),
        "cpu_s": time.process_time(),
    }


def _is_over(connection: socket.socket) -> bool:
    """Whether the server has dropped a connection that was never read from."""
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return error != 0 or state != 1  # 1 is TCP_ESTABLISHED


if __name__ == "__main__":
    main()
