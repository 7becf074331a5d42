"""Nothing that a page does reaches what the guard refuses (H2)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from browser_world import SHARED, Web, page
from loopback import Asked, Names, reply, serve

from windlass.errors import Category

TRIED = """<p id=out>trying</p><script>
const attempt = async (name, make) => { try { await make(); return name + ' came through'; } catch (e) { return ''; } };
const socket = url => new Promise((yes, no) => { const s = new WebSocket(url); s.onopen = yes; s.onerror = no; });
const image = url => new Promise((yes, no) => { const i = new Image(); i.onload = yes; i.onerror = no; i.src = url; });
const worker = url => new Promise((yes, no) => {
  const source = `fetch("${url}", {mode: 'no-cors'}).then(() => postMessage(1), () => postMessage(0))`;
  const w = new Worker(URL.createObjectURL(new Blob([source])));
  w.onmessage = e => e.data ? yes() : no();
});
(async () => {
  const all = await Promise.all(URLS.flatMap(url => [
    attempt('fetch ' + url, () => fetch(url, {mode: 'no-cors'})),
    attempt('image ' + url, () => image(url)),
    attempt('worker ' + url, () => worker(url)),
    attempt('socket ' + url, () => socket(url.replace(/^[a-z]+/, 'ws'))),
    attempt('beacon ' + url, async () => { navigator.sendBeacon(url, 'x'); throw 0; }),
  ]));
  const frame = document.createElement('iframe'); frame.src = URLS[0]; document.body.append(frame);
  const link = document.createElement('link'); link.rel = 'prefetch'; link.href = URLS[0]; document.head.append(link);
  await new Promise(yes => { frame.onload = yes; });
  out.textContent = 'tried: ' + all.filter(Boolean).join(', ');
})();
</script>"""


def trying(*urls: str) -> bytes:
    return page(f"<script>const URLS = {list(urls)!r};</script>{TRIED}")


async def test_h2_scripts_of_a_page_reach_no_other_port_no_metadata_and_no_file(make_web: Callable[..., Web]) -> None:
    routes: dict[str, Any] = {}
    async with serve({"*": page("inside")}) as inside, serve(routes) as server:
        web = make_web(private=(f"127.0.0.1:{server.port}",))
        routes["/"] = trying(
            inside.url("/secret"),
            f"http://localhost:{inside.port}/secret",
            f"http://[::1]:{inside.port}/secret",
            f"http://2130706433:{inside.port}/secret",
            "http://169.254.169.254/latest/meta-data/",
            "file:///etc/passwd",
        )
        opened = await web.use("open", url=server.url("/"), text="tried:")
        assert await web.text(selector="#out") == "tried:"
        assert inside.connections == 0
        notes = "".join(opened["notes"])
        assert "Blocked: 127.0.0.1 is a loopback address" in notes
        assert "Blocked: 169.254.169.254 is a cloud's metadata service" in notes
        assert any("Blocked" in said for said in web.said)


async def test_h2_a_redirect_inside_is_refused_and_the_error_says_by_whom(make_web: Callable[..., Web]) -> None:
    async with serve({"*": page("inside")}) as inside:
        away = reply("", 302, location=inside.url("/secret"))
        async with serve({"/": away}) as server:
            web = make_web(private=(f"127.0.0.1:{server.port}",))
            failure = await web.failure("open", url=server.url("/"))
            assert failure.category is Category.PERMISSION
            assert "Blocked: 127.0.0.1 is a loopback address" in failure.message
            assert failure.final
            assert inside.connections == 0


async def test_h2_a_name_that_changes_its_mind_leads_nowhere_else(make_web: Callable[..., Web]) -> None:
    async with serve({"*": page("inside")}) as server:
        names = Names(rebind_example=[["93.184.215.14"], ["127.0.0.1"]])
        web = make_web(private=(), resolve=names)
        failure = await web.failure("open", url=f"http://rebind.example:{server.port}/")
        assert "Blocked: rebind.example (127.0.0.1) is" in failure.message
        assert server.connections == 0


async def test_h2_the_name_is_resolved_here_and_never_by_the_browser(make_web: Callable[..., Web]) -> None:
    async with serve({"*": page("Hello")}) as server:
        names = Names(shop_example=[["127.0.0.1"]])
        web = make_web(private=(f"shop.example:{server.port}",), resolve=names)
        await web.use("open", url=f"http://shop.example:{server.port}/")
        assert await web.text() == "Hello"
        assert server.asked[0].headers["host"] == f"shop.example:{server.port}"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "data:text/html,hello",
        "chrome://version",
        "view-source:http://127.0.0.1/",
        "about:blank",
        "javascript:alert(1)",
        "http://127.0.0.1@example.com/",
        "ftp://127.0.0.1/",
    ],
)
async def test_h2_only_web_addresses_are_opened(web: Web, url: str) -> None:
    failure = await web.failure("open", url=url)
    assert failure.category is Category.CONFIGURATION
    assert list(web.temporary.iterdir()) == [], "nothing was started"


async def test_h2_what_is_private_is_refused_before_a_browser_starts(make_web: Callable[..., Web]) -> None:
    web = make_web(private=(), lists={"deny": ("example.com",)})
    for url in ("http://127.0.0.1/", "http://localhost:8080/", "http://169.254.169.254/", "https://example.com/"):
        assert (await web.failure("open", url=url)).category is Category.PERMISSION
    assert list(web.temporary.iterdir()) == []


@SHARED
@pytest.mark.parametrize("url", ["file:///etc/passwd", "chrome://version", "view-source:https://example.com"])
async def test_h2_a_click_does_not_lead_to_what_is_no_web_address(shared: Web, url: str) -> None:
    async with serve({"/": page(f"<a href='{url}'>Go</a> stays")}) as server:
        await shared.use("open", url=server.url("/"))
        await shared.use("click", text="Go")
        result = await shared.use("text")
        assert (result["url"], result["text"]) == (server.url("/"), "Go stays")


@SHARED
async def test_h2_the_browsers_own_controls_are_closed_to_pages(shared: Web) -> None:
    """Also where the settings open all of loopback."""
    routes: dict[str, Any] = {"/": page("Hello")}
    async with serve(routes) as server:
        await shared.use("open", url=server.url("/"))
        (profile,) = shared.temporary.glob("windlass-browser-*/profile/DevToolsActivePort")
        port = int(profile.read_text().split()[0])
        failure = await shared.failure("open", url=f"http://127.0.0.1:{port}/json/version")
        assert failure.message == f"Blocked: 127.0.0.1:{port} is the browser's own port"
        routes["/try"] = trying(f"http://127.0.0.1:{port}/json/version")
        await shared.use("open", url=server.url("/try"), text="tried:")
        assert await shared.text(selector="#out") == "tried:"


@SHARED
async def test_h2_websockets_go_through_the_door_where_they_may(shared: Web) -> None:
    async def shake(asked: Asked, writer: asyncio.StreamWriter) -> None:
        key = asked.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        writer.write(b"HTTP/1.1 101 Told\r\nupgrade: websocket\r\nconnection: upgrade\r\n")
        writer.write(f"sec-websocket-accept: {accept}\r\n\r\n".encode())
        writer.write(b"\x81\x05hello")
        await writer.drain()
        await asyncio.Event().wait()

    script = """<p id=o>-</p><script>
    new WebSocket(`ws://${location.host}/s`).onmessage = e => { o.textContent = e.data };
    </script>"""
    async with serve({"/": page(script), "/s": shake}) as server:
        await shared.use("open", url=server.url("/"), text="hello")


@SHARED
async def test_h2_nothing_leaves_by_udp(shared: Web) -> None:
    """WebRTC and WebTransport do not go through proxies."""
    heard: list[bytes] = []

    class Ear(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            heard.append(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Ear, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    script = f"""<p id=o>-</p><script>(async () => {{
      const settled = promise => Promise.race([promise, new Promise(yes => setTimeout(yes, 3000))]).catch(() => 0);
      const peer = new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{port}'}}]}});
      peer.createDataChannel('x');
      const gathered = new Promise(yes => {{
        peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && yes();
      }});
      await peer.setLocalDescription(await peer.createOffer());
      await Promise.all([settled(gathered), settled(new WebTransport('https://127.0.0.1:{port}/').ready)]);
      o.textContent = 'done';
    }})()</script>"""
    try:
        # A page of localhost is a secure context, which WebTransport asks for.
        async with serve({"/": page(script)}) as server:
            await shared.use("open", url=server.url("/"), text="done")
        assert heard == []
    finally:
        transport.close()


@SHARED
async def test_h2_a_page_may_neither_ask_where_one_is_nor_work_in_the_background(shared: Web) -> None:
    script = """<p id=o>-</p><script>(async () => {
      const locate = (yes, no) => navigator.geolocation.getCurrentPosition(yes, no);
      const where = new Promise(locate).then(() => 'known', e => 'no ' + e.code);
      const ask = n => navigator.permissions.query({name: n}).then(p => p.state);
      const paste = navigator.clipboard.readText().then(() => 'read', () => 'no');
      await navigator.serviceWorker.register('/sw.js');
      const works = navigator.serviceWorker.getRegistrations().then(all => all.length);
      const told = await Promise.all([where, ask('geolocation'), Notification.requestPermission(), paste, works]);
      o.textContent = 'told: ' + told.join(', ');
    })()</script>"""
    worker = reply("self.onfetch = () => {}", content_type="text/javascript")
    async with serve({"/": page(script), "/sw.js": worker}) as server:
        await shared.use("open", url=server.url("/"), text="told:")
        assert await shared.text(selector="#o") == "told: no 1, denied, denied, no, 0"
        assert [asked for asked in server.asked if asked.path == "/sw.js"] == []
