"""The http tools of one engine, in a folder, and a short way to use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loopback import call_in

from windlass.errors import Failure, ToolError
from windlass.settings import NetworkSettings
from windlass.tools.http import http_tools

__all__ = ["NOW", "Web"]

NOW = 1_800_000_000.0


class Web:
    """The http tools of one engine, in a folder."""

    def __init__(self, folder: Path, network: NetworkSettings, **more: Any) -> None:
        self.folder = folder
        self.tools = {tool.name: tool for tool in http_tools(network, lambda: NOW, **more)}
        self.env: dict[str, str] = {}
        self.said: list[str] = []

    async def use(self, name: str, url: str, /, **arguments: Any) -> dict[str, Any]:
        call = call_in(self.folder, self.env, self.said)
        result: dict[str, Any] = await self.tools[f"http.{name}"].execute({"url": url, **arguments}, call)
        return result

    async def failure(self, name: str, url: str, /, **arguments: Any) -> Failure:
        with pytest.raises(ToolError) as caught:
            await self.use(name, url, **arguments)
        return caught.value.failure

    async def close(self) -> None:
        for tool in self.tools.values():
            await tool.close()  # type: ignore[attr-defined]
