"""Every page of the dashboard opens, for those who are logged in (I4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect
from server_process import Api

from windlass.server.dashboard import BUILT

if TYPE_CHECKING:
    from server_process import Server

PLAN = {"name": "two steps", "steps": [{"id": "one", "run": "echo first"}, {"id": "two", "run": "echo second"}]}


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_an_execution_is_listed_and_opened(server: Server, open_page: Any) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    page = await open_page(server)
    await page.get_by_role("link", name="two steps").click()
    await expect(page).to_have_url(f"{server.address}/executions/{execution}")
    await expect(page.get_by_role("heading", name="two steps")).to_be_visible()
    await expect(page.get_by_text("completed").first).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.reload()
    await expect(page.get_by_role("heading", name="two steps")).to_be_visible()
    steps = [url for url in asked if url.endswith("/steps")]
    script = next(url for url in asked if url.endswith(".js"))
    assert len(steps) == 1, "its steps are asked for once"
    assert asked.index(steps[0]) < asked.index(script), "before the script that shows them is there"


@pytest.mark.asyncio(loop_scope="session")
async def test_c5_an_error_of_several_lines_is_shown_in_lines(server: Server, open_page: Any) -> None:
    server.api.start(PLAN, wait=60)
    page = await open_page(server, "/executions/unknown", allow=("404",))
    said = page.get_by_role("alert")
    await expect(said).to_contain_text("no execution has the id 'unknown'")
    await expect(said).not_to_contain_text("\\n")


def test_i4_nobody_sees_a_page_without_a_login(server: Server) -> None:
    nobody = Api(server.address, "")
    for path in ("/", "/executions/x", "/approvals", "/icon.svg"):
        refused = nobody("GET", path, headers={"Accept": "text/html"})
        assert (refused.status, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert b"windlass serve --open" in refused.body
        assert nobody.get(path).headers["content-type"] == "application/problem+json"


def test_i4_every_file_is_sent_as_it_was_built_and_no_other_is(server: Server) -> None:
    files = [path for path in BUILT.rglob("*") if path.is_file()]
    assert any(path.suffix == ".js" for path in files)
    for path in files:
        sent = server.api.get("/" if path.name == "index.html" else f"/{path.relative_to(BUILT).as_posix()}")
        assert (sent.status, sent.body) == (200, path.read_bytes()), "what looks like a secret in it was changed"
        assert "script-src 'self'" in sent.headers["content-security-policy"]
        assert "unsafe" not in sent.headers["content-security-policy"]
    for path in ("/assets/../../version.py", "/assets/%2e%2e/%2e%2e/version.py", "/index.html", "/assets/", "/nothing"):
        assert server.api.get(path).status == 404


def test_i4_a_page_asks_early_for_the_steps_of_an_execution_and_of_nothing_else(server: Server) -> None:
    execution = server.api.start(PLAN)["id"]
    link = server.api.get(f"/executions/{execution}").headers["link"]
    assert link == f"</api/executions/{execution}/steps>; rel=preload; as=fetch; crossorigin=anonymous"
    for path in ("/", "/tools", "/executions/x", "/executions/%3E%3B%20rel=preload,%3Cabcdef"):
        assert "link" not in server.api.get(path).headers


def test_i4_the_first_load_is_small(tmp_path: Path) -> None:
    import gzip
    import re

    index = (BUILT / "index.html").read_text()
    first = [BUILT / name for name in re.findall(r'(?:src|href)="/([^"]+)"', index)]
    assert len(first) >= 3
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in first) < 200_000
