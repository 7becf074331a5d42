"""Spans from the journal: the fold of an execution's events into a trace.

    execution            invoke_workflow PLAN
      step               step ID; the items of a foreach are beneath its step
        attempt          execute_tool TOOL, or invoke_agent ROLE
          call           chat MODEL, or execute_tool TOOL: calls of an agent or a program

Pure: the same events give the same spans, in whichever process. Times are those of the events. Names and attributes
are those of OpenTelemetry's GenAI conventions where they have one, else they begin with `windlass.`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.resources import Resources
from windlass.errors import Failure
from windlass.plan.model import AGENT
from windlass.telemetry.attempts import AttemptSpan, message_text, output_text, provider_of, set_usage
from windlass.telemetry.ids import attempt_span, linked, root_span, span_id, trace_id
from windlass.telemetry.spans import OpenSpan, SpanRecord, as_json

__all__ = ["TraceFold"]

LONGEST_MESSAGE = 200
"""Characters of a failure's message without `content`: it may quote an output."""
_TROUBLE = {"lost": "cut off by a crash", "timeout": "stopped at its timeout"}
"""Reasons of a stop that are errors."""


class _PlanName(msgspec.Struct):
    name: str = ""


class TraceFold:
    """The open spans of one execution."""

    def __init__(self, execution: str, *, content: bool = False) -> None:
        """With `content`, prompts, arguments, outputs and messages are attributes, too."""
        self.execution = execution
        self.seq = 0
        """Events that were applied."""
        self.driven = False
        """A driver has it: if another one resumes it now, that one has died."""
        self.ended: list[SpanRecord] = []
        """Spans that ended since they were last taken."""
        self._content = content
        self._trace = trace_id(execution)
        self._first = root_span(execution)
        self._root: OpenSpan | None = None
        self._reopened = 0
        self._steps: dict[str, OpenSpan] = {}
        self._rounds: dict[str, int] = {}
        """Spans of a step that ended; it has another one when a person retries it."""
        self._attempts: dict[str, AttemptSpan] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self._last_at = 0.0

    def apply(self, event: ev.Event) -> None:
        """Take one more event into account."""
        self.seq += 1
        act = _APPLY.get(type(event))
        if act is not None:
            act(self, event)
        self._last_at = event.at

    def take(self) -> list[SpanRecord]:
        """Give the spans that ended since the last time."""
        ended, self.ended = self.ended, []
        return ended

    # -- the execution -------------------------------------------------------------------------

    def _created(self, event: ev.ExecutionCreated) -> None:
        try:
            plan = msgspec.json.decode(event.plan, type=_PlanName).name
        except msgspec.MsgspecError:
            plan = ""
        root = self._root = OpenSpan(self._first, None, f"invoke_workflow {plan}".strip(), event.at)
        root.gen_ai(operation__name="invoke_workflow", workflow__name=plan)
        root.set(execution=event.id, plan_digest=event.source.digest)
        if (caller := linked(event.traceparent)) is not None:
            root.links.append(caller)
        if event.origin is not None and event.origin.kind == "fork":
            root.links.append((trace_id(event.origin.execution), root_span(event.origin.execution)))
            root.set(fork_of=event.origin.execution)

    def _started(self, event: ev.ExecutionStarted) -> None:
        self._tell("started", event.at, driver=event.driver)
        self.driven = True

    def _resumed(self, event: ev.ExecutionResumed) -> None:
        # The journal knows of what a dead driver left up to its last event, and of nothing after it.
        for step in list(self._attempts):
            self._end_attempt(step, self._last_at, stopped="lost")
        self._tell("resumed", event.at, driver=event.driver)
        self.driven = True

    def _paused(self, event: ev.ExecutionPaused) -> None:
        self._tell("paused", event.at, reason=event.reason)
        self.driven = False

    def _reopen(self, event: ev.ExecutionReopened) -> None:
        """The first span has ended and was sent: what follows is in one beneath it."""
        self._reopened += 1
        id = span_id(self.execution, "reopened", self._reopened)
        self._root = OpenSpan(id, self._first, "reopened", event.at)
        self._root.set(execution=self.execution, reopened=self._reopened, by=event.by)

    def _finished(self, event: ev.ExecutionFinished) -> None:
        self.driven = False
        for step in list(self._attempts):
            self._end_attempt(step, event.at, stopped=event.status)
        for step in reversed(list(self._steps)):
            self._end_step(step, event.at, event.status)
        if (root := self._root) is None:
            return
        root.set(status=event.status, steps_lacking=len(event.lacks) or None)
        if event.error is not None:
            self._fail(root, event.error)
        elif event.status in ("failed", "partial"):
            root.error = event.status
        self.ended.append(root.ended(self._trace, event.at))
        self._root = None

    def _control(self, event: ev.ControlRequested) -> None:
        self._tell("control", event.at, kind=event.kind, by=event.by, now=event.now, reason=event.reason)

    def _tell(self, name: str, at: float, **attributes: Any) -> None:
        if self._root is not None:
            self._root.event(name, at, **attributes)

    # -- steps ---------------------------------------------------------------------------------

    def _step(self, step: str, at: float) -> OpenSpan:
        """The open span of a step; made if it has none."""
        if (found := self._steps.get(step)) is not None:
            return found
        above = self._steps.get(step.rpartition("[")[0]) if step.endswith("]") else None
        root = self._root.id if self._root is not None else self._first
        id = span_id(self.execution, "step", step, self._rounds.get(step, 0))
        made = self._steps[step] = OpenSpan(id, above.id if above is not None else root, f"step {step}", at)
        made.set(step=step)
        return made

    def _end_step(self, step: str, at: float, status: str, failure: Failure | None = None) -> None:
        span = self._step(step, at)
        del self._steps[step]
        self._rounds[step] = self._rounds.get(step, 0) + 1
        span.set(status=status)
        if failure is not None:
            self._fail(span, failure)
        self.ended.append(span.ended(self._trace, at))

    def _waiting(self, event: ev.StepWaiting) -> None:
        seconds = None if event.until is None else round(event.until - event.at, 3)
        span = self._step(event.step, event.at)
        name = "retry" if event.reason == "retry" else "waiting"
        span.event(name, event.at, reason=event.reason, wait_s=seconds, runtime=event.runtime, scope=event.scope)

    def _completed(self, event: ev.StepCompleted) -> None:
        self._end_step(event.step, event.at, "completed")

    def _failed(self, event: ev.StepFailed) -> None:
        self._end_step(event.step, event.at, "failed", event.failure)

    def _skipped(self, event: ev.StepSkipped) -> None:
        self._step(event.step, event.at).set(because=event.because)
        self._end_step(event.step, event.at, "skipped")

    def _expanded(self, event: ev.StepExpanded) -> None:
        self._step(event.step, event.at).set(items=len(event.items))

    def _retried(self, event: ev.StepRetried) -> None:
        self._about(event.step, "step_retried", event.at, by=event.by, runtime=event.runtime, model=event.model)

    def _skip_requested(self, event: ev.StepSkipRequested) -> None:
        self._about(event.step, "skip_requested", event.at, by=event.by)

    def _undone(self, event: ev.StepUndone) -> None:
        self._about(event.step, "undone", event.at, by=event.by)

    def _decided(self, event: ev.DecisionMade) -> None:
        self._step(event.step, event.at).event("decision", event.at, choice=event.choice, by=event.by)
        if event.choice != "again":
            self._end_step(event.step, event.at, "completed" if event.choice == "done" else "failed")

    def _about(self, step: str, name: str, at: float, **attributes: Any) -> None:
        """An event of a step: at its attempt, else at its span, else at the execution's."""
        span = self._attempts.get(step) or self._steps.get(step)
        if span is not None:
            span.event(name, at, **attributes)
        else:
            self._tell(name, at, step=step, **attributes)

    # -- questions -----------------------------------------------------------------------------

    def _approval_asked(self, event: ev.ApprovalAsked) -> None:
        self._asked[event.step, event.digest] = event.at
        self._step(event.step, event.at)
        self._about(event.step, "approval_asked", event.at, tool=event.tool, question=self._only(event.question))

    def _approval_answered(self, event: ev.ApprovalAnswered) -> None:
        asked = self._asked.pop((event.step, event.digest), None)
        waited = None if asked is None else round(max(0.0, event.at - asked), 3)
        note = self._only(event.note)
        self._about(
            event.step, "approval_answered", event.at, allow=event.allow, by=event.by, waited_s=waited, note=note
        )

    def _answer_refused(self, event: ev.AnswerRefused) -> None:
        self._tell("answer_refused", event.at, what=event.what, by=event.by, step=event.step)

    def _budget_answered(self, event: ev.BudgetAnswered) -> None:
        said = {"allow": event.allow, "by": event.by, "scope": event.scope, "usd": event.usd, "tokens": event.tokens}
        self._about(event.step, "budget_answered", event.at, **said)

    def _budget_warned(self, event: ev.BudgetWarned) -> None:
        self._about(event.step, "budget_warned", event.at, message=event.message, scope=event.scope)

    def _budget_waited(self, event: ev.BudgetWaited) -> None:
        self._about(event.step, "budget_waited", event.at, message=event.message)

    # -- attempts ------------------------------------------------------------------------------

    def _attempt_started(self, event: ev.AttemptStarted) -> None:
        above = self._step(event.step, event.at)
        id = attempt_span(self.execution, event.step, event.attempt)
        span = self._attempts[event.step] = AttemptSpan(id, above.id, event)
        span.set(execution=self.execution, step=event.step, attempt=event.attempt, effect=event.effect)
        if event.tool == AGENT:
            span.gen_ai(operation__name="invoke_agent")
        else:
            span.gen_ai(operation__name="execute_tool", tool__name=event.tool, tool__type="function")
            if self._content:
                span.content("gen_ai.tool.call.arguments", as_json(event.input))

    def _attempt_finished(self, event: ev.AttemptFinished) -> None:
        span = self._attempts.get(event.step)
        if span is not None and self._content:
            agent = span.tool == AGENT
            span.content(
                "gen_ai.output.messages" if agent else "gen_ai.tool.call.result", output_text(event.output, agent)
            )
        self._end_attempt(event.step, event.at, event.used, event.queued)
        self._end_step(event.step, event.at, "completed")

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        self._end_attempt(event.step, event.at, event.used, event.queued, event.failure)

    def _attempt_stopped(self, event: ev.AttemptStopped) -> None:
        self._end_attempt(event.step, event.at, event.used, event.queued, stopped=event.reason)

    def _end_attempt(
        self,
        step: str,
        at: float,
        used: Resources | None = None,
        queued: float = 0.0,
        failure: Failure | None = None,
        stopped: str = "",
    ) -> None:
        span = self._attempts.pop(step, None)
        if span is None:
            return
        self._end_chat(span)
        for child in span.children.values():
            child.set(unfinished=True)
            self.ended.append(child.ended(self._trace, at))
        span.set(stopped=stopped, queued_s=queued or None)
        if used is not None:
            span.set(cpu_s=used.cpu, memory_bytes=used.memory, received_bytes=used.received, sent_bytes=used.sent)
        if span.usage is not None:
            set_usage(span, span.usage)
            if not span.model:
                span.gen_ai(provider__name=provider_of(span.runtime, span.usage.model))
        if failure is not None:
            self._fail(span, failure)
        elif stopped in _TROUBLE:
            span.error = _TROUBLE[stopped]
            span.attributes["error.type"] = stopped
        self.ended.append(span.ended(self._trace, at))

    def _fail(self, span: OpenSpan, failure: Failure) -> None:
        span.attributes["error.type"] = str(failure.category)
        message = failure.message
        if not self._content:
            first = message.partition("\n")[0]
            message = first[: LONGEST_MESSAGE - 1] + "…" if len(first) > LONGEST_MESSAGE else first
        span.error = message[: LONGEST_MESSAGE * 10]

    # -- agents --------------------------------------------------------------------------------

    def _agent_began(self, event: ev.AgentBegan) -> None:
        if (span := self._attempts.get(event.step)) is None:
            return
        span.name = f"invoke_agent {event.role}"
        span.runtime, span.model, span.since = event.runtime, event.model, event.at
        provider = provider_of(event.runtime, event.model)
        span.gen_ai(
            provider__name=provider,
            agent__name=event.role,
            request__model=event.model,
            conversation__id=event.session,
        )
        span.set(runtime=event.runtime, runtime_version=event.version)
        if self._content:
            span.content("gen_ai.system_instructions", as_json([{"type": "text", "content": event.system}]))
            span.content("gen_ai.input.messages", message_text("user", event.prompt))

    def _agent_session(self, event: ev.AgentSession) -> None:
        if (span := self._attempts.get(event.step)) is not None:
            span.gen_ai(conversation__id=event.session)

    def _agent_spoke(self, event: ev.AgentSpoke) -> None:
        """A part of a reply, or its usage, with which it ends: some runtimes tell them apart."""
        if (span := self._attempts.get(event.step)) is None:
            return
        if span.chat is not None and span.replied and (event.text or event.thinking or event.usage is None):
            self._end_chat(span)
        chat = span.chat or self._begin_chat(span, event)
        if not span.replied:
            span.spoken_at = event.at
        span.said += event.text
        if event.usage is not None:
            set_usage(chat, event.usage)
            if not span.model and event.usage.model:  # the runtime chose one
                chat.name = f"chat {event.usage.model}"
                chat.gen_ai(
                    request__model=event.usage.model, provider__name=provider_of(span.runtime, event.usage.model)
                )
            self._end_chat(span)
            span.answered = True

    def _begin_chat(self, span: AttemptSpan, event: ev.AgentSpoke | ev.AgentActed) -> OpenSpan:
        """A call of the model. It began when there was something new to say to it, which is on record."""
        name = f"chat {span.model}".strip()
        chat = span.chat = self._call(span, event.step, event.attempt, "chat", name, span.since, client=True)
        provider = provider_of(span.runtime, span.model)
        chat.gen_ai(operation__name="chat", provider__name=provider, request__model=span.model)
        span.spoken_at, span.replied = event.at, False
        return chat

    def _end_chat(self, span: AttemptSpan) -> None:
        if span.chat is None:
            return
        if self._content:
            span.chat.content("gen_ai.output.messages", message_text("assistant", span.said))
        self.ended.append(span.chat.ended(self._trace, span.spoken_at))
        span.chat, span.said, span.replied = None, "", False
        span.since = max(span.since, span.spoken_at)

    def _continues(self, span: AttemptSpan, at: float) -> None:
        """The model is given something new: a result, or a message."""
        span.since, span.replied, span.answered = max(span.since, at), span.chat is not None, False

    def _agent_acted(self, event: ev.AgentActed) -> None:
        if (span := self._attempts.get(event.step)) is None:
            return
        if span.chat is None and not span.answered:
            self._begin_chat(span, event)
        elif not span.replied:
            span.spoken_at = max(span.spoken_at, event.at)
        call = self._call(span, event.step, event.attempt, "tool", f"execute_tool {event.tool}", event.at)
        call.gen_ai(operation__name="execute_tool", tool__name=event.tool, tool__call__id=event.call)
        if self._content and event.input is not None:
            call.content("gen_ai.tool.call.arguments", as_json(event.input))
        if event.call:
            span.children[event.call] = call
        else:  # the runtime names no uses, and tells of no results
            self.ended.append(call.ended(self._trace, event.at))

    def _agent_returned(self, event: ev.AgentReturned) -> None:
        if (span := self._attempts.get(event.step)) is None:
            return
        self._continues(span, event.at)
        if (call := span.children.pop(event.call, None)) is None:
            return
        if event.failed:
            call.attributes["error.type"] = "tool_error"
            call.error = self._only(event.text[: LONGEST_MESSAGE * 10]) or "the tool failed"
        if self._content:
            call.content("gen_ai.tool.call.result", event.text)
        self.ended.append(call.ended(self._trace, event.at))

    def _agent_told(self, event: ev.AgentTold) -> None:
        self._about(event.step, "message", event.at, by=event.by, text=self._only(event.text))

    def _agent_heard(self, event: ev.AgentHeard) -> None:
        if (span := self._attempts.get(event.step)) is not None and event.how != "prompt":
            self._continues(span, event.at)
        self._about(event.step, "message_heard", event.at, how=event.how, messages=len(event.ids))

    def _agent_checked(self, event: ev.AgentChecked) -> None:
        self._about(event.step, "checked", event.at, number=event.number, passed=event.passed)

    def _agent_summarised(self, event: ev.AgentSummarised) -> None:
        said = {"number": event.number, "tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
        self._about(event.step, "summarised", event.at, by=event.by, **said)

    def _usage(self, event: ev.UsageReported) -> None:
        if (span := self._attempts.get(event.step)) is not None:
            span.usage = event.usage

    def _fell_back(self, event: ev.RuntimeFellBack) -> None:
        self._about(event.step, "fell_back", event.at, runtime=event.runtime, instead=event.instead)

    # -- programs ------------------------------------------------------------------------------

    def _call_started(self, event: ev.CallStarted) -> None:
        if (span := self._attempts.get(event.step)) is None:
            return
        id = span_id(self.execution, "call", event.step, event.attempt, event.call)
        above = span.children.get(event.call.rpartition(".")[0], span)
        call = span.children[event.call] = OpenSpan(id, above.id, f"execute_tool {event.tool}", event.at)
        call.gen_ai(operation__name="execute_tool", tool__name=event.tool, tool__call__id=event.call)
        call.set(step=event.step, attempt=event.attempt)
        if self._content:
            call.content("gen_ai.tool.call.arguments", as_json(event.input))

    def _call_ended(self, event: ev.CallFinished | ev.CallFailed) -> None:
        span = self._attempts.get(event.step)
        call = span.children.pop(event.call, None) if span is not None else None
        if call is None:
            return
        if isinstance(event, ev.CallFailed):
            self._fail(call, event.failure)
        elif self._content:
            call.content("gen_ai.tool.call.result", as_json(event.output))
        self.ended.append(call.ended(self._trace, event.at))

    def _call(
        self, span: AttemptSpan, step: str, attempt: int, kind: str, name: str, at: float, *, client: bool = False
    ) -> OpenSpan:
        """A call of an agent; they are counted, because two may have the same name at the same time."""
        span.calls += 1
        id = span_id(self.execution, kind, step, attempt, span.calls)
        call = OpenSpan(id, span.id, name, at, client=client)
        call.set(step=step, attempt=attempt)
        return call

    def _only(self, text: str) -> str | None:
        """A text that is content: None unless content is wanted."""
        return text if self._content else None


_APPLY: dict[type, Callable[[TraceFold, Any], None]] = {
    ev.ExecutionCreated: TraceFold._created,
    ev.ExecutionStarted: TraceFold._started,
    ev.ExecutionResumed: TraceFold._resumed,
    ev.ExecutionPaused: TraceFold._paused,
    ev.ExecutionReopened: TraceFold._reopen,
    ev.ExecutionFinished: TraceFold._finished,
    ev.ControlRequested: TraceFold._control,
    ev.StepWaiting: TraceFold._waiting,
    ev.StepCompleted: TraceFold._completed,
    ev.StepFailed: TraceFold._failed,
    ev.StepSkipped: TraceFold._skipped,
    ev.StepExpanded: TraceFold._expanded,
    ev.StepRetried: TraceFold._retried,
    ev.StepSkipRequested: TraceFold._skip_requested,
    ev.StepUndone: TraceFold._undone,
    ev.DecisionMade: TraceFold._decided,
    ev.ApprovalAsked: TraceFold._approval_asked,
    ev.ApprovalAnswered: TraceFold._approval_answered,
    ev.AnswerRefused: TraceFold._answer_refused,
    ev.BudgetAnswered: TraceFold._budget_answered,
    ev.BudgetWarned: TraceFold._budget_warned,
    ev.BudgetWaited: TraceFold._budget_waited,
    ev.AttemptStarted: TraceFold._attempt_started,
    ev.AttemptFinished: TraceFold._attempt_finished,
    ev.AttemptFailed: TraceFold._attempt_failed,
    ev.AttemptStopped: TraceFold._attempt_stopped,
    ev.AgentBegan: TraceFold._agent_began,
    ev.AgentSession: TraceFold._agent_session,
    ev.AgentSpoke: TraceFold._agent_spoke,
    ev.AgentActed: TraceFold._agent_acted,
    ev.AgentReturned: TraceFold._agent_returned,
    ev.AgentTold: TraceFold._agent_told,
    ev.AgentHeard: TraceFold._agent_heard,
    ev.AgentChecked: TraceFold._agent_checked,
    ev.AgentSummarised: TraceFold._agent_summarised,
    ev.UsageReported: TraceFold._usage,
    ev.RuntimeFellBack: TraceFold._fell_back,
    ev.CallStarted: TraceFold._call_started,
    ev.CallFinished: TraceFold._call_ended,
    ev.CallFailed: TraceFold._call_ended,
}
