"""The `browser.*` tools: each a name, an effect for recovery, and an action on a page.

To look at a page has no effect. To open one, to fill a field or to keep a file ends the same when it is done twice. A
click or a key may send something off, so it is never repeated unasked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from windlass.errors import ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Health, Tool
from windlass.process import Supervisor
from windlass.settings import BrowserSettings, NetworkSettings
from windlass.tools.browser import acts, artifacts, chromium
from windlass.tools.browser import arguments as told
from windlass.tools.browser.chromium import BrowserPool
from windlass.tools.browser.session import Tab
from windlass.tools.browser.sessions import IDLE, LINGER, Sessions
from windlass.tools.functional import Act, Arguments, FunctionalTool
from windlass.tools.net.guard import AddressGuard, Resolver, system_resolver
from windlass.tools.net.names import read_address

__all__ = ["BrowserTools"]

Work = Callable[[Tab, Any, Call, float], Awaitable[dict[str, Any]]]
LONGEST = 2048
"""Characters of an address."""


class BrowserTools:
    """The tools of one engine, which share one browser. Close it with the engine, before its supervisor."""

    def __init__(
        self,
        settings: BrowserSettings,
        network: NetworkSettings,
        supervisor: Supervisor,
        env: Mapping[str, str],
        *,
        resolve: Resolver = system_resolver,
        idle: float = IDLE,
        linger: float = LINGER,
    ) -> None:
        """`env` is where PATH is found. `idle`: seconds after which an execution's pages are closed; `linger`: seconds
        that the browser then stays."""
        self._settings, self._supervisor, self._env = settings, supervisor, env
        self._guard = AddressGuard(network, resolve)
        self._sessions = Sessions(
            BrowserPool(settings, supervisor, env), self._guard, settings.pages, idle=idle, linger=linger
        )

    def tools(self) -> list[Tool]:
        none, again, once = Effect.NONE, Effect.REPEATABLE, Effect.ONCE
        opens = "Open a web page in a browser; the other browser tools then work on it"
        closes = "Close a page, or all pages of this execution"
        return [
            self._made("open", opens, told.Open, self._open, again, told.Opened, _host),
            self._tool("click", "Click on something in the page", told.Click, acts.click, once),
            self._tool("fill", "Fill a field of the page", told.Fill, acts.fill, again),
            self._tool("select", "Select options of a list in the page", told.Select, acts.select, again),
            self._tool("press", "Press a key in the page", told.Press, acts.press, once),
            self._tool("wait", "Wait until the page shows something, or does not any more", told.Wait, acts.wait, none),
            self._tool("text", "The text of the page, or of a part of it", told.ReadPage, acts.text, none, told.Texted),
            self._tool("tables", "The tables of the page, as rows", told.ReadPage, acts.tables, none, told.Tabled),
            self._tool("links", "The links of the page", told.Links, acts.links, none, told.Listed),
            self._tool(
                "screenshot", "Save a screenshot of the page", told.Screenshot, artifacts.screenshot, again, told.Kept
            ),
            self._tool("pdf", "Save the page as a PDF", told.Pdf, artifacts.pdf, again, told.Kept),
            self._tool(
                "download",
                "Click on something and save the file that is downloaded",
                told.Click,
                artifacts.download,
                once,
                told.Kept,
            ),
            self._made("close", closes, told.Close, self._close, again, told.Closed),
        ]

    async def close(self) -> None:
        """Close all pages and the browser. A later use starts a new one."""
        await self._sessions.close()

    async def health(self) -> Health:
        return await chromium.health(self._settings, self._env, self._supervisor)

    def _tool(
        self,
        name: str,
        description: str,
        model: type[Arguments],
        work: Work,
        effect: Effect,
        result: type[Arguments] = told.Shown,
    ) -> Tool:
        async def act(args: Any, call: Call) -> dict[str, Any]:
            seconds = self._seconds(args)
            async with self._sessions.found(call.execution, args.page) as tab, tab.turn, _used(tab, call):
                try:
                    return self._told(tab, await work(tab, args, call, seconds), call)
                except asyncio.CancelledError:
                    if effect is not Effect.NONE:
                        # An action that waits in the browser for its element would still be done when it comes.
                        await asyncio.shield(asyncio.ensure_future(tab.close()))
                    raise

        return self._made(name, description, model, act, effect, result)

    def _made(
        self,
        name: str,
        description: str,
        model: type[Arguments],
        act: Act,
        effect: Effect,
        result: type[Arguments],
        circuit: Callable[[Any], str | None] = lambda args: None,
    ) -> Tool:
        """Make a tool. A page that is not as expected says nothing about the next one: most have no circuit."""
        return FunctionalTool(
            f"browser.{name}",
            description,
            model,
            act,
            effect=effect,
            stateful=True,
            result=result,
            health=self.health,
            close=self.close,
            circuit=circuit,
        )

    async def _open(self, args: told.Open, call: Call) -> dict[str, Any]:
        seconds = self._seconds(args)
        target = await self._guard.check(args.url)
        async with self._sessions.opened(call.execution, args.page, seconds) as tab, tab.turn, _used(tab, call):
            return self._told(tab, await acts.go(tab, args, target, seconds), call)

    async def _close(self, args: told.Close, call: Call) -> dict[str, Any]:
        return {"closed": await self._sessions.end(call.execution, args.page)}

    def _told(self, tab: Tab, found: dict[str, Any], call: Call) -> dict[str, Any]:
        """The result, with the address of the page now."""
        result = {"page": tab.name, "url": tab.page.url[:LONGEST], "notes": tab.session.notes(), **found}
        secrets = tab.session.hidden
        clean: dict[str, Any] = acts.without(result, secrets) if secrets else result
        for note in clean["notes"]:
            call.output("note", f"{note}\n")
        return clean

    def _seconds(self, args: Any) -> float:
        return min(args.timeout or self._settings.timeout, self._settings.timeout)


@asynccontextmanager
async def _used(tab: Tab, call: Call) -> AsyncIterator[None]:
    """Surround a use. Traffic through the proxy since the execution's last use counts for this one."""
    try:
        yield
    except ToolError as error:
        if not tab.session.secrets:
            raise
        # It may tell what the page shows, and that what was filled in; what it came from shows the page as it is.
        blanked = acts.without(error.failure.message, tab.session.hidden)
        raise ToolError.of(msgspec.structs.replace(error.failure, message=blanked)) from None
    finally:
        received, sent = tab.session.proxy.traffic()
        call.meter.add(received=received, sent=sent)


def _host(args: told.Open) -> str:
    """A host that is down says nothing about the others."""
    address = read_address(args.url)
    return f"browser:{address.host}:{address.port}"
