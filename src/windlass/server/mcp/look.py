"""An execution's state, short enough for a model's context: long outputs are cut, questions never are; and the engine
as a whole: its health, its executions, and its money as `windlass budget` shows it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.forecast.value import Forecast
from windlass.core.state import State
from windlass.core.transcript import as_markdown
from windlass.core.view import snapshot
from windlass.engine.damage import DAMAGED, damaged_view
from windlass.engine.engine import Engine
from windlass.engine.gates.view import open_breakers, told_line
from windlass.engine.history_page import HistoryPage, SlowPage
from windlass.engine.lookup import find_step
from windlass.engine.spending import By, as_json, limits_of, look_up, row_json
from windlass.errors import Damaged, Failure, JournalError
from windlass.ports import Entry, Head
from windlass.server.answer_redactor import AnswerRedactor
from windlass.server.mcp.models import (
    BudgetState,
    BudgetView,
    CostView,
    ErrorView,
    EstimateView,
    ExecutionView,
    HeadView,
    HealthView,
    HistoryView,
    OverviewView,
    QuestionView,
    SpendingView,
    StepView,
    TranscriptView,
)
from windlass.version import __version__

__all__ = [
    "ObservedExecution",
    "budget_view",
    "damaged",
    "error_view",
    "estimate_view",
    "following",
    "history_view",
    "look",
    "overview",
    "questions",
    "slow_view",
    "transcript_view",
    "view",
]

MOST_STEPS = 60
MOST_BREAKERS = 10
LONGEST_OUTPUT = 4_000
"""Characters of one step's output."""
DEEPEST = 60
"""Levels of a value that are given as such."""
ALL_OUTPUTS = 24_000
"""Characters of all outputs together, and again of all logs."""
LONGEST_LOG = 256 * 1024
LONGEST_PART = 48_000
"""Characters of one part of a transcript."""


@dataclass(slots=True)
class ObservedExecution:
    """An execution as far as its events are known here."""

    state: State
    warnings: list[str] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    """By step, the log of its program in its last attempt."""
    _passed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By scope and unit, the warning of a limit that is passed."""

    def take(self, event: ev.Event) -> str | None:
        """Take one more event, and give the messages for the user about it."""
        self.state.apply(event)
        return self.note(event)

    def note(self, event: ev.Event) -> str | None:
        warning = None
        match event:
            case ev.BudgetWarned():
                warning = f"step {event.step}: {event.message}"
                earlier = self._passed.pop((event.scope, event.unit), None) if event.limit is not None else None
                if earlier in self.warnings:  # the newest figure of a limit is enough
                    self.warnings.remove(earlier)
                if event.limit is not None:
                    self._passed[event.scope, event.unit] = warning
            case ev.RuntimeFellBack():
                warning = f"step {event.step}: switched from {event.runtime} to {event.instead}: {event.because}"
            case ev.AttemptStarted():
                self.logs.pop(event.step, None)  # made again, a program logs all of it again
            case ev.OutputWritten(stream="log"):
                self.logs[event.step] = (self.logs.get(event.step, "") + event.text)[-LONGEST_LOG:]
        if warning is None or warning in self.warnings:
            return None
        self.warnings.append(warning)
        return warning


async def look(engine: Engine, execution: str) -> ObservedExecution:
    """All that is on disk of it; an id may be shortened to a unique beginning."""
    head = await engine.find(execution)
    state, entries = await engine.record(head.id)
    seen = ObservedExecution(state)
    for entry in entries:
        seen.note(entry.event)
    if not seen.state.status.finished:
        open_ones = list(open_breakers(engine.attempt_runner.gates).items())[:MOST_BREAKERS]
        seen.warnings += [f"a breaker is not closed: {told_line(name, told)}" for name, told in open_ones]
    return seen


def following(engine: Engine, execution: str, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Entry]]:
    """Its events from there on, to be left at any time."""
    return aclosing(cast("AsyncGenerator[Entry, None]", engine.follow(execution, after)))


async def view(
    engine: Engine, seen: ObservedExecution, redactor: AnswerRedactor, *, step: str | None = None
) -> ExecutionView:
    """The answer of a tool. With `step`, that step alone, and all of its output."""
    state = seen.state
    told = snapshot(state, await engine.forecast_view(state), await engine.stale(state))
    every = told["steps"]
    if step is not None:
        wanted = find_step(state, step).id
        listed = [_step(one, None, seen.logs) for one in every if one["id"] == wanted]
    else:
        listed = _trimmed(every, seen.logs)
    return ExecutionView(
        execution=state.id,
        plan=told["plan"],
        status=told["status"],
        reason=told["reason"],
        progress=told["progress"],
        eta=told["eta"],
        forecast=told["forecast"],
        seq=state.seq,
        steps=listed,
        steps_left_out=0 if step is not None else len(every) - len(listed),
        questions=questions(state, redactor),
        warnings=seen.warnings,
        cost=CostView(**told["cost"]),
        budget=BudgetState(**told["budget"]),
        error=error_view(state.error),
        lacks=told["lacks"],
        workdir=told["workdir"],
        next=_next(state, engine.driven(state), cut=any(one.cut for one in listed)),
    )


async def damaged(engine: Engine, damage: Damaged) -> ExecutionView:
    """A damaged execution, as far as anything is known of it."""
    head = await engine.find(damage.execution)
    told = damaged_view(head, damage)
    return ExecutionView(
        execution=head.id,
        plan=head.name,
        status="damaged",
        reason=damage.reason,
        progress=0.0,
        seq=damage.seq - 1,
        steps=[],
        questions=[],
        warnings=[damage.message],
        cost=CostView(**told["cost"]),
        budget=BudgetState(**told["budget"]),
        error=error_view(damage.failure),
        workdir="",
        next=list(damage.advice),
    )


def questions(state: State, redactor: AnswerRedactor) -> list[QuestionView]:
    """Open questions to a person, in full."""
    found = []
    for step in state.questions.values():
        asked = step.approval
        if step.waiting_for == "approval" and asked is not None:
            found.append(
                QuestionView(
                    step=step.id,
                    kind="approval",
                    text="; ".join(
                        filter(
                            None, (f"step {step.id} asks to run {asked.tool} with exactly this input", asked.question)
                        )
                    ),
                    tool=asked.tool,
                    input=_flat(asked.input),
                    hidden=redactor.hidden_in(asked.input),
                    digest=asked.digest,
                    expires_at=iso(asked.expires_at),
                    answer="engine_approve with this step and digest, once a person has said yes or no",
                )
            )
        elif step.waiting_for == "outcome":
            answer = f'engine_resume with decisions={{"{step.id}": "again"}}, or "done", or "fail"'
            found.append(QuestionView(step=step.id, kind="outcome", text=step.question, answer=answer))
        elif step.waiting_for == "budget":
            answer = f"engine_resume with budget: the new limit of the {step.scope}, in dollars"
            found.append(QuestionView(step=step.id, kind="budget", text=step.question, answer=answer))
    return found


def error_view(failure: Failure | None) -> ErrorView | None:
    if failure is None:
        return None
    return ErrorView(
        category=failure.category.value, message=failure.message, where=failure.where, advice=list(failure.advice)
    )


def _trimmed(steps: list[dict[str, Any]], logs: Mapping[str, str]) -> list[StepView]:
    """Steps in the plan's order. Unfinished ones get room first, the others share the rest."""
    kept = steps
    if len(steps) > MOST_STEPS:
        urgent = {one["id"] for one in steps if one["status"] not in ("completed", "pending")}
        chosen = [one["id"] for one in steps if one["id"] in urgent]
        chosen += [one["id"] for one in steps if one["id"] not in urgent]
        names = set(chosen[:MOST_STEPS])
        kept = [one for one in steps if one["id"] in names]
    room = max(200, min(LONGEST_OUTPUT, ALL_OUTPUTS // max(1, len(kept))))
    return [_step(one, room, logs) for one in kept]


def _step(told: dict[str, Any], room: int | None, logs: Mapping[str, str]) -> StepView:
    output, cut = _cut(told["output"], room)
    log = logs.get(told["id"], "")
    agent = told["agent"] or {}
    error = told["error"]
    return StepView(
        id=told["id"],
        status=told["status"],
        attempts=told["attempts"],
        output=output,
        cut=cut,
        log=log if room is None or len(log) <= room else f"…{log[-room:]}",
        error=None if error is None else ErrorView(**error),
        skipped_because=told["skipped_because"],
        waiting_for=told["waiting_for"],
        waiting_because=told["waiting_because"],
        until=told["until"],
        duration_s=told["duration_s"],
        items=told.get("items"),
        role=agent.get("role"),
        runtime=agent.get("runtime"),
        model=agent.get("model"),
        verdict=agent.get("verdict"),
        cost_usd=told["cost_usd"] if agent else None,
    )


def _cut(output: Any, room: int | None) -> tuple[Any, int]:
    """An output that is too long becomes text: its beginning and its end."""
    output = _flat(output)
    if room is None or output is None:
        return output, 0
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    if len(text) <= room:
        return output, 0
    half = room // 2
    return f"{text[:half]}\n…\n{text[-half:]}", len(text) - 2 * half


def _flat(value: Any) -> Any:
    """A value as JSON text where it is nested deeper than the protocol's library can write."""
    return json.dumps(value, ensure_ascii=False) if _deeper(value, DEEPEST) else value


def _deeper(value: Any, than: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return than == 0 or any(_deeper(one, than - 1) for one in inside)


def _next(state: State, driven: bool, *, cut: bool) -> list[str]:
    name = state.id
    ways: Iterable[str]
    failed = next((step for step in state.top_level() if step.status == "failed"), None)
    if state.status in ("failed", "partial") and failed is not None:
        ways = (
            f"engine_resume(execution={name!r}, retry={{{failed.id!r}: {{}}}})",
            f"engine_resume(execution={name!r}, skip=[{failed.id!r}])",
            f"windlass fork {name}",
        )
    elif state.status.finished:
        ways = () if state.status == "completed" and failed is None else (f"windlass fork {name}",)
    elif state.questions:
        ways = (f"answer its questions, then engine_status(execution={name!r}, wait_s=60)", f"windlass status {name}")
    elif driven or state.status == "pending":
        ways = (f"engine_status(execution={name!r}, wait_s=60)", f"windlass watch {name}")
    else:
        ways = (f"engine_resume(execution={name!r})", f"windlass resume {name}")
    more = (f"engine_status(execution={name!r}, step=STEP) for a whole output",) if cut else ()
    return [*ways, *more]


MOST = 50
"""Executions that are listed: those that are not finished, then the newest."""


async def transcript_view(engine: Engine, execution: str, step: str, after: int) -> TranscriptView:
    """As much of an agent's conversation as fits, from a place in the journal on."""
    head = await engine.find(execution)
    blocks: list[str] = []
    room, system, more = LONGEST_PART, "", ""
    for entry in await engine.transcript(head.id, step, after=after, whole=False):
        block = as_markdown(entry, system)
        if blocks and len(block) > room:
            after -= entry.seq == after  # one event can make two entries
            more = f"engine_transcript(execution={head.id!r}, step={step!r}, after={after})"
            break
        blocks.append(block)
        room, system, after = room - len(block), entry.system or system, entry.seq
    return TranscriptView(execution=head.id, step=step, markdown="".join(blocks), next=[more] if more else [])


async def overview(engine: Engine) -> OverviewView:
    """The answer of `engine_status` without an id."""
    try:
        counts, heads, journal = await engine.counts(), await _heads(engine), await engine.journal_loss() or "ok"
    except JournalError as error:
        counts, heads, journal = {}, [], error.message
    async for _state in engine.states(heads):
        """Read for damage alone."""
    intake = engine.attempt_runner.intake.told()
    health = HealthView(
        ok=journal == "ok",
        journal=journal,
        version=__version__,
        home=str(engine.home),
        executions={status: count for status, count in counts.items() if count},
        attempts=intake["under_way"],
        queued=intake["waiting"],
        held_back=intake["held_back"],
        damaged=[damage.message for damage in engine.damaged.values()],
        breakers=[told_line(name, told) for name, told in open_breakers(engine.attempt_runner.gates).items()],
    )
    listed = [
        HeadView(
            execution=head.id,
            plan=head.name,
            status=DAMAGED if head.id in engine.damaged else head.status,
            reason=engine.damaged[head.id].reason if head.id in engine.damaged else head.detail or None,
            created_at=iso(head.created_at),
            driven=engine.driven(head),
        )
        for head in heads
    ]
    return OverviewView(health=health, executions=listed, next=["engine_status(execution=ID)"] if listed else [])


async def _heads(engine: Engine) -> list[Head]:
    unfinished = await engine.executions(["running", "paused", "pending"], MOST)
    newest = await engine.executions((), MOST)
    return list({head.id: head for head in (*unfinished, *newest)}.values())[:MOST]


MOST_ROWS = 50


def estimate_view(found: Forecast) -> EstimateView:
    seen = found.as_estimate()
    told = {name: seen[name] for name in ("expected_s", "high_s", "usd", "forecast")}
    return EstimateView(text=found.text(found.at), **told)


def history_view(page: HistoryPage) -> HistoryView:
    seen = page.as_dict()
    return HistoryView(
        of=seen["of"],
        rows=seen["rows"][:MOST_ROWS],
        more=max(0, len(seen["rows"]) - MOST_ROWS),
        total=seen["total"],
        not_included=seen["not_included"],
    )


def slow_view(page: SlowPage) -> HistoryView:
    seen = page.as_dict()
    rows = seen["bottlenecks"]
    more = max(0, len(rows) - MOST_ROWS)
    return HistoryView(of="slow steps", rows=rows[:MOST_ROWS], more=more, changes=seen["changes"][:MOST_ROWS])


async def budget_view(engine: Engine, by: By) -> BudgetView:
    page = await look_up(engine.ledger, engine.clock.now(), limits_of(engine.settings.budget), by)
    told = as_json(page)
    rows = [SpendingView(heading=row.heading, **row_json(row)) for row in page.rows[:MOST_ROWS]]
    return BudgetView.model_validate({**told, "by": by.value, "spending": rows})
