"""The sessions of all executions: begun with `browser.open`, ended when asked to, when idle, or with the engine.

The number of pages is limited; a caller that wants one more waits until one is free. A tool does not learn that an
execution has ended, so a session that nobody has used for a while is ended; without any, so is the browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from windlass.errors import Category, Failure, ToolError
from windlass.tools.browser.chromium import BrowserPool, Running
from windlass.tools.browser.session import Session, Tab
from windlass.tools.browser.socks_proxy import SocksProxy
from windlass.tools.net.guard import AddressGuard

__all__ = ["Sessions"]

IDLE = 300.0
"""Seconds after which a session counts as left."""
LINGER = 60.0
"""Seconds that the browser is kept when nobody has a session."""
REMEMBERED = 1000
"""Executions of which it is known how their session ended."""


class Sessions:
    def __init__(
        self, pool: BrowserPool, guard: AddressGuard, pages: int, *, idle: float = IDLE, linger: float = LINGER
    ) -> None:
        self._pool, self._guard, self._pages = pool, guard, pages
        self._idle, self._linger = idle, linger
        self._places = asyncio.Semaphore(pages)
        self._sessions: dict[str, Session] = {}
        self._beginning = asyncio.Lock()
        self._endings: dict[str, str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self, execution: str, name: str | None, seconds: float) -> AsyncIterator[Tab]:
        """The page of that name, or a new one; it is the execution's current page from now on.

        A page that came to nothing is closed again; one that only did not show what was waited for can be looked at.
        """
        session = await self._session(execution)
        name = name or session.current
        async with session.use():
            tab = session.tabs.get(name)
            if tab is None or tab.crashed:
                tab = await self._new_tab(session, name, tab, seconds)
            session.current = name
            try:
                yield tab
            except BaseException as error:
                if tab.broken or not isinstance(error, ToolError) or not tab.page.url.startswith("http"):
                    await asyncio.shield(asyncio.ensure_future(tab.close()))
                raise
            finally:
                self._rest(session)

    @asynccontextmanager
    async def found(self, execution: str, name: str | None) -> AsyncIterator[Tab]:
        """A page that is open."""
        session = self._sessions.get(execution)
        if session is None or not session.alive:
            why = self._endings.get(execution) or ("the browser has ended" if session else "none was opened since")
            raise _closed(f"this execution has no page open: {why}")
        tab = session.tabs.get(name or session.current)
        if tab is None:
            there = ", ".join(session.tabs) or "none"
            raise _closed(f"the page {name or session.current!r} is not open; there are: {there}")
        async with session.use():
            try:
                yield tab
            finally:
                self._rest(session)

    async def end(self, execution: str, name: str | None = None) -> int:
        """Close one page, or all that the execution has. How many there were."""
        session = self._sessions.get(execution)
        if session is None:
            return 0
        if name is None or set(session.tabs) <= {name}:
            count = len(session.tabs)
            await self._end(session, "it was closed with browser.close")
            return count
        tab = session.tabs.get(name)
        if tab is not None:
            await tab.close()
        return int(tab is not None)

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self._end(session, "the engine has ended")
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.end()

    async def _session(self, execution: str) -> Session:
        async with self._beginning:
            session = self._sessions.get(execution)
            if session is not None and session.alive:
                return session
            if session is not None:
                await self._end(session, "the browser has ended")
            session = await self._begin(execution)
            session.on_popup = self._free_place
            self._sessions[execution] = session
            self._endings.pop(execution, None)
            self._stop_timer("")
            return session

    async def _begin(self, execution: str) -> Session:
        from playwright.async_api import Error

        running = await self._pool.get()
        try:
            return await self._behind_a_door(execution, running)
        except Error:
            # A browser that died a moment ago is not known to be dead yet.
            running.lost()
            running = await self._pool.get()
        try:
            return await self._behind_a_door(execution, running)
        except Error as error:
            running.lost()
            raise ToolError(
                f"the browser could not open a page: {error.message[:300]}", category=Category.TRANSIENT
            ) from error

    async def _behind_a_door(self, execution: str, running: Running) -> Session:
        proxy = SocksProxy(self._guard, self._pool.ours)
        await proxy.open()
        try:
            return await Session.begin(execution, running, proxy)
        except BaseException:
            await proxy.close()
            raise

    async def _new_tab(self, session: Session, name: str, old: Tab | None, seconds: float) -> Tab:
        if old is not None:
            await old.close()
        if len(session.tabs) >= self._pages:
            raise ToolError(
                f"this execution has {len(session.tabs)} pages open, the most that are allowed",
                category=Category.LOGIC,
                advice=("close one with browser.close, or raise browser.pages in your settings",),
            )
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            raise ToolError(
                f"all {self._pages} pages of the browser are in use, and none became free within {seconds:g} s",
                category=Category.TRANSIENT,
                advice=("end plans that use it with browser.close, or raise browser.pages in your settings",),
            ) from None
        try:
            return await session.new_tab(name, self._places.release)
        except BaseException:
            self._places.release()
            raise

    async def _free_place(self) -> Callable[[], None] | None:
        """A place for a popup, if there is one at once."""
        if self._places.locked():
            return None
        await self._places.acquire()
        return self._places.release

    async def _end(self, session: Session, why: str) -> None:
        if self._sessions.get(session.execution) is session:
            del self._sessions[session.execution]
        self._endings.pop(session.execution, None)
        if len(self._endings) >= REMEMBERED:
            del self._endings[next(iter(self._endings))]
        self._endings[session.execution] = why
        self._stop_timer(session.execution)
        await asyncio.shield(asyncio.ensure_future(session.end()))
        if not self._sessions:
            self._start_timer("", self._linger, self._leave_browser)

    def _rest(self, session: Session) -> None:
        if not session.ended:
            self._start_timer(session.execution, self._idle, lambda: self._leave(session))

    async def _leave(self, session: Session) -> None:
        if session.busy:
            self._rest(session)
        else:
            await self._end(session, f"it was closed after {self._idle:g} s without use")

    async def _leave_browser(self) -> None:
        async with self._beginning:
            if not self._sessions:
                await self._pool.end()

    def _start_timer(self, key: str, seconds: float, then: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._stop_timer(key)

        def now() -> None:
            task = asyncio.ensure_future(then())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._timers[key] = asyncio.get_running_loop().call_later(seconds, now)

    def _stop_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


def _closed(message: str) -> ToolError:
    return ToolError.of(
        Failure(Category.LOGIC, message, advice=("open the page again: put a browser.open before this step",))
    )
