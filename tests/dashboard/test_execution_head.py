"""The head of an execution's page: its state, what it waits for, its buttons, the connection (I4, C6)."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect
from waiting import wait_until_async

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Serve, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELD: dict[str, Any] = {
    "name": "held",
    "steps": [
        {"id": "first", "run": "while ! test -e go; do sleep 0.05; done"},
        {"id": "second", "needs": ["first"], "run": "echo done"},
    ],
}
ASKING: dict[str, Any] = {
    "name": "asking",
    "steps": [
        {
            "id": "write",
            "tool": "files.write",
            "with": {"path": "NOTES.md", "content": "new\n"},
            "approve": "always",
        }
    ],
}


def state(page: Any) -> Any:
    return page.locator(".fact-state")


async def test_i4_pause_resume_and_cancel(server: Server, project: Project, open_page: Any) -> None:
    execution = server.api.start(HELD)["id"]
    page = await open_page(server, f"/executions/{execution}")
    await expect(state(page)).to_contain_text("running")
    await expect(state(page)).to_contain_text("first")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Pause").click()
    await wait_until_async(lambda: project.state(execution).wanted, "the server has the request")
    (project.path / "go").touch()
    await expect(state(page)).to_contain_text("a person paused it")
    await expect(page.get_by_text("50 %")).to_be_visible()
    (project.path / "go").unlink()
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Back").click()
    await page.get_by_role("button", name="Resume").click()
    await expect(state(page)).to_contain_text("completed")
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    assert server.api.get(f"/api/executions/{execution}").json["status"] == "completed"


async def test_i4_cancel_asks_first(server: Server, open_page: Any) -> None:
    execution = server.api.start(HELD)["id"]
    page = await open_page(server, f"/executions/{execution}")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel the execution").click()
    await expect(state(page)).to_contain_text("cancelled")
    assert server.api.get(f"/api/executions/{execution}").json["status"] == "cancelled"


@pytest.mark.parametrize("allow", [True, False])
async def test_c6_an_approval_is_answered_at_the_head(
    server: Server, project: Project, open_page: Any, *, allow: bool
) -> None:
    (project.path / "NOTES.md").write_text("old\n")
    execution = server.api.start(ASKING, workdir=str(project.path))["id"]
    page = await open_page(server, f"/executions/{execution}")
    question = page.get_by_role("region", name="Waits for you")
    await expect(question).to_contain_text("write asks to use files.write")
    await expect(question.get_by_role("group", name="Difference")).to_contain_text("+new")
    await expect(state(page)).to_contain_text("waiting for you")
    await question.get_by_label("Note to the agent").fill("because")
    await question.get_by_role("button", name="Allow" if allow else "Deny").click()
    await expect(question).to_have_count(0)
    await expect(state(page)).to_contain_text("completed" if allow else "failed")
    assert (project.path / "NOTES.md").read_text() == ("new\n" if allow else "old\n")
    events = server.api.get(f"/api/executions/{execution}/events").json["events"]
    assert [event["note"] for event in events if event["type"] == "approval.answered"] == ["because"]


async def test_c6_an_approval_of_a_paused_execution_resumes_it(server: Server, open_page: Any) -> None:
    execution = server.api.start(ASKING | {"name": "paused"}, hold=False, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}")
    await expect(state(page)).to_contain_text("it waits for an approval")
    await page.get_by_role("button", name="Allow").click()
    await expect(state(page)).to_contain_text("completed")


async def test_i4_an_unknown_outcome_is_decided(serve: Serve, project: Project, open_page: Any, until: Any) -> None:
    first = serve()
    step = {"id": "once", "run": "touch began; while ! test -e go; do sleep 0.05; done", "effect": "once"}
    execution = first.api.start({"name": "cut off", "steps": [step]})["id"]
    until(lambda: (project.path / "began").exists(), "it runs")
    first.kill()
    server = serve()
    page = await open_page(server, f"/executions/{execution}")
    question = page.get_by_role("region", name="Waits for you")
    await expect(question).to_contain_text("nobody saw how it ended")
    await question.get_by_role("button", name="It was done").click()
    await expect(state(page)).to_contain_text("completed")


async def test_i4_a_killed_server_that_comes_back_leaves_no_gap(
    serve: Serve, project: Project, open_page: Any, port: int
) -> None:
    first = serve("--port", str(port))
    execution = first.api.start(HELD)["id"]
    page = await open_page(first, f"/executions/{execution}", allow=("ERR_CONNECTION_REFUSED", "WebSocket", "ERR_"))
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await page.evaluate("window.sameDocument = true")
    first.kill()
    await expect(page.get_by_text("reconnecting")).to_be_visible()
    (project.path / "go").touch()
    second = serve("--port", str(port))
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await expect(state(page)).to_contain_text("completed")
    await expect(page.get_by_text("100 %")).to_be_visible()
    assert await page.evaluate("window.sameDocument") is True
    assert second.api.get(f"/api/executions/{execution}").json["status"] == "completed"


async def test_i4_a_page_that_was_opened_while_the_server_was_away_comes_with_it(
    serve: Serve, project: Project, open_page: Any, port: int
) -> None:
    first = serve("--port", str(port))
    first.api.start(HELD)
    page = await open_page(first, allow=("ERR_CONNECTION_REFUSED", "WebSocket", "ERR_"))
    line = page.get_by_role("link", name="held")
    await expect(line).to_contain_text("running")
    first.kill()
    await line.click()
    await expect(page.get_by_text("check that the server runs: windlass serve")).to_be_visible()
    (project.path / "go").touch()
    serve("--port", str(port))
    await expect(state(page)).to_contain_text("completed")


async def test_i3_a_server_that_says_nothing_any_more_is_told_and_connected_to_again(
    server: Server, open_page: Any
) -> None:
    execution = server.api.start(HELD)["id"]
    page = await open_page(server, allow=("WebSocket", "ERR_"))
    await page.clock.install()
    await page.goto(f"{server.address}/executions/{execution}")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    os.kill(server.pid, signal.SIGSTOP)  # as a machine that sleeps, or a line that is cut: no socket is closed
    try:
        await page.clock.fast_forward(60_000)
        await expect(page.get_by_text("reconnecting")).to_be_visible()
    finally:
        os.kill(server.pid, signal.SIGCONT)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()


async def test_i4_an_expired_login_is_told(server: Server, project: Project, open_page: Any) -> None:
    execution = server.api.start(HELD)["id"]
    page = await open_page(server, f"/executions/{execution}", allow=("401", "WebSocket"))
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("logged out: log in again")).to_be_visible()


async def test_i4_keys_pause_resume_and_move(server: Server, project: Project, open_page: Any) -> None:
    execution = server.api.start(HELD)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list")
    await expect(state(page)).to_contain_text("running")
    await page.keyboard.press("j")
    await expect(page).to_have_url(re.compile("step=first"))
    await page.keyboard.press("j")
    await expect(page).to_have_url(re.compile("step=second"))
    await page.keyboard.press("k")
    await expect(page).to_have_url(re.compile("step=first"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("complementary", name="Step first")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("complementary", name="Step first")).to_have_count(0)
    await page.keyboard.press("/")
    await page.keyboard.type("sec")
    await expect(page.get_by_role("row")).to_have_count(1)
    await page.keyboard.press("Escape")
    await page.keyboard.press("p")
    await wait_until_async(lambda: project.state(execution).wanted, "the server has the request")
    (project.path / "go").touch()
    await expect(state(page)).to_contain_text("a person paused it")
    await page.keyboard.press("r")
    await expect(state(page)).to_contain_text("completed")
