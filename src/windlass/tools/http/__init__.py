"""`http.*`: ask web services, and fetch what they have (H2)."""

from windlass.ports import Tool
from windlass.tools.built_in import ToolSetup
from windlass.tools.http.tools import http_tools

__all__ = ["build_tools", "http_tools"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return http_tools(setup.settings.network, setup.clock.now)
