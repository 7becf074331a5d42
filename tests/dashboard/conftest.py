"""A real Chromium over the real server: one browser for all tests of a worker, a context of its own for each.

A test fails if its page wrote an error to the console, asked another address for anything, or broke its own policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from server_process import Server, serve, server

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

from windlass.tools.browser.chromium import NAMES

__all__ = ["serve", "server"]

ARGUMENTS = ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
PATIENCE_MS = 180_000
"""No page may fail because the machine is busy."""


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        running = await playwright.chromium.launch(executable_path=found, args=arguments, timeout=PATIENCE_MS)
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def new_context(browser: Browser) -> AsyncIterator[Callable[..., Awaitable[BrowserContext]]]:
    """Contexts of the browser that know nobody, closed at the end."""
    contexts: list[BrowserContext] = []

    async def made(**options: Any) -> BrowserContext:
        contexts.append(context := await browser.new_context(**options))
        context.set_default_timeout(PATIENCE_MS)
        return context

    yield made
    for context in contexts:
        await context.close()


Open = Callable[..., Awaitable["Page"]]


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(new_context: Any) -> AsyncIterator[Open]:
    """`await open_page(server, "/path", width=…, height=…, theme="dark")`: a page of a browser that is logged in."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []
    logged_in: dict[str, Any] = {}

    async def opened(
        server: Server,
        path: str = "/",
        *,
        width: int = 1280,
        height: int = 800,
        allow: tuple[str, ...] = (),
        **options: Any,
    ) -> Page:
        options = {
            "viewport": {"width": width, "height": height},
            "storage_state": logged_in.get(server.address),
        } | options
        contexts.append(context := await new_context(**options))
        page: Page = await context.new_page()

        def said(message: Any) -> None:
            if message.type == "error" and not any(part in message.text for part in allow):
                faults.append(f"{message.text} ({message.location})")

        page.on("console", said)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: _check_address(request.url, server.address, faults))
        if server.address not in logged_in:  # the link can be used once; test_open.py follows it in a page
            answer = await context.request.get(Path(server.told["login_file"]).read_text().strip())
            assert answer.ok
            logged_in[server.address] = await context.storage_state()
        await page.goto(server.address + path)
        return page

    yield opened
    for context in contexts:
        await context.close()
    assert faults == []


def _check_address(url: str, ours: str, faults: list[str]) -> None:
    if not url.startswith((ours, ours.replace("http", "ws", 1), "data:", "blob:")):
        faults.append(f"the page asked another address: {url}")
