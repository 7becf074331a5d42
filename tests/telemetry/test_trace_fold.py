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
