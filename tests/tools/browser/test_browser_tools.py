"""Every `browser.*` tool on a real Chromium and real servers (H2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from browser_world import SHARED, Web, page
from loopback import Asked, reply, serve

from windlass.errors import CUT_OFF, Category
from windlass.plan.model import Effect

FORM = """
<form action=/sent>
  <input name=who id=who><select name=size id=size><option value=s>Small<option value=l>Large</select>
  <button>Send it</button>
</form>
<p>First&nbsp;&nbsp; line</p><div hidden>secret</div><p>Last line</p>
<table><tr><th>Name<th>Age</tr><tr><td>Ana<td>31</tr></table>
<table><tr><td>only</td></tr></table>
<a href="/there?x=1">Over there</a> <a href="https://example.com/">Away</a>
"""


def sent(asked: Asked) -> bytes:
    return page(f"you sent {asked.target.partition('?')[2]}")


@SHARED
async def test_h2_a_form_is_filled_and_sent_and_the_next_page_is_read(shared: Web) -> None:
    async with serve({"/": page(FORM), "/sent": sent}) as server:
        opened = await shared.use("open", url=server.url("/"))
        assert (opened["status"], opened["title"], opened["page"]) == (200, "A title", "main")
        await shared.use("fill", selector="#who", value="Ana")
        await shared.use("select", selector="#size", options=["Large"])
        clicked = await shared.use("click", text="Send it")
        await shared.use("wait", text="you sent")
        assert await shared.text() == "you sent who=Ana&size=l"
        assert clicked["url"].startswith(server.url("/"))


@SHARED
async def test_h2_text_is_what_a_person_sees_and_bounded(shared: Web) -> None:
    async with serve({"/": page(FORM), "/huge": page("ä" * 3_000_000)}) as server:
        await shared.use("open", url=server.url("/"))
        whole = await shared.use("text")
        assert "First line\n\nLast line" in whole["text"]
        assert "secret" not in whole["text"]
        assert await shared.text(selector="table >> nth=1") == "only"
        short = await shared.use("text", max_bytes=10)
        assert (len(short["text"].encode()), short["truncated"]) == (10, True)
        await shared.use("open", url=server.url("/huge"))
        huge = await shared.use("text")
        assert (len(huge["text"].encode()), huge["truncated"]) == (1024 * 1024, True)


@SHARED
async def test_h2_tables_are_rows_and_links_are_whole_addresses(shared: Web) -> None:
    async with serve({"/": page(FORM)}) as server:
        await shared.use("open", url=server.url("/"))
        assert (await shared.use("tables"))["tables"] == [[["Name", "Age"], ["Ana", "31"]], [["only"]]]
        links = await shared.use("links")
        assert links["links"] == [
            {"text": "Over there", "url": server.url("/there?x=1")},
            {"text": "Away", "url": "https://example.com/"},
        ]
        assert (await shared.use("links", most=1))["truncated"] is True
        assert (await shared.use("links", selector="form"))["links"] == []


@SHARED
async def test_h2_keys_are_pressed_where_the_focus_is_or_in_a_field(shared: Web) -> None:
    body = "<input id=i onkeydown=\"document.title = event.key\"><p onclick=''>x</p>"
    async with serve({"/": page(body)}) as server:
        await shared.use("open", url=server.url("/"))
        await shared.use("press", selector="#i", key="ArrowDown")
        assert (await shared.use("text"))["title"] == "ArrowDown"
        await shared.use("press", key="b")
        assert (await shared.use("text"))["title"] == "b"


@SHARED
async def test_h2_waiting_knows_text_selectors_addresses_rest_and_what_is_gone(shared: Web) -> None:
    body = """<p id=old>Working</p><script>
    const go = () => { old.remove(); document.body.append('Ready'); history.pushState({}, '', '/done'); }
    addEventListener('click', go)</script>"""
    async with serve({"/": page(body)}) as server:
        await shared.use("open", url=server.url("/"), selector="#old", text="Working", until="idle")
        await shared.use("click", selector="#old")
        await shared.use("wait", text="Ready")
        await shared.use("wait", selector="#old", gone=True)
        await shared.use("wait", url="**/done")
        await shared.use("wait", idle=True)
        assert (await shared.use("wait", text="Working", gone=True))["url"] == server.url("/done")


@SHARED
async def test_h2_what_did_not_come_is_told_with_the_page_and_what_it_shows(shared: Web, patient_glance: None) -> None:
    async with serve({"/": page("<p>Still</p> working <p>Still</p>")}) as server:
        await shared.use("open", url=server.url("/?key=hidden"))
        failure = await shared.failure("wait", text="Ready", timeout=1)
        shows = "it shows: Still working Still"
        assert failure.message == f"{server.url('/?…')} did not show the text 'Ready' within 1 s; {shows}"
        assert failure.category is Category.TRANSIENT
        failure = await shared.failure("click", selector="#button", timeout=0.5)
        assert "had nothing to click at '#button' within 0.5 s" in failure.message
        failure = await shared.failure("click", selector="p", timeout=60)
        assert failure.category is Category.LOGIC
        assert "matches 2 elements" in failure.message


@SHARED
async def test_h2_pictures_and_pdfs_are_artifacts_with_names_of_their_own(shared: Web) -> None:
    async with serve({"/": page("<h1>Hello</h1><div style='height: 30000px'></div>")}) as server:
        await shared.use("open", url=server.url("/"))
        first = await shared.use("screenshot")
        second = await shared.use("screenshot", full=True)
        third = await shared.use("screenshot", selector="h1", name="../../h1")
        assert [result["path"] for result in (first, second, third)] == [
            "artifacts/e-1/a/screenshot.png",
            "artifacts/e-1/a/screenshot-2.png",
            "artifacts/e-1/a/h1.png",
        ]
        for result in (first, second, third):
            data = shared.file(result).read_bytes()
            assert data.startswith(b"\x89PNG")
            assert (len(data), hashlib.sha256(data).hexdigest()) == (result["bytes"], result["sha256"])
            assert shared.file(result).stat().st_mode & 0o777 == 0o600
        height = int.from_bytes(shared.file(second).read_bytes()[20:24], "big")
        assert height == 16_384, "only the upper part of a page that is too tall"
        assert any("pixels tall" in note for note in second["notes"])
        pdf = await shared.use("pdf")
        assert shared.file(pdf).read_bytes().startswith(b"%PDF")


@SHARED
async def test_h2_a_download_is_kept_among_the_artifacts(shared: Web) -> None:
    file = reply(b"\0data" * 1000, content_disposition='attachment; filename="../x y.bin"')
    async with serve({"/": page("<a href=/file>Get it</a>"), "/file": file}) as server:
        await shared.use("open", url=server.url("/"))
        result = await shared.use("download", text="Get it")
        assert shared.file(result).read_bytes() == b"\0data" * 1000
        assert shared.file(result).parent == shared.folder / "home" / "artifacts" / "e-1" / "a"
        assert result["path"].endswith("y.bin")
        assert list(shared.temporary.glob("windlass-browser-*/files/*")) == []


@SHARED
async def test_h2_pages_have_names_and_are_closed_one_by_one_or_together(shared: Web) -> None:
    async with serve({"/a": page("This is A"), "/b": page("This is B")}) as server:
        await shared.use("open", url=server.url("/a"))
        await shared.use("open", url=server.url("/b"), page="other")
        assert await shared.text(page="main") == "This is A"
        assert await shared.text() == "This is B", "the one that was opened last"
        assert await shared.use("close", page="other") == {"closed": 1}
        failure = await shared.failure("text", page="other")
        assert "'other' is not open; there are: main" in failure.message
        assert await shared.use("close") == {"closed": 1}
        failure = await shared.failure("text")
        assert failure.message == "this execution has no page open: it was closed with browser.close"
        assert failure.advice == ("open the page again: put a browser.open before this step",)
        assert await shared.use("close") == {"closed": 0}


@SHARED
async def test_h2_a_value_of_the_environment_is_filled_in_and_never_told(shared: Web, patient_glance: None) -> None:
    shared.env["SHOP_PASSWORD"] = "hunter2-and-more"
    async with serve({"/": page(FORM), "/sent": sent}) as server:
        await shared.use("open", url=server.url("/"))
        await shared.use("fill", selector="#who", value_env="SHOP_PASSWORD")
        await shared.use("click", text="Send it")
        result = await shared.use("wait", text="you sent")
        assert any("who=hunter2-and-more" in asked.target for asked in server.asked)
        assert "hunter2" not in str(result) + str(await shared.use("text")) + str(await shared.use("links"))
        failure = await shared.failure("wait", text="something else", timeout=0.5)
        assert "it shows:" in failure.message
        assert "hunter2" not in failure.message
        failure = await shared.failure("fill", selector="#who", value_env="NOT_THERE")
        assert failure.category is Category.CONFIGURATION


@SHARED
async def test_h2_statuses_are_failures_unless_the_step_expects_them(shared: Web, patient_glance: None) -> None:
    async with serve({"/gone": page("Not here", 404), "/busy": page("Later", 503, retry_after="7")}) as server:
        failure = await shared.failure("open", url=server.url("/gone"))
        assert failure.message == f"{server.url('/gone')}: status 404; it shows: Not here"
        assert failure.category is Category.LOGIC
        failure = await shared.failure("open", url=server.url("/busy"))
        assert (failure.category, failure.retry_after) == (Category.TRANSIENT, 7.0)
        assert (await shared.use("open", url=server.url("/gone"), ok=[404]))["status"] == 404


async def test_h2_wrong_arguments_are_told_before_anything_starts(web: Web) -> None:
    for name, arguments in {
        "open": {"url": "file:///etc/passwd"},
        "click": {"selector": "a", "text": "b"},
        "fill": {"selector": "a"},
        "wait": {},
        "press": {"key": ""},
        "screenshot": {"full": True, "selector": "a"},
        "text": {"max_bytes": "2mb"},
        "close": {"page": "../x"},
    }.items():
        assert web.tools[f"browser.{name}"].validate(arguments), name
    assert list(web.temporary.iterdir()) == []


async def test_h2_what_may_send_something_is_never_repeated_unasked(web: Web) -> None:
    effects = {name.partition(".")[2]: tool.effect({}) for name, tool in web.tools.items()}
    assert {name for name, effect in effects.items() if effect is Effect.ONCE} == {"click", "press", "download"}
    assert {name for name, effect in effects.items() if effect is Effect.NONE} == {"text", "tables", "links", "wait"}


ORDER = """<button id=order onclick="fetch('/order', {method: 'PUT', keepalive: true}); busy()"
  onkeydown="fetch('/order', {method: 'PUT', keepalive: true}); busy()">Order</button>
<script>function busy() { const begun = Date.now(); while (Date.now() - begun < 60000); }</script>"""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("click", {"text": "Order"}),
        pytest.param("download", {"text": "Order"}, marks=pytest.mark.soak),
        pytest.param("press", {"selector": "#order", "key": "a"}, marks=pytest.mark.soak),
    ],
)
async def test_h2_a_failure_after_the_page_was_acted_on_leaves_the_outcome_open(
    make_web: Callable[..., Web], tool: str, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    web = make_web()
    monkeypatch.setattr("windlass.tools.browser.session.CLOSING", 1.0)  # the page is busy, and closes no sooner
    async with serve({"/": page(ORDER), "/order": page("")}) as server:
        await web.use("open", url=server.url("/"))
        early = await web.failure(
            tool,
            **{**arguments, "text": "Missing"} if "text" in arguments else {**arguments, "selector": "#missing"},
            timeout=0.5,
        )
        assert early.kind == "", "nothing was clicked, so it can be tried again"
        for seconds in (0.5, 2, 8, 30):  # a busy machine has not even found the button within half a second
            late = await web.failure(tool, **arguments, timeout=seconds)
            if late.kind:
                break
            assert "/order" not in {asked.path for asked in server.asked}, late
        assert late.kind == CUT_OFF, late


async def test_h2_health_names_the_browser_or_how_to_get_one(web: Web, make_web: Callable[..., Web]) -> None:
    health = await web.made.health()
    assert health.ok
    assert "Chrom" in health.detail
    missing = await make_web(path="no-such-browser").made.health()
    assert not missing.ok
    assert missing.advice == "apt install chromium"
