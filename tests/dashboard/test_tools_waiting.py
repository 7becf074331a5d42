"""Steps that wait at a gate are named, over the API and on the page: slots, rates, places, breakers (C4, C8, I4)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from windlass.core.breaker import LONGEST_REST, Breaker
from windlass.journal.gatebook import SqliteGateStore

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Serve

HELD: dict[str, Any] = {
    "name": "held",
    "steps": [
        {"id": "one", "run": "while ! test -e go; do sleep 0.05; done"},
        {"id": "other", "run": "while ! test -e go; do sleep 0.05; done"},
        {"id": "listed", "tool": "files.list", "with": {"path": "."}},
        {"id": "no-turn", "needs": ["listed"], "tool": "files.list", "with": {"path": "."}},
    ],
}
REFUSED = {"name": "refused", "steps": [{"id": "reads", "tool": "files.read", "with": {"path": "x"}}]}
TERMS = '[tools.shell]\nconcurrent = 1\n[tools."files.list"]\nrate = "1/4m"\n[load]\nattempts = 3\n'


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_what_waits_at_a_gate_is_named_and_leads_to_the_step(
    serve: Serve, project: Project, open_page: Any, until: Any
) -> None:
    project.user_file("config.toml", TERMS)
    server = serve()
    book = SqliteGateStore(project.home / "gates.db")
    book.keep_breaker("files.read", Breaker(5, 1, time.time() + LONGEST_REST, because="<b>the disk</b>"))
    book.close()
    assert "files.read" in server.api.get("/api/health").json["breakers"]
    assert server.api.get("/api/waiting").json == []

    def waits() -> dict[tuple[str, str], list[str]]:
        return {
            (one["gate"], one["name"]): [step["step"] for step in one["steps"]]
            for one in server.api.get("/api/waiting").json
        }

    refused = server.api.start(REFUSED)["id"]
    until(lambda: waits().get(("breaker", "files.read")) == ["reads"], "it waits for the breaker")
    held = server.api.start(HELD)["id"]
    (placeless,) = until(lambda: waits().get(("place", "shell")), "one of the two waits for a place")
    assert placeless in ("one", "other")
    until(lambda: waits().get(("rate", "files.list")) == ["no-turn"], "it waits for its turn")
    late = server.api.start({"name": "late", "steps": [{"id": "no-slot", "tool": "files.list", "with": {"path": "."}}]})
    until(lambda: waits().get(("slot", "")) == ["no-slot"], "it waits for a slot")

    page = await open_page(server, "/tools")
    waiting = page.get_by_role("region", name="Waiting steps")
    for name in ("refused · reads", f"held · {placeless}", "held · no-turn", "late · no-slot"):
        await expect(waiting.get_by_role("link", name=name)).to_be_visible()
    await expect(waiting).to_contain_text("1 for the breaker of files.read")
    await expect(waiting).to_contain_text("next attempt in")
    for tool in ("shell", "files.list"):
        await expect(page.get_by_role("row", name=tool)).to_contain_text("1 waiting")
    breaker = page.get_by_role("table", name="Tools, hosts and runtimes that failed lately").get_by_role("row").nth(1)
    await expect(breaker).to_contain_text("1 waiting")
    await waiting.get_by_role("link", name="late · no-slot").click()
    await expect(page).to_have_url(f"{server.address}/executions/{late['id']}?step=no-slot")
    await expect(page.get_by_role("complementary", name="Step no-slot")).to_be_visible()
    for execution in (refused, held, late["id"]):
        server.api.post(f"/api/executions/{execution}/cancel")
    until(lambda: waits() == {}, "nothing waits")
