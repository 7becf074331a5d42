"""Passes a running execution's request for approval on to the person at the client, in both eras of the protocol.

Up to 2025-11-25 the server asks in the middle of the call. From 2026-07-28 on the call ends with what is asked, and
the client makes it again with the answer; the state that it brings along is sealed by the library. A client that
cannot ask, or a person who does not answer, leaves the question open: nothing is ever allowed by default.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mcp.server.elicitation import AcceptedElicitation, render_elicitation_schema
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least
from pydantic import ValidationError

from windlass.server.mcp.clean import clean
from windlass.server.mcp.models import Answered, QuestionView
from windlass.visible import visible

__all__ = ["Desk", "Reply", "can_ask"]

ASKS_BY_RESULT = "2026-07-28"
KEY = "approval"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a question; without an answer it stays open."""

    step: str
    digest: str
    answer: Answered | None


@dataclass(slots=True)
class Desk:
    """One call's questions. `execution` is what an earlier round of the same call was about."""

    ctx: Context[Any, Any]
    execution: str | None = None
    asked: list[str] = field(default_factory=list)
    """Digests of what was asked in this call: nothing is asked twice."""
    pending: Reply | None = None
    """What the client brings along from the round before."""

    @classmethod
    def of(cls, ctx: Context[Any, Any]) -> Desk:
        if ctx.request_state is None:
            return cls(ctx)
        kept = json.loads(ctx.request_state)
        said = (ctx.input_responses or {}).get(KEY)
        answer = _answered(said) if isinstance(said, ElicitResult) else None
        return cls(ctx, kept["execution"], kept["asked"], Reply(kept["step"], kept["digest"], answer))

    def take(self) -> Reply | None:
        reply, self.pending = self.pending, None
        return reply

    def open(self, questions: list[QuestionView]) -> QuestionView | None:
        """The next one to ask, if there is anybody to ask."""
        if not can_ask(self.ctx):
            return None
        return next((q for q in questions if q.kind == "approval" and q.digest not in self.asked), None)

    async def ask(self, execution: str, question: QuestionView) -> Reply | InputRequiredResult:
        """The answer, or what the call ends with so that the client gets it."""
        digest = question.digest or ""
        self.asked.append(digest)
        message = _message(execution, question)
        if not is_version_at_least(self.ctx.session.protocol_version, ASKS_BY_RESULT):
            try:
                result = await self.ctx.elicit(message, Answered)
            except ValueError:
                return Reply(question.step, digest, None)  # what came is no answer to what was asked
            answer = result.data if isinstance(result, AcceptedElicitation) else None
            return Reply(question.step, digest, answer)
        params = ElicitRequestFormParams(message=message, requested_schema=render_elicitation_schema(Answered))
        kept = {"execution": execution, "asked": self.asked, "step": question.step, "digest": digest}
        return InputRequiredResult(input_requests={KEY: ElicitRequest(params=params)}, request_state=json.dumps(kept))


def can_ask(ctx: Context[Any, Any]) -> bool:
    """Whether the client says that it can show a person a form. An empty capability means forms."""
    capabilities = ctx.client_capabilities
    asks = capabilities.elicitation if capabilities is not None else None
    return asks is not None and (asks.form is not None or asks.url is None)


def _answered(said: ElicitResult) -> Answered | None:
    if said.action != "accept" or said.content is None:
        return None
    try:
        return Answered.model_validate(said.content)
    except ValidationError:
        return None


def _message(execution: str, question: QuestionView) -> str:
    again = f"\n{question.text}" if "; " in question.text else ""
    if question.hidden:
        again += f"\nNot shown, because they are secrets: {', '.join(question.hidden)}"
    exactly = json.dumps(clean(question.input), indent=2, ensure_ascii=False)
    head = f"Execution {execution}, step {question.step}: allow {question.tool} with exactly this?"
    return visible(f"{head}\n{exactly}{again}")
