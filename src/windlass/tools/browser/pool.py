"""One browser for the process: started on first use, kept for the next ones, started anew when it has died."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from windlass.errors import Category, ToolError
from windlass.process import Supervisor
from windlass.settings import BrowserSettings
from windlass.tools.browser.chromium import Chromium, find

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

__all__ = ["Pool", "Running"]

FAREWELL = 10.0
"""Seconds for the driver to end in peace."""


class Running:
    """A browser, and playwright's driver that talks to it."""

    def __init__(self, chromium: Chromium, playwright: Playwright, browser: Browser) -> None:
        self.chromium, self.playwright, self.browser = chromium, playwright, browser
        self._dead = asyncio.Event()
        browser.on("disconnected", lambda _: self._dead.set())

    @property
    def alive(self) -> bool:
        return not self._dead.is_set() and self.browser.is_connected()

    def lost(self) -> None:
        """It did not answer as a living one does."""
        self._dead.set()

    async def end(self) -> None:
        self._dead.set()
        try:
            async with asyncio.timeout(FAREWELL):
                await self.playwright.stop()
        except Exception:  # a driver that was killed cannot say goodbye; the browser is ended all the same
            self._dead.set()
        finally:
            await self.chromium.stop()


class Pool:
    def __init__(self, settings: BrowserSettings, supervisor: Supervisor, env: Mapping[str, str]) -> None:
        self._settings, self._supervisor, self._env = settings, supervisor, env
        self._running: Running | None = None
        self._turn = asyncio.Lock()
        self.ours: set[int] = set()
        """Ports that pages may not reach."""

    async def get(self) -> Running:
        async with self._turn:
            if self._running is None or not self._running.alive:
                await self._end()
                self._running = await self._start()
                self.ours.add(self._running.chromium.port)
            return self._running

    async def end(self) -> None:
        """Until the next use."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        ended, self._running = self._running, None
        if ended is not None:
            self.ours.discard(ended.chromium.port)
            await asyncio.shield(asyncio.ensure_future(ended.end()))

    async def _start(self) -> Running:
        try:
            from playwright.async_api import Error, async_playwright
        except ImportError as error:
            raise ToolError(
                "the browser cannot be driven: playwright is not installed",
                category=Category.CONFIGURATION,
                advice=("pip install 'windlass[browser]'",),
            ) from error
        chromium = await Chromium.start(find(self._settings, self._env), self._supervisor, self._env)
        playwright = None
        try:
            playwright = await async_playwright().start()
            browser = await playwright.chromium.connect_over_cdp(
                chromium.endpoint, is_local=True, artifacts_dir=chromium.folder.files
            )
        except BaseException as error:
            if playwright is not None:
                await playwright.stop()
            await asyncio.shield(asyncio.ensure_future(chromium.stop()))
            if isinstance(error, Error):
                raise ToolError(
                    f"the browser cannot be driven: {error.message[:300]}", category=Category.TRANSIENT
                ) from error
            raise
        return Running(chromium, playwright, browser)
