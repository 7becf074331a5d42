"""A real `windlass serve` for clients that speak MCP over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Windlass

__all__ = ["mcp_over_http"]


@contextmanager
def mcp_over_http(windlass: Windlass, until: Any) -> Iterator[str]:
    """The address of its tools."""
    server = windlass.background("serve", "--port", "0", "--json")
    until(lambda: server.out.strip().endswith("}"), "the server says where it is")
    yield f"{json.loads(server.out)['address']}/mcp"
    server.signal(15)
    assert server.ended().code == 0, server.err
