"""Starting a plan in the browser: from a file, from its text, or one that ran before (I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from server_process import Server

TEXT = """name: greet <b>all</b>
inputs: {who: world, count: 3, loud: false, names: [ana]}
steps:
  - id: greet
    run: echo {{ inputs.who | quote }} {{ inputs.count }} {{ inputs.loud }} {{ inputs.names }}
"""


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_a_plan_of_a_file_is_started_with_its_inputs(server: Server, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "greet.yaml"
    file.write_text(TEXT)
    page = await open_page(server, "/start")
    await page.get_by_label("File (YAML or JSON)").set_input_files(file)
    await expect(page.get_by_role("heading", name="greet <b>all</b>")).to_be_visible()
    await page.get_by_label("who (text)").fill("you")
    count = page.get_by_label("count (whole number)")
    await expect(count).to_have_value("3")
    await count.fill("many")
    await expect(page.get_by_text("Write a whole number")).to_be_visible()
    await expect(page.get_by_role("button", name="Start")).to_be_disabled()
    await count.fill("5")
    await page.get_by_label("loud (yes or no)").check()
    await page.get_by_label("names (list)").fill('["ben", "eve"]')
    await page.get_by_label("Budget in dollars").fill("2.5")
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("heading", name="greet <b>all</b>")).to_be_visible()
    await page.wait_for_url("**/executions/*")
    found = server.api.get(f"/api/executions/{page.url.rpartition('/')[2]}?wait=60").json
    assert found["inputs"] == {"who": "you", "count": 5, "loud": True, "names": ["ben", "eve"]}
    assert found["budget"]["limit_usd"] == 2.5


@pytest.mark.asyncio(loop_scope="session")
async def test_c5_problems_of_a_pasted_plan_are_shown_by_line(server: Server, open_page: Any) -> None:
    page = await open_page(server, "/start", allow=("422",))
    text = page.get_by_label("Or its text")
    await text.fill(TEXT.replace("inputs.who", "inputs.whom"))
    problem = page.get_by_role("alert")
    await expect(problem).to_contain_text("Line 5")
    await expect(problem).to_contain_text("whom")
    await expect(page.get_by_role("button", name="Start")).to_have_count(0)
    await text.fill(TEXT)
    await expect(page.get_by_role("button", name="Start")).to_be_enabled()
    await expect(problem).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_a_plan_used_before_is_started_again_by_its_name(
    server: Server, open_page: Any, tmp_path: Path
) -> None:
    file = tmp_path / "greet.yaml"
    file.write_text(TEXT)
    server.api.post("/api/executions?wait=60", {"plan_file": str(file), "inputs": {"who": "them"}})
    page = await open_page(server, "/start")
    await page.get_by_label("Plan", exact=True).select_option("greet <b>all</b>")
    await expect(page.get_by_text(f"From the file {file}")).to_be_visible()  # a warning may name it, too
    await page.get_by_role("button", name="Last time: them").click()
    await expect(page.get_by_label("who (text)")).to_have_value("them")
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url("**/executions/*")
    assert server.api.get(f"/api/executions/{page.url.rpartition('/')[2]}").json["inputs"]["who"] == "them"
