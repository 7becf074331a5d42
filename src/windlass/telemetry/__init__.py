"""Traces of executions, by OpenTelemetry, to an endpoint in the user's settings (I6).

`Tracing` subscribes to the commits of this process's drivers and only takes a note of each. A thread folds the events
into spans (`fold`), another one sends those that have ended (`send`). What came before this process is read from the
journal, and so is what did not fit into the notes: the journal is the truth, and a trace is a view of it.
Imported only where the settings name an endpoint; OpenTelemetry itself only when there is something to send.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from windlass.core import events as ev
from windlass.ports import Journal, SpanCounts, incoming_traceparent
from windlass.redact import Redactor
from windlass.settings import TelemetrySettings
from windlass.telemetry.fold import TraceFold
from windlass.telemetry.ids import attempt_span, linked, root_span, trace_id, traceparent
from windlass.telemetry.otlp import traces_url
from windlass.telemetry.send import SpanSender, redactor_for, resolve_headers
from windlass.telemetry.spans import SpanRecord

__all__ = ["Tracing"]

GATHERED = 0.25
"""Seconds that commits are gathered before they are folded."""
MOST_NOTED = 10_000
"""Events that wait to be folded; further ones are read from the journal instead."""
RESENT = 30.0
"""Seconds of work of a driver that died whose spans are sent again: it may not have sent them."""
FLUSH = 5.0
"""Seconds that the endpoint has for a request at the end of a process."""
LONGEST_FLUSH = 15.0
"""Seconds that all of the last spans have together."""
READ_TIMEOUT = 60.0
WHOLE_ID = 36
"""Characters of an execution's id."""

_log = logging.getLogger("windlass.telemetry")


class Tracing:
    """The traces of the executions that this process drives."""

    def __init__(
        self, settings: TelemetrySettings, journal: Journal, variables: Mapping[str, str] = os.environ
    ) -> None:
        """Secrets among the `variables` are in no span."""
        self._settings, self._variables = settings, variables
        self._journal = journal
        self._notes: deque[tuple[str, Sequence[ev.Event], int]] = deque()
        self._noted = self._folded = 0
        """Events that were noted, by the loop, and that were taken from the notes, by the thread."""
        self._news = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._folds: dict[str, TraceFold] = {}
        self._lost: set[str] = set()
        """Executions whose journal could not be read: they have no trace from here on."""
        self._sender: SpanSender | None = None
        self._broken = ""

    # -- on the engine's loop: a note of each commit -------------------------------------------

    def committed(self, execution: str, events: Sequence[ev.Event], seq: int) -> None:
        """Take a note of a commit. Past the limit the events are left to the journal."""
        if self._noted - self._folded > MOST_NOTED and events:
            return
        self._notes.append((execution, events, seq))
        self._noted += len(events)
        if not self._news.is_set():
            if self._thread is None:
                self._start()
            self._news.set()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="windlass-traces", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        if self._thread is not None and not self._over.is_set():
            await asyncio.to_thread(self._finish, time.monotonic() + LONGEST_FLUSH)

    def _finish(self, until: float) -> None:
        self._over.set()
        self._news.set()
        assert self._thread is not None
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._sender is not None:
            self._sender.close(FLUSH, until)

    # -- ids -----------------------------------------------------------------------------------

    def caller(self) -> str:
        given = incoming_traceparent.get()
        text = os.environ.get("TRACEPARENT", "") if given is None else given
        return text if linked(text) is not None else ""

    def ids(self, execution: str, step: str = "", attempt: int = 0) -> dict[str, str]:
        if len(execution) != WHOLE_ID:
            return {}  # the beginning of an id, as people type it
        span = attempt_span(execution, step, attempt) if attempt else root_span(execution)
        return {"trace_id": f"{trace_id(execution):032x}", "span_id": f"{span:016x}"}

    def child_environment(self, execution: str, step: str, attempt: int) -> dict[str, str]:
        return {"TRACEPARENT": traceparent(execution, step, attempt)} if self._settings.propagate else {}

    # -- how it goes ---------------------------------------------------------------------------

    def counts(self) -> SpanCounts:
        sender = self._sender
        return SpanCounts(sender.exported, sender.dropped) if sender is not None else SpanCounts(0, 0)

    @property
    def trouble(self) -> str:
        if self._broken:
            return f"no traces were sent: {self._broken}"
        sender = self._sender
        if sender is None or not sender.dropped:
            return ""
        return f"{sender.dropped:,} spans were not delivered to {self._settings.endpoint}: {sender.reason}"

    # -- in the thread: notes to spans ---------------------------------------------------------

    def _run(self) -> None:
        try:
            self._sender = self._open()
        except Exception as error:  # an extra that is not installed, for one
            advice = ": pip install 'windlass[telemetry]'" if isinstance(error, ImportError) else ""
            self._broken = f"{type(error).__name__}: {error}{advice}"
            _log.warning("no traces are sent: %s", self._broken)
        while not (self._over.is_set() and not self._notes):
            self._news.wait()
            self._over.wait(GATHERED)
            self._news.clear()
            while self._notes:
                note = self._notes.popleft()
                self._folded += len(note[1])
                if self._sender is not None:
                    self._take(self._sender, *note)

    def _open(self) -> SpanSender:
        settings = self._settings
        assert settings.endpoint is not None
        headers = resolve_headers(settings.headers_env)
        redactor: Redactor = redactor_for(settings.headers_env, self._variables)
        return SpanSender(traces_url(settings.endpoint), headers, redactor, settings.timeout)

    def _take(self, sender: SpanSender, execution: str, events: Sequence[ev.Event], seq: int) -> None:
        if execution not in self._lost:
            try:
                self._fold(sender, execution, events, seq)
            except Exception as error:  # a damaged journal, or a mistake of ours: one trace less
                self._lost.add(execution)
                _log.warning("execution %s has no trace from here on: %s", execution, error)
        if not events:  # its driver has ended
            self._folds.pop(execution, None)
            self._lost.discard(execution)

    def _fold(self, sender: SpanSender, execution: str, events: Sequence[ev.Event], seq: int) -> None:
        fold, before = self._folds.get(execution), seq - len(events)
        if fold is None:
            if not events:
                return
            fold = self._folds[execution] = TraceFold(execution, content=self._settings.content)
            again = _past(fold, self._read(execution, 0, before)) if before else []
            if isinstance(events[0], ev.ExecutionResumed | ev.ExecutionReplanned) and fold.driven:
                sender.put(again)
        elif fold.seq < before:  # notes that did not fit
            for event in self._read(execution, fold.seq, before):
                fold.apply(event)
        for event in events:
            fold.apply(event)
        if fold.ended:
            sender.put(fold.take())

    def _read(self, execution: str, after: int, before: int) -> list[ev.Event]:
        """The events after one sequence, up to another, from the journal."""
        assert self._loop is not None
        reading = asyncio.run_coroutine_threadsafe(self._journal.read(execution, after, before - after), self._loop)
        return [entry.event for entry in reading.result(READ_TIMEOUT)]


def _past(fold: TraceFold, events: Sequence[ev.Event]) -> list[SpanRecord]:
    """Fold events of earlier drivers; returns the spans that one of them may have ended and not sent.

    A driver that paused the execution has sent them. Of those that died, the spans of the last seconds of work count:
    time in which nobody drove is left out, so that one that died at once does not hide the one before it.
    """
    recent: deque[tuple[float, list[SpanRecord]]] = deque()
    nobody = last = 0.0
    for event in events:
        if isinstance(event, ev.ExecutionResumed | ev.ExecutionStarted):
            nobody += max(0.0, event.at - last) if last else 0.0
        fold.apply(event)
        last = event.at
        if fold.ended:
            recent.append((event.at - nobody, fold.take()))
        if isinstance(event, ev.ExecutionPaused | ev.ExecutionFinished):
            recent.clear()
        while recent and recent[0][0] < event.at - nobody - RESENT:
            recent.popleft()
    return [span for _, spans in recent for span in spans]
