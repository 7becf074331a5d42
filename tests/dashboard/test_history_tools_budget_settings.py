"""The pages of figures: history and performance, tools and runtimes, budget, settings (I4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from server_process import Serve, Server

HOSTILE = "<img src=x onerror=alert(1)> \u202egnp"
SHOWN = "<img src=x onerror=alert(1)> \\u202egnp"


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_history_shows_times_and_failures_by_step_tool_and_day(server: Server, open_page: Any) -> None:
    for run in ("true", "exit 3"):
        server.api.start({"name": HOSTILE, "steps": [{"id": "one", "run": run}]}, wait=60)
    page = await open_page(server, "/history")
    figures = page.get_by_role("table", name="By day")
    await expect(figures.get_by_role("row")).to_have_count(2)
    await expect(figures).to_contain_text("1 (50 %)")
    await expect(page.locator("canvas").first).to_be_visible()
    await expect(page.get_by_role("table", name="By step")).to_contain_text(f"{SHOWN} › one")
    await page.get_by_label("Time and failures by").select_option("tool")
    tools = page.get_by_role("table", name="By tool")
    await expect(tools.get_by_role("columnheader")).to_contain_text(["Waited", "CPU", "Memory", "Cost"])
    shell = tools.get_by_role("row", name="shell").get_by_role("cell")
    await expect(shell.nth(7)).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    await expect(shell.nth(8)).to_have_text(re.compile(r"^[\d.]+ [kM]B$"))
    await expect(page).to_have_url(f"{server.address}/history?since=30d&by=tool")
    await expect(page.get_by_role("table", name="Steps by their share")).to_contain_text("100 %")
    await expect(page.get_by_text("No step takes longer or fails more often than before.")).to_be_visible()
    await expect(page.get_by_text("No forecast has an outcome yet")).to_be_visible()
    await page.get_by_label("Time", exact=True).select_option("")
    await expect(page.get_by_role("table", name="By tool")).to_contain_text("shell")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_tools_and_runtimes_show_their_terms_and_health(server: Server, open_page: Any) -> None:
    page = await open_page(server, "/tools")
    await expect(page.get_by_role("region", name="Runtimes", exact=True)).to_contain_text("claude-code")
    await expect(page.get_by_text("No tool, host or runtime fails.")).to_be_visible()
    await expect(page.get_by_role("region", name="At work")).to_contain_text("of 256")
    await page.keyboard.press("/")
    await page.keyboard.type("message.email")
    table = page.get_by_role("table", name="1 of")
    await expect(table).to_contain_text("once only, sensitive, timeout 1 min 0 s, rate 30/3600s")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_a_breaker_that_opened_is_shown_with_its_reason(server: Server, open_page: Any) -> None:
    page = await open_page(server, "/tools")
    told = {
        "runtimes": [],
        "breakers": {"host x": {"circuit": "open", "failures": 5, "because": HOSTILE, "until": None, "probing": False}},
    }
    await page.route("**/api/runtimes", lambda route: route.fulfill(json=told))
    await page.reload()
    table = page.get_by_role("table", name="Tools, hosts and runtimes that failed lately")
    await expect(table).to_contain_text("circuit open")
    await expect(table).to_contain_text(SHOWN)


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_the_budget_shows_limits_and_what_is_left(serve: Serve, open_page: Any) -> None:
    server = serve(WINDLASS_BUDGET='{"day": {"usd": 5}, "execution": {"tokens": 1000}}')
    page = await open_page(server, "/budget")
    await expect(page.get_by_role("region", name="Today")).to_contain_text("$0.00 of $5.00")
    await expect(page.get_by_role("region", name="Today")).to_contain_text("$5.00 left")
    await expect(page.get_by_role("region", name="This month")).to_contain_text("no limit")
    await expect(page.get_by_role("region", name="Limits")).to_contain_text("1,000 tokens")
    await page.get_by_label("Spent by").select_option("role")
    await expect(page).to_have_url(f"{server.address}/budget?by=role")
    await expect(page.get_by_text("No agent has spent anything yet.")).to_be_visible()


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_settings_are_shown_with_their_origin(serve: Serve, open_page: Any) -> None:
    server = serve(WINDLASS_GRACE="2s")
    page = await open_page(server, "/settings")
    row = page.get_by_role("row", name="grace")
    await expect(row).to_contain_text("environment: WINDLASS_GRACE")
    await expect(page.get_by_role("row", name="checkpoints")).to_contain_text("default")
    await page.get_by_role("button", name="Only what is set").click()
    await expect(row).to_be_visible()
    await expect(page.get_by_role("row", name="checkpoints")).to_have_count(0)
    assert await page.get_by_role("button", name="Save").count() == 0
