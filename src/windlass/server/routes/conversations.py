"""Conversations of agents: `/api/executions/ID/transcript`."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response

from windlass.core.transcript import as_markdown
from windlass.server import answer_models
from windlass.server.routes.executions import After
from windlass.server.routes.shared import Id, answer, engine_of, new_router, problems, returns

__all__ = ["conversation_routes"]

conversation_routes = new_router("/api", "conversations")


@conversation_routes.get(
    "/executions/{execution}/transcript",
    responses={200: returns(answer_models.TranscriptPage), **problems(404, 409, 422)},
)
async def transcript(
    request: Request,
    execution: Id,
    step: Annotated[str, Query(max_length=400, description="The step of the agent.")],
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    whole: Annotated[bool, Query(description="Long inputs and results in full, instead of cut.")] = False,
    form: Annotated[Literal["json", "markdown"], Query(alias="format")] = "json",
) -> Response:
    """An agent's conversation: prompts, replies, calls and results. It grows live: read on with `after`."""
    engine = engine_of(request)
    head = await engine.find(execution)
    entries = await engine.transcript(head.id, step, after=after, whole=whole)
    following = None
    if len(entries) > limit:
        last = entries[limit - 1].seq
        entries = [entry for entry in entries if entry.seq <= last]  # an event can make two entries
        query = urlencode({"step": step, "after": last, "limit": limit, "whole": str(whole).lower(), "format": form})
        following = f"/api/executions/{head.id}/transcript?{query}"
    if form == "markdown":
        system, blocks = "", []
        for entry in entries:
            blocks.append(as_markdown(entry, system))
            system = entry.system or system
        link = {"Link": f'<{following}>; rel="next"'} if following else {}
        return Response("".join(blocks), headers=link, media_type="text/markdown; charset=utf-8")
    return answer({"execution": head.id, "step": step, "entries": entries, "next": following})
