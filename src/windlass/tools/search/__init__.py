"""`search`: ask the web, by whichever of the configured services answers first (H2)."""

from windlass.tools.search.tools import search_tools

__all__ = ["search_tools"]
