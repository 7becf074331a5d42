"""Ports for what is started anew at one address, or is not there at all: kept, so that nobody else is given them."""

from __future__ import annotations

import socket

__all__ = ["KeptPort"]


class KeptPort:
    """Bound, and not listened at: whoever connects is refused, until a server of the test takes this very number.

    A number that was free a moment ago can be given to any process that asks for a port, or connects from one.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets a server that says so, too, have it
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()
