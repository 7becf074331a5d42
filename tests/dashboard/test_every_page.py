"""Every page but that of one execution: axe finds no serious fault, a phone is wide enough, keys lead there (I4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from server_process import Server

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = {
    "e": ("/", "Executions"),
    "a": ("/approvals", "Approvals"),
    "h": ("/history", "History"),
    "t": ("/tools", "Tools and runtimes"),
    "b": ("/budget", "Budget"),
    "s": ("/settings", "Settings"),
}
RUN = """async () => {
  const found = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]});
  return found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html} ${node.failureSummary}`));
}"""
FORM = "name: p\ninputs: {who: you, loud: false, names: [a]}\nsteps: [{id: a, run: echo {{ inputs.who }}}]\n"


@pytest.fixture
def lively(server: Server) -> Server:
    """A home in which every page has something to show."""
    server.api.start({"name": "fine", "steps": [{"id": "a", "run": "true"}]}, wait=60)
    server.api.start({"name": "bad", "steps": [{"id": "a", "run": "exit 3"}]}, wait=60)
    write = {"id": "w", "tool": "files.write", "with": {"path": "n.md", "content": "x\n"}, "approve": "always"}
    server.api.start({"name": "asks", "steps": [write]})
    return server


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: python scripts/build_dashboard.py")
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (360, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.soak),
        pytest.param(360, "light", marks=pytest.mark.soak),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_i4_axe_finds_no_serious_fault(lively: Server, open_page: Any, scheme: str, width: int) -> None:
    axe = AXE.read_text()
    page = await open_page(lively, width=width, color_scheme=scheme)
    for key, (path, heading) in PAGES.items():
        await page.keyboard.type(f"g{key}")  # at once: the second has to come within a second or so
        await expect(page).to_have_url(lively.address + path)
        await expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        await expect(page.get_by_text("Loading …")).to_have_count(0)
        await _check(page, axe, f"{path} {scheme} {width}")
    await page.goto(lively.address + "/start")
    await page.get_by_label("Or its text").fill(FORM.replace("echo {{ inputs.who }}", '"echo {{ inputs.who }}"'))
    await expect(page.get_by_role("button", name="Start")).to_be_enabled()
    await _check(page, axe, f"/start {scheme} {width}")
    await page.get_by_role("button", name="Keyboard shortcuts").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Go to Settings")
    await _check(page, axe, f"keys {scheme} {width}")


async def _check(page: Any, axe: str, where: str) -> None:
    await page.evaluate(axe)
    assert await page.evaluate(RUN) == [], where
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{where} is too wide"


@pytest.mark.asyncio(loop_scope="session")
async def test_c5_every_page_says_that_the_login_has_expired(lively: Server, open_page: Any) -> None:
    # Of the script and the style of a page, whichever is refused first is told.
    page = await open_page(lively, allow=("401", "WebSocket", "dynamically imported", "preload CSS"))
    await page.context.clear_cookies()
    for key in PAGES:
        await page.keyboard.type(f"g{key}")
        await expect(page.get_by_role("alert").first).to_contain_text("windlass serve --open")
    await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
