"""Pages that never end, are too large, crash, or pester; each ends in a sentence, and the next page works (H2)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from browser_world import SHARED, Web, page
from loopback import Asked, reply, serve

from windlass.errors import Category

Eventually = Callable[[Callable[[], Any]], Awaitable[Any]]
BUSY_TOO = (0.5, 2, 8, 30)
"""Seconds that a page gets: on a busy machine it has not even begun after the first of them."""


async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 Told\r\ncontent-type: text/html\r\n\r\n<p>Begun")
    await writer.drain()
    await asyncio.Event().wait()


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@SHARED
async def test_h2_a_page_that_loads_for_ever_ends_in_time_and_can_be_looked_at(shared: Web) -> None:
    async with serve({"/never": never, "/silent": silent, "/ok": page("Fine")}) as server:
        for seconds in BUSY_TOO:
            failure = await shared.failure("open", url=server.url("/never"), timeout=seconds)
            if "it shows: " in failure.message:
                break
        assert failure.message == f"{server.url('/never')} did not load within {seconds} s; it shows: Begun"
        assert await shared.text() == "Begun"
        failure = await shared.failure("open", url=server.url("/silent"), until="idle", timeout=0.5)
        assert "/silent did not become idle within 0.5 s" in failure.message
        await shared.use("open", url=server.url("/ok"))
        assert await shared.text() == "Fine"


@SHARED
async def test_h2_redirects_without_an_end_are_told_so(shared: Web) -> None:
    async with serve({"*": reply("", 302, location="/again")}) as server:
        failure = await shared.failure("open", url=server.url("/"))
        assert failure.message == f"{server.url('/')} cannot be opened: it redirects endlessly"
        assert failure.category is Category.LOGIC


@SHARED
async def test_h2_what_is_not_there_is_told_by_its_reason(shared: Web, port: int) -> None:
    failure = await shared.failure("open", url=f"http://127.0.0.1:{port}/")
    assert failure.category is Category.TRANSIENT
    assert f"127.0.0.1:{port} cannot be connected to: " in failure.message
    async with serve({"*": b"\0\0\0 nonsense\r\n\r\n"}) as server:
        assert "cannot be opened" in (await shared.failure("open", url=server.url("/"))).message


@SHARED
async def test_h2_dialogs_are_dismissed_and_told(shared: Web) -> None:
    body = """<p id=o></p><script>
    alert('Hello'); o.textContent = 'answered: ' + confirm('Sure?') + prompt('Name?');
    addEventListener('beforeunload', e => { e.preventDefault(); e.returnValue = 'stay'; });
    </script><button onclick="1">b</button>"""
    async with serve({"/": page(body), "/next": page("Next")}) as server:
        opened = await shared.use("open", url=server.url("/"))
        assert await shared.text(selector="#o") == "answered: falsenull"
        assert "a dialog was dismissed (alert): Hello" in opened["notes"]
        assert "a dialog was dismissed (alert): Hello\n" in shared.said
        await shared.use("click", selector="button")
        await shared.use("open", url=server.url("/next"))
        assert await shared.text() == "Next", "a page cannot keep anybody"


@SHARED
async def test_h2_popups_have_names_and_a_limit(shared: Web, eventually: Eventually) -> None:
    async def told(words: str) -> bool:  # the next use tells what happened meanwhile
        await shared.use("text", page="main")
        return any(words in said for said in shared.said)

    async with serve(
        {
            "/": page("<button onclick=\"for (let i = 0; i < 9; i++) window.open('/pop?' + i, '_blank')\">Go</button>"),
            "/pop": page("Popped up"),
        }
    ) as server:
        await shared.use("open", url=server.url("/"))
        for _ in range(4):  # a click opens one, whatever the page asks for
            await shared.use("click", text="Go")
        await eventually(lambda: told("page: popup-1"))
        await shared.use("wait", page="popup-1", text="Popped up")
        failure = await shared.failure("text", page="other")
        names = failure.message.rpartition(": ")[2].split(", ")
        assert set(names) <= {"main", "popup-1", "popup-2", "popup-3"}
        await eventually(lambda: told("too many pages are open"))


@SHARED
async def test_h2_a_page_whose_script_never_ends_is_closed_and_the_next_one_works(
    shared: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tools.browser.session.CLOSING", 1.0)  # the page is busy, and closes no sooner
    async with serve({"/": page("<p>x</p><button onclick='while (1);'>Go</button>"), "/ok": page("Fine")}) as server:
        await shared.use("open", url=server.url("/"))
        for seconds in BUSY_TOO:
            failure = await shared.failure("click", text="Go", timeout=seconds)
            if "does not answer" in failure.message:
                break
        assert failure.message == (
            f"{server.url('/')} did not answer the click at the text 'Go', and does not answer at all: "
            "its scripts keep it busy, so the page was closed"
        )
        await shared.use("open", url=server.url("/ok"))
        assert await shared.text() == "Fine"


@SHARED
async def test_h2_a_page_that_takes_all_memory_crashes_alone(shared: Web) -> None:
    bomb = "<p id=x>x</p><button onclick='const a = []; for (;;) a.push(new Array(1e6).fill(0.5))'>Go</button>"
    async with serve({"/": page(bomb), "/ok": page("Fine")}) as server:
        await shared.use("open", "e-2", url=server.url("/ok"))
        await shared.use("open", url=server.url("/"))
        failure = await shared.failure("click", text="Go")
        if "crashed" not in failure.message:
            failure = await shared.failure("text")
        assert "crashed" in failure.message or "not open" in failure.message
        assert await shared.text("e-2") == "Fine", "the other execution's page is another process"
        await shared.use("open", url=server.url("/ok"))
        assert await shared.text() == "Fine"


@SHARED
async def test_h2_a_download_that_is_too_large_is_not_kept(shared: Web, eventually: Eventually) -> None:
    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 Told\r\ncontent-type: application/zip\r\n\r\n")
        while True:
            writer.write(b"\0" * 1_000_000)
            await writer.drain()

    links = page("<a href=/endless>Endless</a> <a href=/said>Said</a> <a href=/bomb download>Bomb</a>")
    said = reply(b"PK", content_type="application/zip", content_length=str(10**9))
    bomb = reply(gzip.compress(b"\0" * 80_000_000), content_type="application/x-thing", content_encoding="gzip")
    async with serve({"/": links, "/endless": endless, "/said": said, "/bomb": bomb}) as server:
        await shared.use("open", url=server.url("/"))
        for text in ("Endless", "Said", "Bomb"):
            failure = await shared.failure("download", text=text)
            assert failure.category is Category.RESOURCE, failure.message
            assert "the download is larger than 64mb, and was not kept" in failure.message
        assert not (shared.folder / "home" / "artifacts").exists()
        await eventually(lambda: not list(shared.temporary.glob("windlass-browser-*/files/*")))


@SHARED
async def test_h2_downloads_that_nobody_asked_for_are_not_taken(shared: Web, eventually: Eventually) -> None:
    file = reply(b"data", content_disposition="attachment; filename=virus.exe")
    async with serve({"/": page("<a href=/file>Get</a>"), "/file": file}) as server:
        await shared.use("open", url=server.url("/"))
        await shared.use("click", text="Get")
        await shared.use("wait", idle=True)
        failure = await shared.failure("open", url=server.url("/file"))
        assert "it is not a page but a file: use browser.download" in failure.message
        await shared.use("open", url=server.url("/"))
        assert "a download was not taken: virus.exe\n" in shared.said
        await eventually(lambda: not list(shared.temporary.glob("windlass-browser-*/files/*")))


@SHARED
async def test_h2_a_page_that_lies_to_our_scripts_lies_about_itself_only(shared: Web) -> None:
    lie = """<script>
    Object.defineProperty(HTMLElement.prototype, 'innerText', {get() { return {slice: () => 7, length: 0}; }});
    Array.prototype.slice = () => [{}];
    </script><table><tr><td>x</td></tr></table><a href=/>a</a>"""
    async with serve({"/": page(lie)}) as server:
        await shared.use("open", url=server.url("/"))
        for name in ("tables", "links", "text"):
            assert (await shared.failure(name)).category is Category.LOGIC, name
