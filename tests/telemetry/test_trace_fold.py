"""The fold of a journal into spans: a pure function, for every journal there is (I6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.core import events as ev
from windlass.telemetry import _past
from windlass.telemetry.fold import TraceFold
from windlass.telemetry.ids import linked, root_span, trace_id, traceparent
from windlass.telemetry.spans import SpanRecord

JOURNALS = sorted((Path(__file__).parent.parent / "journals").glob("v*-*.jsonl"))
each = pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)


def read(journal: Path) -> list[ev.Event]:
    return [ev.decode(line) for line in journal.read_bytes().splitlines()]


def spans_of(events: list[ev.Event], *, content: bool = False) -> list[SpanRecord]:
    created = events[0]
    assert isinstance(created, ev.ExecutionCreated)
    fold = TraceFold(created.id, content=content)
    for event in events:
        fold.apply(event)
    return fold.take()


@each
def test_i6_every_stored_journal_gives_one_trace_of_sound_spans(journal: Path) -> None:
    events = read(journal)
    spans = spans_of(events, content=True)
    ids = [span.id for span in spans]
    assert len(ids) == len(set(ids)), "an id names two spans"
    assert {span.trace for span in spans} <= {trace_id(events[0].id)}  # type: ignore[union-attr]
    assert all(span.start <= span.end for span in spans)
    finished = isinstance(events[-1], ev.ExecutionFinished)
    if finished:
        (root,) = [span for span in spans if span.parent is None]
        assert root.name.startswith("invoke_workflow")
        known = set(ids)
        assert all(span.parent in known for span in spans if span is not root), "a span without its parent"
    attempts = {(event.step, event.attempt) for event in events if isinstance(event, ev.AttemptStarted)}
    told = {
        (span.attributes["windlass.step"], span.attributes["windlass.attempt"])
        for span in spans
        if "windlass.effect" in span.attributes
    }
    assert told <= attempts
    if finished:
        assert told == attempts, "an attempt without a span"


@each
def test_i6_the_same_events_give_the_same_spans_wherever_the_process_changed(journal: Path) -> None:
    events = read(journal)
    whole = spans_of(events)
    created = events[0]
    assert isinstance(created, ev.ExecutionCreated)
    for cut in range(1, len(events)):
        fold = TraceFold(created.id)
        _past(fold, events[:cut])
        for event in events[cut:]:
            fold.apply(event)
        later = fold.take()
        assert later == whole[len(whole) - len(later) :]


@each
def test_i6_without_content_no_prompt_output_or_argument_is_in_a_span(journal: Path) -> None:
    names = {name for span in spans_of(read(journal)) for name in span.attributes}
    wanted = {"messages", "instructions", "arguments", "result", "text", "question", "note"}
    assert not {name for name in names if name.rpartition(".")[2] in wanted}


def started(at: float, step: str = "a", attempt: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(at, step, attempt, "shell", {}, "repeatable")


def test_i6_a_driver_that_died_has_its_last_spans_sent_again_and_one_that_paused_has_not() -> None:
    stored = read(next(path for path in JOURNALS if path.stem == "v1-plain"))
    created = stored[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    early = [started(now + 1), ev.AttemptFinished(now + 2, "a", 1)]
    late = [started(now + 100, "b"), ev.AttemptFinished(now + 101, "b", 1)]
    died = [created, ev.ExecutionStarted(now, "x"), *early, *late]
    names = [span.attributes["windlass.step"] for span in _past(TraceFold(created.id), died)]
    assert names == ["b", "b"], "its attempt and its step; the early ones were sent long before"
    # A second driver that died at once, days later, may not have sent them either.
    again = [*died, ev.ExecutionResumed(now + 900_000, "y")]
    assert [span.attributes["windlass.step"] for span in _past(TraceFold(created.id), again)] == ["b", "b"]
    paused = [*died, ev.ExecutionPaused(now + 102, "pause")]
    assert _past(TraceFold(created.id), paused) == []


def test_i6_an_attempt_that_a_dead_process_left_ends_at_its_last_sign_of_life() -> None:
    created = read(JOURNALS[0])[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    written = ev.OutputWritten(now + 5, "a", 1, "stdout", "still here")
    events = [created, ev.ExecutionStarted(now, "x"), started(now + 1), written, ev.ExecutionResumed(now + 500, "y")]
    events += [ev.AttemptStopped(now + 500, "a", 1, "lost"), started(now + 501, "a", 2)]
    (lost,) = spans_of(events)
    assert (lost.start, lost.end) == (now + 1, now + 5)
    assert lost.error == "cut off by a crash"
    assert lost.attributes["windlass.stopped"] == "lost"


def test_i6_a_reopened_execution_has_a_span_of_its_own_beneath_the_first() -> None:
    events = read(next(path for path in JOURNALS if path.stem == "v1-redone"))
    assert any(isinstance(event, ev.ExecutionReopened) for event in events)
    spans = spans_of(events)
    first = root_span(events[0].id)  # type: ignore[union-attr]
    reopened = [span for span in spans if span.name == "reopened"]
    assert reopened
    assert all(span.parent == first for span in reopened)


def test_i6_a_clock_that_was_set_back_ends_no_span_before_its_start() -> None:
    created = read(JOURNALS[0])[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    spans = spans_of([created, ev.ExecutionStarted(now, "x"), started(now), ev.AttemptFinished(now - 3600, "a", 1)])
    assert [(span.start, span.end) for span in spans] == [(now, now), (now, now)]


def test_i6_a_flood_of_events_in_one_span_is_bounded_and_counted() -> None:
    created = read(JOURNALS[0])[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    told = [ev.AgentTold(now, "a", str(number), "hello", "ana") for number in range(1000)]
    events = [created, ev.ExecutionStarted(now, "x"), started(now), *told, ev.AttemptFinished(now, "a", 1)]
    attempt = spans_of(events)[0]
    assert len(attempt.events) == 128
    assert attempt.attributes["windlass.events_left_out"] == 872


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more", True),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", False),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nx: y", False),
        ("", False),
    ],
)
def test_i6_only_a_valid_traceparent_is_linked_to(text: str, fits: bool) -> None:
    assert (linked(text) is not None) is fits


def test_i6_the_trace_of_an_execution_has_its_own_id() -> None:
    execution = "01a1e58d-863d-7128-b13a-c9c5e9c4be9e"
    assert f"{trace_id(execution):032x}" == execution.replace("-", "")
    parent = traceparent(execution, "a", 1)
    assert parent == traceparent(execution, "a", 1) != traceparent(execution, "a", 2)
    assert linked(parent) is not None


def used(tokens: int) -> ev.Usage:
    return ev.Usage(tokens_in=tokens, tokens_out=1, model="claude-sonnet")


@pytest.mark.parametrize("late", [False, True], ids=["usage-first", "result-first"])
def test_i6_a_runtime_that_tells_a_reply_in_parts_has_one_model_call_for_each_reply(late: bool) -> None:
    created = read(JOURNALS[0])[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    usage = ev.AgentSpoke(now + 3, "a", 1, usage=used(10))
    returned = ev.AgentReturned(now + 4, "a", 1, "c1", "Read")
    events: list[ev.Event] = [
        created,
        ev.ExecutionStarted(now, "x"),
        ev.AttemptStarted(now, "a", 1, "agent", {}, "repeatable"),
        ev.AgentBegan(now + 1, "a", 1, "claude-code", "developer", "", ""),
        ev.AgentSpoke(now + 2, "a", 1, thinking="hm"),
        ev.AgentSpoke(now + 2, "a", 1, "I read it"),
        ev.AgentActed(now + 2, "a", 1, "Read", "", None, "c1"),
        *([returned, usage] if late else [usage, returned]),
        ev.AgentSpoke(now + 6, "a", 1, "done"),
        ev.AgentSpoke(now + 7, "a", 1, usage=used(20)),
        ev.AttemptFinished(now + 8, "a", 1, "done"),
    ]
    spans = spans_of(events)
    chats = [span for span in spans if span.client]
    assert [span.name for span in chats] == ["chat claude-sonnet"] * 2
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in chats] == [10, 20]
    assert [span.attributes["gen_ai.provider.name"] for span in chats] == ["anthropic"] * 2
    assert chats[0].start == now + 1
    assert (chats[1].start, chats[1].end) == (now + 4, now + 7)
    (tool,) = [span for span in spans if span.name == "execute_tool Read"]
    assert (tool.start, tool.end) == (now + 2, now + 4)


def test_i6_an_agent_without_usage_has_a_model_call_between_its_tools() -> None:
    created = read(JOURNALS[0])[0]
    assert isinstance(created, ev.ExecutionCreated)
    now = created.at
    events: list[ev.Event] = [
        created,
        ev.ExecutionStarted(now, "x"),
        ev.AttemptStarted(now, "a", 1, "agent", {}, "repeatable"),
        ev.AgentBegan(now + 1, "a", 1, "open-code", "developer", "", "", "openai/gpt-9"),
        ev.AgentActed(now + 2, "a", 1, "read", "", None, "c1"),
        ev.AgentReturned(now + 3, "a", 1, "c1", "read", "no such file", failed=True),
        ev.AgentSpoke(now + 5, "a", 1, "done"),
        ev.AttemptStopped(now + 6, "a", 1, "paused"),
    ]
    spans = spans_of(events)
    assert [(span.start, span.end) for span in spans if span.client] == [(now + 1, now + 2), (now + 3, now + 5)]
    (tool,) = [span for span in spans if span.name == "execute_tool read"]
    assert tool.error == "the tool failed", "its words are content"
    assert spans[-1].error is None, "a pause is no error"
    assert spans[-1].attributes["windlass.stopped"] == "paused"
