"""Graph, timeline and list of the same steps, with one selection, at any moment (I4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAN: dict[str, Any] = {
    "name": "views",
    "steps": [
        {"id": "a", "run": "echo from a"},
        {"id": "b", "needs": ["a"], "run": "echo from b"},
        {"id": "many", "needs": ["a"], "foreach": list(range(1000)), "tool": "files.list", "with": {"path": "."}},
        {"id": "bad", "needs": ["b"], "run": "echo no; exit 3"},
    ],
}
SMALL = {**PLAN, "steps": [step for step in PLAN["steps"] if step["id"] != "many"]}


async def test_i4_one_selection_in_all_views(server: Server, open_page: Any) -> None:
    execution = server.api.start(SMALL, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}")
    graph = page.get_by_role("group", name="Graph of 3 steps")
    await graph.get_by_role("button", name="bad").click()
    await expect(page).to_have_url(re.compile("step=bad"))
    await expect(page.get_by_role("complementary", name="Step bad")).to_contain_text("exit code 3")
    await page.get_by_role("button", name="Timeline").click()
    await expect(page).to_have_url(re.compile("view=timeline"))
    chosen = page.get_by_role("row", selected=True)
    await expect(chosen).to_contain_text("bad")
    await page.get_by_role("button", name="List").click()
    await expect(chosen).to_contain_text("bad")
    await page.get_by_role("button", name="b", exact=True).click()
    await page.get_by_role("button", name="Graph").click()
    await expect(graph.get_by_role("button", pressed=True)).to_contain_text("b")
    await page.reload()
    await expect(graph.get_by_role("button", pressed=True)).to_contain_text("b")
    await expect(page.get_by_role("complementary", name="Step b")).to_be_visible()


async def test_i4_the_graph_is_dragged_zoomed_and_fitted(server: Server, open_page: Any) -> None:
    execution = server.api.start(SMALL, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=graph")
    node = page.get_by_role("button", name="completed a")
    await expect(node).to_be_visible()
    everything = page.locator(".graph-all")
    await expect(page.locator(".facts")).to_contain_text("Money")  # the head is whole: the graph has its final size
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    at_first = await everything.get_attribute("style")
    box = await page.locator(".graph-box").bounding_box()
    x, y = box["x"] + 30, box["y"] + 30
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x + 80, y + 40, steps=4)
    await page.mouse.up()
    await expect(everything).not_to_have_attribute("style", str(at_first))
    await page.mouse.wheel(0, 3000)
    await expect(page.get_by_role("img", name="3 steps; zoom in to read them")).to_be_visible()
    await expect(node).to_have_count(0)
    await page.get_by_role("button", name="Fit").click()
    await expect(everything).to_have_attribute("style", str(at_first))
    await node.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("complementary", name="Step a")).to_be_visible()


async def test_i4_a_foreach_of_1000_items_is_one_row_that_opens(server: Server, open_page: Any) -> None:
    execution = server.api.start(PLAN, wait=120)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list")
    rows = page.get_by_role("row")
    await expect(rows).to_have_count(4)
    await expect(page.get_by_text("1000/1000")).to_be_visible()
    await page.get_by_role("button", name="Show the items of many").click()
    await expect(page.get_by_role("button", name="many[0]", exact=True)).to_be_visible()
    await expect(page.get_by_role("table", name="Steps")).to_have_attribute("aria-rowcount", "1004")
    assert await rows.count() < 100, "only what is seen is drawn"
    await page.get_by_label("Search the steps").fill("many[999]")
    await page.get_by_role("button", name="many[999]", exact=True).click()
    await expect(page.get_by_role("complementary", name="Step many[999]")).to_contain_text("completed")
    await page.goto(f"{server.address}/executions/{execution}?view=graph")
    await page.get_by_role("group", name="Graph of 4 steps").get_by_role("button", name="1000 of 1000 items").click()
    pane = page.get_by_role("complementary", name="Step many")
    await pane.get_by_label("Search the items").fill("many[998]")
    await pane.get_by_role("button", name="many[998]", exact=True).click()
    await expect(page).to_have_url(re.compile(r"step=many%5B998%5D"))


async def test_i4_beside_the_pane_a_row_has_its_name_its_items_and_a_text_of_several_lines(
    server: Server, open_page: Any
) -> None:
    step = {"id": "each-item", "foreach": [1, 0], "run": "printf 'one\\ntwo' >&2; exit {{ item }}", "retry": {"max": 0}}
    execution = server.api.start({"name": "some", "steps": [step]}, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=each-item")
    row = page.get_by_role("table", name="Steps").first.get_by_role("row").first
    await expect(row).to_contain_text("1/2 1 failed")
    parts = [await row.locator(part).bounding_box() for part in (".name >> nth=0", ".item-count", ".number >> nth=0")]
    name, count, time = parts
    assert name["width"] > 50, "it is not clipped"
    assert name["x"] + name["width"] <= count["x"], "the parts lie side by side"
    assert count["x"] + count["width"] <= time["x"]
    assert count["height"] < 30, "it has one line"
    failed = page.get_by_role("complementary", name="Step each-item").get_by_role("row").first
    await expect(failed).to_contain_text("exit code 1: one two")


async def test_i4_many_steps_open_as_a_timeline_with_trouble_first(server: Server, open_page: Any) -> None:
    steps = [{"id": f"s{number}", "tool": "files.list", "with": {"path": "."}} for number in range(70)]
    steps[50] = {"id": "trouble", "run": "exit 1"}
    execution = server.api.start({"name": "many", "steps": steps}, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}")
    rows = page.get_by_role("table", name="Timeline").get_by_role("row")
    await expect(rows.first).to_contain_text("trouble")
    await page.get_by_role("group", name="Show only").get_by_role("button", name="1 failed").click()
    await expect(rows).to_have_count(1)


async def test_i4_the_timeline_tells_queue_work_waits_and_retries_apart(
    server: Server, project: Project, open_page: Any
) -> None:
    steps = [
        {"id": "flaky", "run": "test -e once || { touch once; exit 75; }", "retry": {"delay": "0.1s"}},
        {"id": "ask", "run": "echo yes", "approve": "always"},
    ]
    execution = server.api.start({"name": "kinds", "steps": steps})["id"]
    page = await open_page(server, f"/executions/{execution}?view=timeline")
    await expect(page.get_by_role("list", name="Legend").get_by_role("listitem")).to_have_count(9)
    flaky, ask = (page.get_by_role("row").filter(has_text=name) for name in ("flaky", "ask"))
    await expect(flaky.locator(".bar-failed")).to_have_count(1)
    await expect(flaky.locator(".bar-wait")).to_have_count(1)
    await expect(flaky.locator(".bar-retry")).to_have_count(1)
    await expect(ask.locator(".bar-person")).to_have_count(1)
    await expect(page.locator(".now-line")).to_have_count(1)
    await page.get_by_role("button", name="Allow").click()
    await expect(ask.locator(".bar-work")).to_have_count(1)
    await expect(page.locator(".now-line")).to_have_count(0)


async def test_i4_a_brush_shows_a_part_of_the_time(server: Server, open_page: Any) -> None:
    steps = [{"id": "long", "run": "sleep 1"}, {"id": "short", "needs": ["long"], "run": "echo"}]
    execution = server.api.start({"name": "brush", "steps": steps}, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=timeline")
    bars = page.locator(".bars .bar-work")
    await expect(bars).to_have_count(2)
    bar, axis = await bars.first.bounding_box(), await page.locator(".axis").bounding_box()
    await page.mouse.move(bar["x"] + 1, axis["y"] + 10)
    await page.mouse.down()
    await page.mouse.move(bar["x"] + bar["width"] / 2, axis["y"] + 10, steps=3)
    await page.mouse.up()
    await expect(bars).to_have_count(1)
    await page.get_by_role("button", name="Whole time").click()
    await expect(bars).to_have_count(2)


async def test_i4_the_scrubber_moves_the_whole_page(server: Server, open_page: Any) -> None:
    execution = server.api.start(SMALL, wait=60)["id"]
    page = await open_page(server, f"/executions/{execution}?view=list&step=b")
    head = page.locator(".fact-state")
    pane = page.get_by_role("complementary", name="Step b")
    await expect(pane).to_contain_text("from b")
    scrubber = page.get_by_role("slider")
    await scrubber.focus()
    await page.keyboard.press("Home")
    await expect(page.get_by_text(re.compile(r"You are looking at \d\d:\d\d:\d\d \(event 1 of"))).to_be_visible()
    await expect(page).to_have_url(re.compile("at=1(&|$)"))
    await expect(head).to_contain_text("pending")
    await expect(page.get_by_role("row")).to_contain_text(["pending", "pending", "pending"])
    await expect(pane).to_contain_text("No output")
    await expect(page.get_by_text("0 %")).to_be_visible()
    await page.reload()
    await expect(head).to_contain_text("pending")
    await page.get_by_role("button", name="Back to now").click()
    await expect(head).to_contain_text("failed")
    await expect(pane).to_contain_text("from b")


async def test_i4_steps_that_are_left_are_outlined_where_the_forecast_expects_them(
    server: Server, project: Project, open_page: Any
) -> None:
    hold = {"id": "hold", "run": "while ! test -e go; do sleep 0.05; done"}
    steps = [{"id": "early", "run": "true"}, hold, {"id": "later", "needs": ["hold"], "run": "sleep 0.2"}]
    plan = {"name": "outlined", "steps": steps}
    (project.path / "go").touch()
    server.api.start(plan, wait=60)
    (project.path / "go").unlink()
    execution = server.api.start(plan)["id"]
    page = await open_page(server, f"/executions/{execution}?view=timeline")
    row = page.get_by_role("row").filter(has_text="later")
    await expect(
        row.get_by_title(re.compile("^forecast: .*ends in about .*, in nine of ten runs within"))
    ).to_have_count(2)
    early = page.get_by_role("row").filter(has_text="early")
    await expect(early.locator(".bar-work")).to_have_count(1)
    await expect(early.locator(".bar-ahead")).to_have_count(0)
    places = """() => {
        const names = [".now-line", ".bars .bar-ahead", ".bars .bar-late"];
        const found = names.map((name) => [...document.querySelectorAll(name)].at(-1));
        return found.every(Boolean) && found.map((each) => each.getBoundingClientRect().left);
    }"""  # while a forecast is replaced, the page is without one for a moment
    now, ahead, late = await (await page.wait_for_function(places)).json_value()
    assert now - 2 <= ahead <= late
    (project.path / "go").touch()
    await expect(row.locator(".bar-work")).to_have_count(1)
    await expect(page.locator(".bars .bar-ahead")).to_have_count(0)
