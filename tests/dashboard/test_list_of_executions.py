"""The list of executions: live, filtered by what the address says, long (I4)."""

from __future__ import annotations

import json
import re
import shutil
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project, Windlass
    from server_process import Serve, Server

HELD: dict[str, Any] = {"name": "held", "steps": [{"id": "one", "run": "while ! test -e go; do sleep 0.05; done"}]}


def plan(name: str, run: str = "true") -> dict[str, Any]:
    return {"name": name, "steps": [{"id": "one", "run": run}, {"id": "two", "run": "true", "needs": ["one"]}]}


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_an_empty_list_names_the_first_command(server: Server, open_page: Any) -> None:
    page = await open_page(server)
    await expect(page.get_by_text("windlass run plan.yaml")).to_be_visible()
    server.api.start(plan("first"))
    await expect(page.get_by_role("link", name="first")).to_be_visible()
    await expect(page.get_by_text("windlass run plan.yaml")).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_the_list_follows_an_execution_with_its_progress(
    server: Server, open_page: Any, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    server.api.start({
        "name": "slow",
        "steps": [
            {"id": "one", "run": "true"},
            {"id": "two", "run": f"until [ -e {go} ]; do sleep 0.1; done", "needs": ["one"]},
        ],
    })  # fmt: skip
    page = await open_page(server)
    line = page.get_by_role("link", name="slow")
    await expect(line).to_contain_text("running")
    await expect(line).to_contain_text("50 %")
    go.touch()
    await expect(line).to_contain_text("completed")
    await expect(line).not_to_contain_text("%")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_filters_are_kept_in_the_address(server: Server, open_page: Any) -> None:
    for name in ("apples", "pears"):
        server.api.start(plan(name), wait=60)
    server.api.start(plan("bad", "exit 3"), wait=60)
    page = await open_page(server, "/?text=APP")
    apples, pears, bad = (page.get_by_role("link", name=name) for name in ("apples", "pears", "bad"))
    await expect(apples).to_be_visible()
    await expect(pears).to_have_count(0)
    await page.get_by_role("button", name="Clear filters").click()
    await expect(pears).to_be_visible()
    await page.get_by_role("button", name="failed").click()
    await expect(bad).to_be_visible()
    await expect(pears).to_have_count(0)
    await expect(page).to_have_url(f"{server.address}/?status=failed")
    await page.reload()
    await expect(page.get_by_role("button", name="failed")).to_have_attribute("aria-pressed", "true")
    await expect(bad).to_be_visible()
    await expect(apples).to_have_count(0)
    await page.get_by_label("Plan", exact=True).select_option("pears")
    await page.get_by_label("Created").select_option("24h")
    await expect(page).to_have_url(f"{server.address}/?status=failed&name=pears&since=24h")
    await expect(page.get_by_text("No execution fits these filters.")).to_be_visible()
    await page.go_back()
    await page.go_back()
    await expect(bad).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("nothing like it")
    await expect(page.get_by_text("No execution fits these filters.")).to_be_visible()


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_a_long_list_loads_page_by_page_and_is_walked_by_keys(server: Server, open_page: Any) -> None:
    for number in range(60):
        server.api.start({"name": f"plan {number:02}", "steps": [{"id": "one", "run": "true"}]}, wait=60)
    page = await open_page(server, height=500)
    await expect(page.get_by_role("link", name="plan 59")).to_be_visible()
    assert await page.locator(".executions li").count() < 40, "only what is seen is on the page"
    await page.keyboard.press("j")
    await expect(page.get_by_role("link", name="plan 59")).to_be_focused()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await expect(page.get_by_role("link", name="plan 58")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="plan 58")).to_be_visible()
    await page.go_back()
    last = page.get_by_role("link", name="plan 00")
    await expect(page.get_by_role("link", name="plan 59")).to_be_visible()
    while not await last.count():
        await page.mouse.wheel(0, 2000)
        await page.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(true)))")
    await expect(last).to_be_visible()


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_an_execution_that_asks_reads_waiting_and_is_found_so(server: Server, open_page: Any) -> None:
    asks = {"name": "asks", "steps": [{"id": "one", "run": "true", "approve": "always"}]}
    execution = server.api.start(asks)["id"]
    server.api.start(plan("done"), wait=60)
    page = await open_page(server)
    line = page.get_by_role("link", name="asks")
    await expect(line).to_contain_text("waiting (approval)")
    await page.get_by_role("button", name="waiting").click()
    await expect(page.get_by_role("link", name="done")).to_have_count(0)
    await expect(line).to_contain_text("waiting (approval)")
    (head,) = server.api.get("/api/executions?waiting=approval").json["executions"]
    assert (head["id"], head["status"], head["waiting"]) == (execution, "running", "approval")
    server.api.post(f"/api/approvals/{execution}/one", {"allow": True})
    await expect(line).to_have_count(0)
    await page.get_by_role("button", name="Clear filters").click()
    await expect(line).to_contain_text("completed")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_an_execution_whose_process_is_gone_is_not_shown_as_one_that_runs(
    server: Server, windlass: Windlass, project: Project, open_page: Any
) -> None:
    project.plan(json.dumps(HELD))
    background = windlass.background("run", "plan.yaml")
    page = await open_page(server)
    line = page.get_by_role("link", name="held")
    await expect(line).to_contain_text("running")
    background.signal(signal.SIGKILL)
    assert background.ended().code == -signal.SIGKILL
    await expect(line).to_contain_text("running (no process runs it)")
    await line.click()
    await expect(page.locator(".fact-state")).to_contain_text("no process runs it: resume it")
    await expect(page.get_by_text("Time left")).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_times_are_right_in_a_browser_whose_clock_is_wrong(
    server: Server, project: Project, open_page: Any
) -> None:
    execution = server.api.start(HELD, workdir=str(project.path))["id"]
    page = await open_page(server)
    await page.clock.install(time=datetime.now(UTC) + timedelta(days=2))
    await page.goto(f"{server.address}/?since=1h")
    await expect(page.get_by_role("link", name="held")).to_contain_text(re.compile("just now|min ago"))
    await page.goto(f"{server.address}/executions/{execution}?view=timeline")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    axis = page.locator(".timeline-axis")
    await expect(axis).to_contain_text("+")
    await expect(axis).not_to_contain_text(" h")
    (project.path / "go").touch()
    await expect(page.locator(".fact-state")).to_contain_text("completed")


@pytest.mark.asyncio(loop_scope="session")
async def test_d9_pages_follow_a_home_that_was_put_back_to_an_earlier_time(
    serve: Serve, project: Project, open_page: Any, port: int, tmp_path: Path
) -> None:
    first = serve("--port", str(port))
    execution = first.api.start(HELD, workdir=str(project.path))["id"]
    first.kill()
    shutil.copytree(project.home, tmp_path / "earlier")
    (project.path / "go").touch()
    second = serve("--port", str(port))
    second.api.start(plan("later"), wait=60)
    listed = await open_page(second, allow=("ERR_", "WebSocket"))
    shown = await open_page(second, f"/executions/{execution}", allow=("ERR_", "WebSocket"))
    await expect(listed.get_by_role("link", name="later")).to_be_visible()
    await expect(shown.locator(".fact-state")).to_contain_text("completed")
    second.kill()
    shutil.rmtree(project.home)
    (tmp_path / "earlier").rename(project.home)
    (project.path / "go").unlink()
    serve("--port", str(port))
    await expect(listed.get_by_role("link", name="later")).to_have_count(0)
    await expect(shown.locator(".fact-state")).to_contain_text("running")
