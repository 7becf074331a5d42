"""A shell command that stays: started, waited for until it is ready, and handed over to the execution (B5, A8).

Its attempt ends when it is ready. From then on the execution owns it, and ends it when the steps that need it have
ended, or when the execution stops for whatever reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

from windlass.errors import Category, ToolError, WindlassError
from windlass.plan.service import ServiceCheck
from windlass.process import Exit, Process

__all__ = ["RunningService", "ServiceOutput", "refuse_port", "wait_until_ready"]

FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
"""Seconds between two looks whether it is ready."""
LONGEST_LOOK = 10.0
"""Seconds that one look may take."""


class ServiceOutput(NamedTuple):
    """The output of a service while it runs, and the tasks that read it."""

    said: Callable[[], str]
    """Its last lines, as the end of a message."""
    has: Callable[[str], bool]
    """Tells whether a text is in it."""
    readers: Sequence[asyncio.Future[None]]

    async def whole(self) -> str:
        """The last lines of a process that has ended."""
        await asyncio.gather(*self.readers)
        return self.said()


class RunningService:
    """The process of a service, with its output and everything that must stay open for it."""

    def __init__(self, process: Process, output: ServiceOutput, open_for_it: AsyncExitStack) -> None:
        self._process, self._output, self._open = process, output, open_for_it

    async def ended(self) -> str:
        """Wait for its end; gives how it ended, with its last output."""
        try:
            told = (await self._process.wait()).text
        except WindlassError as error:
            told = error.message
        return told + await self._output.whole()

    async def stop(self, grace: float) -> None:
        """End it with everything that it started: SIGTERM, and SIGKILL after the grace."""
        try:
            with suppress(WindlassError):  # lost: the keeper ends what is left of it
                await self._process.stop(grace)
        finally:
            await self._open.aclose()


async def wait_until_ready(
    check: ServiceCheck, process: Process, output: ServiceOutput, run: Callable[[str], Awaitable[Exit]]
) -> None:
    """Return when the check holds; raises if the process ends before, or when its time is over."""
    ready = asyncio.ensure_future(_ready(check, output, run))
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({ready, ended}, timeout=check.within, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            exit = ended.result()
            advice = (
                "a service stays in the foreground: start it without an option that makes it a daemon"
                if exit.code == 0
                else "see its output above, and start the command by hand"
            )
            message = f"the service ended before it was ready ({exit.text}){await output.whole()}"
            raise ToolError(message, advice=(advice,))
        if not ready.done():
            raise ToolError(
                f"the service was not ready within {check.within:g} s: waited until {check.shown}{output.said()}",
                category=Category.RESOURCE,
                advice=("give it more time: `service: {within: 5m}`", "check what it waits for in its output"),
            )
        ready.result()
    finally:
        for task in (ready, ended):
            task.cancel()
        await asyncio.wait({ready, ended})


async def _ready(check: ServiceCheck, output: ServiceOutput, run: Callable[[str], Awaitable[Exit]]) -> None:
    wait = FIRST_WAIT
    while not await _holds(check, output, run):
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LONGEST_WAIT)


async def _holds(check: ServiceCheck, output: ServiceOutput, run: Callable[[str], Awaitable[Exit]]) -> bool:
    if check.port is not None:
        return await _connects(int(check.port))
    if check.line is not None:
        return output.has(check.line)
    if check.command is None:
        return True
    try:
        async with asyncio.timeout(LONGEST_LOOK):
            return (await run(check.command)).code == 0
    except TimeoutError:
        return False


async def _connects(port: int) -> bool:
    """Tell whether something accepts connections at a port of this machine."""
    for host in ("127.0.0.1", "::1"):
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LONGEST_LOOK):
                _reader, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    return False


async def refuse_port(check: ServiceCheck) -> None:
    """Refuse what is not a port once its template is filled in, and one that another program has: that one would be
    taken for the service."""
    if check.port is not None and not (str(check.port).isdigit() and 0 < int(check.port) < 65536):
        raise ToolError(f"`service.port` is {check.port!r}, which is not a port", category=Category.CONFIGURATION)

    if check.port is not None and await _connects(int(check.port)):
        raise ToolError(
            f"port {check.port} is in use by another program",
            category=Category.CONFIGURATION,
            advice=(f"find it: ss -ltnp 'sport = :{check.port}'", "or give the service another port"),
        )
