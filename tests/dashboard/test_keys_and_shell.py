"""Around every page: navigation, keys, theme, the home's name, an expired login (I4)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Server

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp\x1b[31m"


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_the_help_lists_the_keys_and_nothing_happens_while_typing(server: Server, open_page: Any) -> None:
    page = await open_page(server)
    search = page.get_by_role("searchbox")
    await search.focus()
    await page.keyboard.press("?")
    await expect(search).to_have_value("?")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await search.blur()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Go to Executions")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.keyboard.type("ge")
    await expect(page).to_have_url(server.address + "/")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_title_and_header_name_the_home(server: Server, open_page: Any, project: Project) -> None:
    page = await open_page(server)
    home = page.locator(".home")
    await expect(home).to_have_attribute("title", f"State directory: {project.home}")
    await expect(home).to_contain_text(os.path.basename(project.home))
    await expect(page).to_have_title("Executions · " + (await home.locator("bdi").inner_text()) + " · Windlass")


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_the_theme_is_the_systems_until_one_is_chosen(server: Server, open_page: Any) -> None:
    page = await open_page(server, color_scheme="dark")

    async def scheme() -> str:
        return str(await page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = await scheme()
    await page.get_by_role("button", name="Theme: system").click()
    await expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    light = await scheme()
    assert light != dark
    await page.reload()
    await expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert await scheme() == light
    await page.get_by_role("button", name="Theme: light").click()
    await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert await scheme() == dark


@pytest.mark.asyncio(loop_scope="session")
async def test_c5_an_expired_login_says_so_and_what_to_do(server: Server, open_page: Any) -> None:
    page = await open_page(server, allow=("401", "WebSocket"))
    cookies = await page.context.cookies()
    await page.context.clear_cookies()
    notice = page.get_by_role("alert")
    await expect(notice).to_contain_text("Your login has expired")
    await expect(notice).to_contain_text("windlass serve --open")
    await page.context.add_cookies(cookies)
    await expect(notice).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_i4_hostile_names_are_shown_as_text(server: Server, open_page: Any) -> None:
    server.api.start({"name": HOSTILE, "steps": [{"id": "one", "run": "echo x"}]})
    page = await open_page(server)
    await expect(page.get_by_role("link", name="<img src=x onerror=alert(1)>")).to_contain_text("\\u202egnp\\u001b[31m")
