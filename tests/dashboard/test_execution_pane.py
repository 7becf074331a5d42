"""The pane of one step: what went in and out, its log and attempts, its error with buttons, its files (I4, C5)."""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEEDS_FILE: dict[str, Any] = {
    "name": "retries",
    "inputs": {"greeting": "hello"},
    "steps": [
        {"id": "first", "run": "echo {{ inputs.greeting }}"},
        {"id": "reads", "needs": ["first"], "tool": "files.read", "with": {"path": "there.txt"}},
        {"id": "after", "needs": ["reads"], "run": "echo after"},
    ],
}


def pane(page: Any, step: str) -> Any:
    return page.get_by_role("complementary", name=f"Step {step}", exact=True)


async def test_i4_input_output_and_attempts(server: Server, open_page: Any) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=first")
    step = pane(page, "first")
    await expect(step.get_by_role("group", name="Output")).to_contain_text('"stdout": "hello\\n"')
    await step.get_by_role("tab", name="Input").click()
    await expect(step.get_by_role("group", name="Input")).to_contain_text("echo hello")
    await step.get_by_role("tab", name="Attempts").click()
    await expect(step.get_by_role("row").nth(1)).to_contain_text("completed")
    await step.get_by_role("button", name="Close the step").click()
    await expect(step).to_have_count(0)


async def test_i4_the_log_grows_live_and_is_searched(server: Server, project: Project, open_page: Any) -> None:
    script = "echo one; echo two >&2; while ! test -e go; do sleep 0.05; done; echo three"
    execution = server.api.start({"name": "log", "steps": [{"id": "talks", "run": script}]})["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=talks")
    log = pane(page, "talks").get_by_role("log")
    await expect(log).to_contain_text("one")
    await expect(log.locator(".is-error")).to_contain_text("two")
    (project.path / "go").touch()
    await expect(log).to_contain_text("three")
    await pane(page, "talks").get_by_label("Search the log").fill("THRE")
    await expect(pane(page, "talks").get_by_text("1 of 3 lines")).to_be_visible()
    await expect(log).not_to_contain_text("one")


async def test_i4_events_are_handed_over_in_a_tab_that_is_hidden(
    server: Server, project: Project, open_page: Any
) -> None:
    script = "echo one; while ! test -e go; do sleep 0.05; done; echo two"
    execution = server.api.start({"name": "log", "steps": [{"id": "talks", "run": script}]})["id"]
    page = await open_page(server)
    await page.add_init_script("window.requestAnimationFrame = () => 0")  # a hidden tab has no frames
    await page.goto(f"{server.address}/executions/{execution}?view=list&step=talks")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await expect(pane(page, "talks").get_by_text("1 line", exact=True)).to_be_visible()
    (project.path / "go").touch()
    await expect(pane(page, "talks").get_by_text("2 lines")).to_be_visible()


async def test_c5_an_error_has_its_advice_as_buttons_and_retry_works(
    server: Server, project: Project, open_page: Any
) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=reads")
    step = pane(page, "reads")
    await expect(step.get_by_role("alert")).to_contain_text("there.txt")
    (project.path / "there.txt").write_text("it is here")
    await step.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".fact-state")).to_contain_text("completed")
    await expect(step).to_contain_text("completed")
    await step.get_by_role("tab", name="Output").click()
    await expect(step.get_by_role("group", name="Output")).to_contain_text("it is here")


async def test_c5_a_step_is_retried_with_other_input(server: Server, project: Project, open_page: Any) -> None:
    (project.path / "other.txt").write_text("the other file")
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=reads")
    await pane(page, "reads").get_by_role("button", name="Edit input").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Input")
    await field.fill("{not json")
    await expect(dialog).to_contain_text("This is not JSON")
    await field.fill('{"path": "other.txt"}')
    await expect(dialog).to_contain_text("Changes: path")
    await dialog.get_by_role("button", name="Retry with this input").click()
    await expect(page.locator(".fact-state")).to_contain_text("completed")
    assert server.api.get(f"/api/executions/{execution}/steps/reads").json["input"]["path"] == "other.txt"


async def test_c5_a_step_is_skipped_after_a_question(server: Server, open_page: Any) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=reads")
    await pane(page, "reads").get_by_role("button", name="Skip").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("null")
    await dialog.get_by_role("button", name="Skip the step").click()
    await expect(pane(page, "reads")).to_contain_text("skipped")
    await expect(page.locator(".fact-state")).not_to_contain_text("failed")


async def test_c5_a_step_and_all_after_it_run_again_in_a_new_execution(server: Server, open_page: Any) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=first")
    await pane(page, "first").get_by_role("button", name="Run again from here").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Inputs of the plan").fill('{"greeting": "good day"}')
    await dialog.get_by_role("button", name="Run again", exact=True).click()
    await expect(page).not_to_have_url(re.compile(execution))
    fork = page.url.rpartition("/")[2].partition("?")[0]
    await expect(page.locator(".fact-state")).to_contain_text("failed")
    assert server.api.get(f"/api/executions/{fork}").json["inputs"] == {"greeting": "good day"}


async def test_c5_a_step_runs_again_with_other_arguments_of_its_own(server: Server, open_page: Any) -> None:
    execution = server.api.start({"name": "p", "steps": [{"id": "one", "run": "echo before"}]}, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=one")
    await pane(page, "one").get_by_role("button", name="Run again from here").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("The step in the plan").fill('{"id": "one", "run": "echo after"}')
    await dialog.get_by_role("button", name="Run again", exact=True).click()
    await expect(page).not_to_have_url(re.compile(execution))
    fork = page.url.rpartition("/")[2].partition("?")[0]
    await expect(page.locator(".fact-state")).to_contain_text("completed")
    (step,) = server.api.get(f"/api/executions/{fork}").json["steps"]
    assert step["output"]["stdout"] == "after\n"


async def test_i4_a_refused_action_says_why(server: Server, open_page: Any) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?step=reads", allow=("422", "409", "400"))
    await pane(page, "reads").get_by_role("button", name="Edit input").click()
    await page.get_by_role("dialog").get_by_label("Input").fill('{"path": "x", "nonsense": 1}')
    await page.get_by_role("button", name="Retry with this input").click()
    await expect(page.get_by_role("alert").first).to_contain_text("nonsense")


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    head = struct.pack("!IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x20\x80\xff" * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def test_i4_pictures_are_shown_and_pages_are_only_saved(server: Server, project: Project, open_page: Any) -> None:
    execution = server.api.start(NEEDS_FILE, wait=60)["id"]
    folder = project.home / "artifacts" / execution / "first"
    folder.mkdir(parents=True)
    (folder / "shot.png").write_bytes(png())
    (folder / "page.html").write_text("<script>alert(1)</script>")
    page = await open_page(server, f"/executions/{execution}?step=first")
    await pane(page, "first").get_by_role("tab", name="Files").click()
    picture = pane(page, "first").get_by_role("img", name="shot.png")
    await expect(picture).to_have_js_property("naturalWidth", 8)
    link = pane(page, "first").get_by_role("link", name="page.html")
    async with page.expect_download() as download:
        await link.click()
    saved = await download.value
    assert saved.suggested_filename == "page.html"


HOSTILE = "<script>document.title='taken'</script>"
BIDI = "abc\u202edcba"


async def test_i4_hostile_names_and_outputs_stay_text(server: Server, open_page: Any) -> None:
    script = r"""printf '\033[31mred\033[0m \033]0;title\007end\n<img src=x onerror=alert(1)>\na\342\200\256b\n'"""
    plan = {
        "name": f"{HOSTILE} {BIDI}",
        "steps": [
            {"id": "says", "run": script},
            {"id": "fails", "run": f'echo "{HOSTILE}" >&2; exit 1'},
        ],
    }
    execution = server.api.start(plan, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=says")
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text(f"{HOSTILE} abc\\u202edcba")
    await pane(page, "says").get_by_role("tab", name="Log").click()
    log = pane(page, "says").get_by_role("log")
    await expect(log).to_contain_text("red end")
    await expect(log).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(log).to_contain_text("a\\u202eb")
    for view in ("graph", "timeline", "list"):
        await page.goto(f"{server.address}/executions/{execution}?view={view}&step=fails")
        await expect(pane(page, "fails").get_by_role("alert")).to_contain_text("<script>")
    assert await page.title() != "taken"
    assert await page.locator("main script, main img").count() == 0


async def test_i4_a_line_of_5_mb_is_cut_and_shown_on(server: Server, open_page: Any) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last"
    execution = server.api.start({"name": "long", "steps": [{"id": "long", "run": script}]}, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=long")
    step = pane(page, "long")
    await step.get_by_role("tab", name="Log").click()
    log = step.get_by_role("log")
    await expect(log).to_contain_text("last")
    shown = await step.evaluate("element => element.textContent.length")
    assert shown < 100_000
    await log.get_by_role("button", name="characters").first.click()
    whole = step.get_by_role("region", name="Whole line")
    await expect(whole.get_by_role("button", name="Show more")).to_be_visible()
