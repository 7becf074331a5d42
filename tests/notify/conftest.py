"""A mail server and a web server beside the tests of notifications.

They serve in a thread of their own: the notifications come from real processes, which the tests wait for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import pytest
from notify_world import Receivers

from windlass.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture
def receivers(project: Project) -> Iterator[Receivers]:
    made = Receivers(project)
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(made.mail.serving())
            await stack.enter_async_context(made.web.serving())
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    yield made
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()


@pytest.fixture
def refusing(port: int) -> int:
    """A port that nobody listens on."""
    return port


@pytest.fixture
def served() -> Iterator[Callable[..., dict[str, str]]]:
    """A model that says these words: gives the environment that points the program at it."""
    with ExitStack() as stack:

        def serve(*script: Reply) -> dict[str, str]:
            model = stack.enter_context(ScriptedModel(script))
            return {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}

        yield serve
