"""Fixtures of the message tools' tests; the servers and the world are in `message_world.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from message_world import MailServer, WebServer, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def server(world: World) -> AsyncIterator[MailServer]:
    """A mail server that the world's settings know as `mail`."""
    async with MailServer().serving() as running:
        world.mail(running)
        yield running


@pytest.fixture
async def web(world: World) -> AsyncIterator[WebServer]:
    """A web server that the world knows as a chat service `chat` and a webhook `hook`."""
    async with WebServer().serving() as running:
        world.env["CHAT_ADDRESS"] = f"json://localhost:{running.port}/chat"
        world.services["chat"] = {"url_env": "CHAT_ADDRESS"}
        world.services["hook"] = {"url": f"http://localhost:{running.port}/hook"}
        yield running
