"""One execution's part of the browser: a context with its own cookies, its proxy, and its pages by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from windlass.tools.browser.chromium import Running
from windlass.tools.browser.socks_proxy import SocksProxy

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page

__all__ = ["Session", "Tab", "quietly"]

NOTES = 20
"""Notes that are kept for one use; a page can bring up dialogs without end."""
POPUPS = 3
"""Windows that pages of one execution may have opened at a time."""
VIEW = (1280, 800)
CLOSING = 10.0
"""Seconds for the browser to close something; the rest ends with the browser."""


class Tab:
    """A page with a name. One use of it at a time."""

    def __init__(self, name: str, page: Page, session: Session, release: Callable[[], None]) -> None:
        self.name, self.page, self.session = name, page, session
        self.crashed = False
        self.broken = False
        """It could not be opened, and shows nothing of its own."""
        self.expects_download = False
        self.turn = asyncio.Lock()
        self._release: Callable[[], None] | None = release
        page.on("dialog", self._on_dialog)
        page.on("download", self._on_download)
        page.on("crash", lambda _: setattr(self, "crashed", True))
        page.on("close", lambda _: self.gone())

    def gone(self) -> None:
        """Free its place. May be called again."""
        self.session.forget(self)
        if self._release is not None:
            self._release()
            self._release = None

    async def close(self) -> None:
        self.gone()
        await quietly(self.page.close)

    async def crash(self) -> None:
        """End a page whose scripts never end: a plain close would wait for them."""
        self.gone()
        await quietly(self._crash)
        await quietly(self.page.close)

    async def _crash(self) -> None:
        await (await self.session.controls(self)).send("Page.crash")

    async def _on_dialog(self, dialog: Dialog) -> None:
        leaving = dialog.type == "beforeunload"  # to dismiss that one would be to stay
        if not leaving:
            self.session.note(f"a dialog was dismissed ({dialog.type}): {dialog.message[:200]}")
        await quietly(dialog.accept if leaving else dialog.dismiss)

    async def _on_download(self, download: Download) -> None:
        if not self.expects_download:
            self.session.note(f"a download was not taken: {download.suggested_filename[:100]}")
            await quietly(download.cancel)
            await quietly(download.delete)  # one that was quick is there already


class Session:
    def __init__(self, execution: str, running: Running, proxy: SocksProxy, context: BrowserContext) -> None:
        self.execution, self.running, self.proxy = execution, running, proxy
        self._context = context
        self.tabs: dict[str, Tab] = {}
        self.current = "main"
        """The page that was opened last."""
        self.secrets: set[str] = set()
        """Values that were filled in from the environment: no result shows them."""
        self.busy = 0
        self.ended = False
        self._notes: dict[str, None] = {}
        self._making = asyncio.Lock()
        self._ours: set[Page] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_popup: Callable[[], Awaitable[Callable[[], None] | None]] | None = None
        """Gives a place for one more page, by how to free it, or none."""
        context.on("page", self._on_page)

    @classmethod
    async def begin(cls, execution: str, running: Running, proxy: SocksProxy) -> Session:
        context = await running.browser.new_context(
            proxy={"server": f"socks5://127.0.0.1:{proxy.port}"},
            viewport={"width": VIEW[0], "height": VIEW[1]},
            accept_downloads=True,
            service_workers="block",
        )
        await context.grant_permissions([])  # these and no others: geolocation, clipboard, notifications are denied
        return cls(execution, running, proxy, context)

    @property
    def alive(self) -> bool:
        return self.running.alive and not self.ended

    async def new_tab(self, name: str, release: Callable[[], None]) -> Tab:
        async with self._making:
            page = await self._context.new_page()
            self._ours.add(page)
        tab = self.tabs[name] = Tab(name, page, self, release)
        return tab

    async def controls(self, tab: Tab) -> Any:
        """The browser's own protocol for a page."""
        return await self._context.new_cdp_session(tab.page)

    def forget(self, tab: Tab) -> None:
        self._ours.discard(tab.page)
        if self.tabs.get(tab.name) is tab:
            del self.tabs[tab.name]

    @property
    def hidden(self) -> list[str]:
        """Texts that no result may show, the longest first: one may be a part of another."""
        return sorted(self.secrets, key=len, reverse=True)

    def note(self, text: str) -> None:
        if len(self._notes) < NOTES:
            self._notes[text] = None

    def notes(self) -> list[str]:
        """The notes since the last call."""
        for refusal in self.proxy.news():
            self.note(f"a request of the page was refused: {refusal}")
        told, self._notes = list(self._notes), {}
        return told

    async def end(self) -> None:
        """Close everything. May be called again."""
        self.ended = True
        for tab in list(self.tabs.values()):
            tab.gone()
        for task in self._tasks:
            task.cancel()
        if self.running.alive:
            await quietly(self._context.close)
        await self.proxy.close()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    def _on_page(self, page: Page) -> None:
        task = asyncio.ensure_future(self._receive(page))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, page: Page) -> None:
        """A page that we did not open ourselves is a popup: it gets a name, while there is room."""
        async with self._making:
            if page in self._ours:
                return
        names = [f"popup-{number}" for number in range(1, POPUPS + 1)]
        name = next((name for name in names if name not in self.tabs), None)
        release = await self.on_popup() if name is not None and self.on_popup is not None else None
        if name is None or release is None:
            self.note("a popup was closed: too many pages are open")
            await quietly(page.close)
            return
        self._ours.add(page)
        self.tabs[name] = Tab(name, page, self, release)
        self.note(f"a popup was opened: use it with page: {name}")
        if page.is_closed():
            self.tabs[name].gone()


async def quietly(close: Callable[[], Any]) -> None:
    """Close something that may be gone already, or not answer any more."""
    from playwright.async_api import Error

    with suppress(Error, TimeoutError):
        async with asyncio.timeout(CLOSING):
            await close()
