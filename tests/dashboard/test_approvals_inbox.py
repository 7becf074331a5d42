"""The inbox of approvals: exactly what is asked, and an answer that counts once (I4, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Server

HOSTILE = "echo '<script>alert(1)</script>' \u202e\x1b[31m"


def asks(name: str, run: str = "echo done") -> dict[str, Any]:
    return {"name": name, "steps": [{"id": "push", "run": run, "approve": "always"}]}


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_a_question_shows_its_exact_input_and_is_allowed_with_a_note(server: Server, open_page: Any) -> None:
    execution = server.api.start(asks("publish", HOSTILE))["id"]
    page = await open_page(server, "/approvals")
    card = page.get_by_role("article", name="push asks to use")
    await expect(card).to_contain_text("<script>alert(1)</script>")
    await expect(card).to_contain_text("\\u202e\\u001b[31m")
    await expect(page.get_by_role("link", name="Approvals 1 open")).to_be_visible()
    await card.get_by_label("Note").fill("go on")
    await card.get_by_role("button", name="Allow").click()
    await expect(page.get_by_text("Nothing waits for your approval.")).to_be_visible()
    await expect(page.get_by_role("link", name="Approvals", exact=True)).to_be_visible()
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    events = server.api.get(f"/api/executions/{execution}/events").json["events"]
    assert [(e["allow"], e["note"]) for e in events if e["type"] == "approval.answered"] == [(True, "go on")]


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_a_denied_question_fails_its_step(server: Server, open_page: Any) -> None:
    page = await open_page(server, "/approvals")
    await expect(page.get_by_text("Nothing waits for your approval.")).to_be_visible()
    execution = server.api.start(asks("live"))["id"]
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_text("Nothing waits for your approval.")).to_be_visible()
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "failed"


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_a_change_to_a_file_is_shown_as_a_diff(server: Server, open_page: Any, project: Project) -> None:
    notes = project.path / "notes.md"
    notes.write_text("old line\nkept\n")
    step = {"id": "write", "tool": "files.write", "with": {"path": "notes.md", "content": "new line\nkept\n"}}
    server.api.start({"name": "notes", "steps": [{**step, "approve": "always"}]}, workdir=str(project.path))
    page = await open_page(server, "/approvals")
    await expect(page.locator(".diff .diff-old", has_text="-old line")).to_be_visible()
    await expect(page.locator(".diff .diff-new", has_text="+new line")).to_be_visible()


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_of_two_tabs_the_second_is_told_that_the_question_was_answered(server: Server, open_page: Any) -> None:
    server.api.start(asks("one answer"))
    first = await open_page(server, "/approvals")
    second = await open_page(server, "/approvals")
    await expect(second.get_by_role("button", name="Allow")).to_be_visible()
    await first.get_by_role("button", name="Deny").click()
    await expect(second.get_by_text("Somebody else denied push")).to_be_visible()
    await expect(second.get_by_role("button", name="Allow")).to_have_count(0)
    await expect(first.get_by_text("Somebody else")).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_an_answer_that_comes_too_late_says_who_answered(server: Server, open_page: Any) -> None:
    execution = server.api.start(asks("too late"))["id"]
    page = await open_page(server, "/approvals", allow=("409", "ERR_FAILED"))
    await expect(page.get_by_role("button", name="Allow")).to_be_visible()
    # A tab that does not hear of the other one's answer: its list stays as it is.
    await page.route("**/api/approvals", lambda route: route.abort())
    await page.route("**/api/approvals/*/*", lambda route: _answer_first(route, server, execution))
    await page.get_by_role("button", name="Allow").click()
    await expect(page.get_by_role("alert").first).to_contain_text("already denied by http")


async def _answer_first(route: Any, server: Server, execution: str) -> None:
    assert server.api.post(f"/api/approvals/{execution}/push", {"allow": False}).status == 200
    server.api.get(f"/api/executions/{execution}?wait=60")
    await route.continue_()


@pytest.mark.asyncio(loop_scope="session")
async def test_c6_the_inbox_works_on_a_phone(server: Server, open_page: Any) -> None:
    server.api.start(asks("phone", "echo " + "long" * 200))
    page = await open_page(server, "/approvals", width=360, height=640)
    for name in ("Allow", "Deny"):
        box = await page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
