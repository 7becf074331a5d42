"""An execution saved as one HTML file shows its steps without a server, and runs nothing of what is in them (I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project
    from server_process import Server

HOSTILE = "</script><script>window.run=1</script><!--<img src=x onerror=window.run=1>"
PLAN = {
    "name": HOSTILE,
    "steps": [
        {"id": "one", "run": f"cat <<'E'\n{HOSTILE}\nE"},
        {"id": "bad", "run": "echo broken >&2; exit 3"},
        {"id": "each", "foreach": ["a", "b"], "run": "echo {{ item }}"},
    ],
}


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_a_saved_execution_opens_from_disk_and_asks_for_nothing(
    server: Server, project: Project, new_context: Any, tmp_path: Path, until: Any
) -> None:
    execution = server.api.start(PLAN)["id"]
    until(lambda: server.api.get(f"/api/executions/{execution}").json["status"] == "partial")
    sent = server.api.get(f"/api/executions/{execution}/saved")
    assert (sent.status, sent.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert sent.headers["content-disposition"] == f'attachment; filename="windlass-{execution[:8]}.html"'
    assert server.token.encode() not in sent.body
    file = tmp_path / "saved.html"
    file.write_bytes(sent.body)
    server.stop()

    page = await (await new_context(offline=True)).new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(file.as_uri())
    await expect(page.get_by_role("heading", name="window.run=1")).to_be_visible()
    for step in ("one", "bad", "each"):
        await expect(page.get_by_text(step, exact=True).first).to_be_visible()
    assert await page.evaluate("window.run") is None
    assert (faults, asked) == ([], [file.as_uri()])


def test_i4_an_execution_that_is_not_there_cannot_be_saved(server: Server) -> None:
    assert server.api.get("/api/executions/00000000/saved").status == 404
