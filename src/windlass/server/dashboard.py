"""The dashboard's files: one page for every address of it, and the assets that it loads.

The build is in the package (`windlass/dashboard`). Nothing of it is a template: what the server knows comes through
the API, as text. The guard lets in only those who are logged in, as for the API.
"""

from __future__ import annotations

import gzip
import mimetypes
import re
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

__all__ = ["dashboard_routes"]

BUILT = Path(__file__).parents[1] / "dashboard"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_PAGE = {"cache-control": "no-cache", "content-security-policy": POLICY, "referrer-policy": "same-origin"}
_ASSET = {"cache-control": "private, max-age=31536000, immutable", "content-security-policy": POLICY}
PAGES = ("/", "/start", "/executions/{id}", "/approvals", "/history", "/tools", "/budget", "/settings")
"""Addresses of the dashboard; its own router shows what belongs there."""
_ID = re.compile(r"[0-9a-f-]{8,36}")


def dashboard_routes(built: Path = BUILT) -> list[Route]:
    """Routes of the page and its assets. The files are listed once: no path of a request leads to any other."""
    assets = {f"/{path.relative_to(built).as_posix()}": path for path in built.rglob("*") if path.is_file()}
    index = assets.pop("/index.html", None)

    async def page(request: Request) -> Response:
        if index is None:
            text = "The dashboard is not in this installation. Build it with: make dashboard"
            return HTMLResponse(f"<!doctype html><title>Windlass</title><p>{text}</p>", 404, _PAGE)
        return _file(request, index, _PAGE | _needed(request.path_params.get("id", "")))

    async def asset(request: Request) -> Response:
        return _file(request, assets[request.url.path], _ASSET)

    found = [Route(path, page, methods=["GET"]) for path in PAGES]
    return found + [Route(path, asset, methods=["GET"]) for path in assets]


def _needed(execution: str) -> dict[str, str]:
    """Let the browser ask for the steps of an execution while it still loads the script that shows them."""
    if not _ID.fullmatch(execution):
        return {}
    return {"link": f"</api/executions/{execution}/steps>; rel=preload; as=fetch; crossorigin=anonymous"}


def _file(request: Request, path: Path, headers: dict[str, str]) -> Response:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(path.read_bytes(), 200, headers, kind)
    headers = {**headers, "content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(_packed(path, path.stat().st_mtime_ns), 200, headers, kind)


@lru_cache(64)
def _packed(path: Path, _changed: int) -> bytes:
    return gzip.compress(path.read_bytes(), 6)
