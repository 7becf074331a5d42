"""Files that steps made for people: `/api/executions/ID/artifacts`.

A page may show a picture. Every other file is only ever saved: what an agent wrote must not run as a page of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Path as PathOf
from fastapi import Query, Request
from starlette.responses import Response

from windlass.engine.lookup import find_step
from windlass.engine.transcripts import read_below
from windlass.errors import NotFound
from windlass.server import answer_models
from windlass.server.routes.shared import Id, answer, engine_of, new_router, problems, returns

__all__ = ["artifact_routes"]

MOST_LISTED = 1000
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_FILE = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, no-cache"}

artifact_routes = new_router("/api/executions/{execution}/artifacts", "executions")


@artifact_routes.get("", responses={200: returns(answer_models.ArtifactList), **problems(404, 409)})
async def artifacts(
    request: Request, execution: Id, step: Annotated[str, Query(max_length=400, description="Only of this step.")]
) -> Response:
    """Files that a step made: pictures, downloads, long results."""
    engine = engine_of(request)
    state = await engine.state(execution)
    name = find_step(state, step).id
    await engine.bring_artifacts(state, name)
    folder = engine.home / "artifacts" / state.id
    found = await asyncio.to_thread(lambda: list(_files(folder, name)))
    return answer({"execution": state.id, "step": name, "artifacts": found})


@artifact_routes.get(
    "/{path:path}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}, **problems(404)},
)
async def artifact(
    request: Request, execution: Id, path: Annotated[str, PathOf(max_length=4096, description="As the list gives it.")]
) -> Response:
    """One file. Pictures come as such; every other kind as bytes to save."""
    engine = engine_of(request)
    head = await engine.find(execution)
    folder = engine.home / "artifacts" / head.id
    data = await asyncio.to_thread(read_below, folder, path) if "\0" not in path else None
    if data is None:
        raise NotFound(f"{head.id} has no artifact {path!r}")
    kind = _picture(data)
    name = quote(Path(path).name, safe="")
    how = "inline" if kind else "attachment"
    headers = {**_FILE, "content-disposition": f"{how}; filename*=UTF-8''{name}"}
    return Response(data, 200, headers, kind or "application/octet-stream")


def _files(folder: Path, step: str) -> Iterator[dict[str, Any]]:
    """The regular files of a step; links are none of its own."""
    own = folder / step
    if own.parent != folder or own.is_symlink() or not own.is_dir():
        return
    for path in sorted(own.rglob("*"))[:MOST_LISTED]:
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            picture = _picture(file.read(16))
        yield {
            "path": path.relative_to(folder).as_posix(),
            "bytes": path.stat().st_size,
            "image": picture is not None,
        }


def _picture(data: bytes) -> str | None:
    """The kind of a picture, by its first bytes: a name can say anything."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _PICTURES.items() if data.startswith(mark)), None)
