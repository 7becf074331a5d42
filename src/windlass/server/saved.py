"""An execution as one HTML file that opens anywhere: the pages of the dashboard, with the server's answers in it.

The answers are those of the API, word for word, so the file shows what the dashboard showed. It has no address in it
and asks for nothing: its policy allows its own script and style alone, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any
from urllib.parse import quote

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from windlass.errors import UsageError
from windlass.server.dashboard import BUILT
from windlass.server.routes.shared import Id, engine_of, new_router, problems
from windlass.visible import visible

__all__ = ["saved_routes"]

MOST_STEPS = 2_000
"""Steps whose input, output and log are in the file; of all others it has the line and the times."""
MOST_BYTES = 50_000_000
"""Bytes of answers after which no more details are put into the file."""
_LEFT_OUT = frozenset({"completed", "skipped", "pending"})


class SavedExecution(msgspec.Struct):
    """The part of the file that is data. Answers are found by their path and the step that was asked for."""

    execution: str
    saved_at: float
    left_out: int
    """Steps without details."""
    answers: dict[str, msgspec.Raw]


saved_routes = new_router("/api", "executions")


@saved_routes.get(
    "/executions/{execution}/saved",
    responses={200: {"content": {"text/html": {}}}, **problems(404, 409)},
    response_class=Response,
)
async def saved(request: Request, execution: Id) -> Response:
    """One execution as an HTML file that opens anywhere: steps, logs, transcripts, without a server."""
    script, style = BUILT / "saved" / "saved.js", BUILT / "saved" / "saved.css"
    if not script.exists():
        raise UsageError("the dashboard is not in this installation", advice=("build it with: make dashboard",))
    head = await engine_of(request).find(execution)
    found = await _gather(request.app, head.id)
    page = _page(visible(head.name), found, script.read_text("utf-8"), style.read_text("utf-8"))
    name = f"windlass-{head.id[:8]}.html"
    disposition = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(page, 200, disposition, "text/html")


async def _gather(app: FastAPI, execution: str) -> SavedExecution:
    import httpx2

    base = f"/api/executions/{execution}"
    answers: dict[str, msgspec.Raw] = {}
    kept = size = 0
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://saved") as client:

        async def keep(path: str, **query: str | int) -> Any:
            nonlocal size
            given = await client.get(quote(f"{base}{path}"), params=query)
            if given.status_code != 200:
                return None
            named = query.get("items") or query.get("step") or ""
            answers[f"{base}{path}\n{named}"] = msgspec.Raw(given.content)
            size += len(given.content)
            return given.json()

        await keep("/summary")
        rows = list((await keep("/steps"))["steps"])
        for row in [row for row in rows if row.get("items")]:
            rows += (await keep("/steps", items=row["id"]))["steps"]
        rows.sort(key=lambda row: (row["status"] in _LEFT_OUT, row["tool"] != "agent"))
        for row in rows[:MOST_STEPS]:
            step = row["id"]
            await keep(f"/steps/{step}")
            await keep(f"/steps/{step}/events", limit=10_000)
            await keep("/artifacts", step=step)
            if row["tool"] == "agent":
                await keep("/transcript", step=step, limit=10_000, whole="true")
            kept += 1
            if size > MOST_BYTES:
                break
    return SavedExecution(execution, time.time(), len(rows) - kept, answers)


def _page(title: str, data: SavedExecution, script: str, style: str) -> str:
    # `</script` and `<!--` in a script would end it or hide its end.
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    told = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    escaped = title.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="content-security-policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escaped} · Windlass</title>'
        f"<style>{style}</style></head>"
        f'<body><div id="app"></div><script type="application/json" id="saved">{told}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
