"""`http.*`: ask web services, and fetch what they have (H2)."""

from windlass.tools.http.tools import http_tools

__all__ = ["http_tools"]
