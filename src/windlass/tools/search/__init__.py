"""`search`: ask the web, by whichever of the configured services answers first (H2)."""

from windlass.ports import Tool
from windlass.tools.built_in import ToolSetup
from windlass.tools.search.tools import search_tools

__all__ = ["build_tools", "search_tools"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return search_tools(setup.settings.search, setup.settings.network, setup.environ, setup.clock.now)
