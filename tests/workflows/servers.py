"""The servers around the plans: each remembers what it took, and fails as the faults say.

What a server failed to take is not among what it remembers; what it took and did not confirm is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import Faults
from loopback import Asked, reply
from message_world import MailServer, WebServer
from search_world import searxng

__all__ = ["FILE", "AtTheDesk", "Busy", "MailMoods", "Shop"]

HITS = [("Windlass", "https://x.test/windlass", "hauls"), ("Capstan", "https://x.test/capstan", "turns")]
FILE = b"0123456789" * 1000
BUSY = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
ROWS = [["Name", "Fathoms"], ["Rope", "120"], ["Chain", "45"]]
PAGE = """<!doctype html><title>The shop</title><h1>The shop</h1>
<input id=who> <button onclick=order()>Order</button> <a href=/shop/file.bin download=file.bin>The list</a>
<p id=said></p><div id=rows></div>
<script>
async function ask(path, how) {  // as pages do: until it is there
  for (;;) {
    try { const found = await fetch(path, how); if (found.ok) return found.json() } catch {}
    await new Promise(done => setTimeout(done, 20))
  }
}
const key = Math.random().toString(36).slice(2)
async function order() {
  await ask("/shop/orders/" + key, {method: "PUT", body: JSON.stringify({who: who.value})})
  said.textContent = "Thank you, " + who.value
}
ask("/shop/rows").then(found => {
  const cell = (kind, text) => `<${kind}>${text}</${kind}>`
  const row = (cells, at) => cell("tr", cells.map(text => cell(at ? "td" : "th", text)).join(""))
  rows.innerHTML = cell("table", found.map(row).join(""))
})
</script>"""


@dataclass
class Shop:
    """A web server: an API, a search engine, files, and a shop with pages for people."""

    faults: Faults
    kept: list[tuple[str, Any]] = field(default_factory=list)
    """What it was told to do and did, in this order."""
    orders: dict[str, Any] = field(default_factory=dict)
    """What was ordered in the shop, by where it was put."""

    def routes(self) -> dict[str, Any]:
        return {"*": self._route}

    async def _route(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        share = 0.0 if asked.path == "/favicon.ico" else 0.1 if asked.path.startswith("/shop") else 0.05
        way = self.faults.one_of("503", "cut before", "cut after") if self.faults.strikes(share) else ""
        told = self._answer(asked) if way in ("", "cut after") else reply("busy", 503)
        if "cut" in way:
            writer.transport.abort()
            return
        writer.write(told.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        await writer.drain()

    def _answer(self, asked: Asked) -> bytes:
        match asked.path:
            case "/search":
                return searxng(HITS)  # type: ignore[no-any-return]
            case "/item":
                return _json({"name": "rope", "price": 21})
            case "/file" | "/shop/file.bin":
                return reply(FILE, content_type="application/octet-stream")
            case "/shop":
                return reply(PAGE, content_type="text/html")
            case "/shop/rows":
                return _json(ROWS)
        if asked.method == "HEAD":
            return reply(b"", content_length="0")
        given = json.loads(asked.body or b"null")
        if asked.path.startswith("/shop/orders/"):
            self.orders[asked.path] = given
            return _json({"done": True})
        if asked.method == "GET":
            return reply("not here", 404)
        self.kept.append((asked.method, given))
        return _json({"done": len(self.kept)})


def _json(value: Any) -> bytes:
    return reply(json.dumps(value), content_type="application/json")


class Busy(list[str]):
    """The answers of a service: busy, or gone before it has taken a message or after."""

    WAYS = ("503", "503", "cut before", "cut after")

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.server: WebServer | None = None

    def __bool__(self) -> bool:
        return self._faults.strikes()

    def pop(self, index: Any = 0) -> str:
        assert self.server is not None
        way = self._faults.one_of(*self.WAYS)
        if way != "cut after":
            self.server.requests.pop()
        return BUSY if way == "503" else "hang up"


class MailMoods(dict[str, str]):
    """The answers of a mail server, wrong at some point of one conversation in twenty."""

    WAYS = {
        "421 to MAIL": ("MAIL", "421 4.3.2 closing"),
        "cut at MAIL": ("MAIL", "hang up"),
        "451 to RCPT": ("RCPT", "451 4.3.0 try later"),
        "421 to DATA": ("DATA", "421 4.3.2 closing"),
        "cut at DATA": ("DATA", "hang up"),
        "451 to the mail": ("END", "451 4.3.0 try later"),
        "cut before it is taken": ("END", "hang up"),
        "cut after it is taken": ("END", "hang up"),
    }

    def __init__(self, server: MailServer, faults: Faults) -> None:
        self._server, self._faults, self._way = server, faults, ""

    def get(self, point: str, default: Any = None) -> Any:
        if point == "MAIL":
            self._way = self._faults.one_of(*self.WAYS) if self._faults.strikes() else ""
        where, answer = self.WAYS.get(self._way, ("", ""))
        if where != ("RCPT" if "@" in point else point):
            return default
        if where == "END" and "after" not in self._way:
            self._server.mails.pop()
        return answer


class AtTheDesk:
    """What the MCP server of `mcp_server.py` shares with us: its mood, its process, its book."""

    WAYS = ("killed", "error", "ends before", "ends after")

    def __init__(self, folder: Path, faults: Faults) -> None:
        self.folder, self._faults = folder, faults
        folder.mkdir(parents=True)

    def spoil(self) -> None:
        """The next use of it is to fail."""
        way = self._faults.one_of(*self.WAYS)
        if way != "killed":
            (self.folder / "mood").write_text(way)
            return
        with suppress(FileNotFoundError, ProcessLookupError):  # it was never started, or has ended
            os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)

    def clear(self) -> None:
        for name in ("mood", "notes"):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def notes(self) -> list[str]:
        book = self.folder / "notes"
        return book.read_text().splitlines() if book.exists() else []
