"""Send spans to an OTLP endpoint, in a thread of its own, and never more than it can take.

The queue is bounded: spans that do not fit, and those that the endpoint refuses or does not take in time, are dropped
and counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

from windlass.redact import Redactor
from windlass.telemetry.otlp import OtlpClient, environment_headers, span_encoder, traces_url
from windlass.telemetry.spans import SpanRecord

__all__ = ["SpanSender", "problem_of", "redactor_for", "resolve_headers"]

MOST_WAITING = 20_000
"""Spans that wait to be sent."""
MOST_AT_ONCE = 1_000
"""Spans in one request."""
GATHERED = 0.5
"""Seconds that spans are gathered before they are sent."""
ROOM = 5.0
"""Seconds that new spans wait for room, as long as the endpoint takes some: the journal keeps what comes meanwhile."""
LATE = "the endpoint did not take them in time"
FULL = "the endpoint is slower than the spans come"

_log = logging.getLogger("windlass.telemetry")


def resolve_headers(names: Mapping[str, str], env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers from the variables that hold them; one that is not set is left out."""
    return {header: env[name] for header, name in names.items() if env.get(name)}


def redactor_for(headers_env: Mapping[str, str], env: Mapping[str, str] = os.environ) -> Redactor:
    """A redactor that knows the headers' values, too."""
    more = {name: env[name] for name in headers_env.values() if name in env}
    more |= {f"OTEL_EXPORTER_OTLP_HEADERS {name}": value for name, value in environment_headers(env).items()}
    # `Bearer KEY`: the key alone is a secret as well.
    more |= {f"{name} key": value.rpartition(" ")[2] for name, value in list(more.items()) if " " in value.strip()}
    return Redactor(env, more)


class SpanSender:
    """Takes spans and sends them in batches."""

    def __init__(self, url: str, headers: Mapping[str, str], redactor: Redactor, timeout: float) -> None:
        self.exported = 0
        self.dropped = 0
        self.reason = ""
        """Why spans were dropped last."""
        self._redactor = redactor
        self._waiting: deque[SpanRecord] = deque()
        self._sending = 0
        self._stuck = False
        """The endpoint takes nothing: there is no use in waiting for room."""
        self._news = threading.Event()
        self._over = threading.Event()
        self._idle = threading.Condition()
        self._encode = span_encoder(redactor.text)
        self._client = OtlpClient(url, headers, timeout)
        self._thread = threading.Thread(target=self._run, name="windlass-spans", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[SpanRecord]) -> None:
        for span in spans:
            if len(self._waiting) < MOST_WAITING or self._make_room():
                self._waiting.append(span)
            else:
                self._drop(1, FULL)
        if not self._news.is_set():
            self._news.set()

    def _make_room(self) -> bool:
        with self._idle:
            while len(self._waiting) >= MOST_WAITING and not self._stuck and not self._over.is_set():
                if not self._idle.wait(ROOM):
                    self._stuck = True
        return len(self._waiting) < MOST_WAITING

    def close(self, patience: float, until: float) -> None:
        """Send what is left, as long as the endpoint takes some within `patience`, and until then; drop the rest.

        Nothing is retried any more. `until` is a time of the monotonic clock.
        """
        self._over.set()
        self._news.set()
        with self._idle:
            while (self._waiting or self._sending) and (left := until - time.monotonic()) > 0:
                if not self._idle.wait(min(left, patience)):
                    break
        self._client.close()
        if left_behind := len(self._waiting) + self._sending:
            self._waiting.clear()
            self._drop(left_behind, LATE)

    def _run(self) -> None:
        while not (self._over.is_set() and not self._waiting):
            self._news.wait()
            self._over.wait(GATHERED)
            self._news.clear()
            while self._waiting:
                self._sending = min(MOST_AT_ONCE, len(self._waiting))  # first: `close` looks at both
                failed = self._send([self._waiting.popleft() for _ in range(self._sending)])
                with self._idle:
                    self._sending, self._stuck = 0, failed
                    if failed and self._over.is_set():
                        self._drop(len(self._waiting), self.reason)  # the next batch would fare no better
                        self._waiting.clear()
                    self._idle.notify_all()

    def _send(self, batch: list[SpanRecord]) -> bool:
        """Send some; gives True if it failed."""
        try:
            problem, refused = self._client.post(self._encode(batch), self._over)
        except Exception as error:  # traces must never be the reason that something fails
            problem, refused = f"{type(error).__name__}: {error}", 0
        if problem:
            self._drop(len(batch), self._redactor.text(problem))
            return True
        self.exported += len(batch) - min(refused, len(batch))
        self._drop(min(refused, len(batch)), "the endpoint refused some of them")
        return False

    def _drop(self, count: int, reason: str) -> None:
        if not count:
            return
        first = not self.dropped
        self.dropped += count
        self.reason = reason
        if first:
            _log.warning("spans cannot be delivered, and are dropped: %s", reason)


def problem_of(endpoint: str, headers_env: Mapping[str, str], timeout: float = 5.0) -> str:
    """Send a request without spans; returns the problem, or nothing if the endpoint takes it."""
    if unset := [name for name in headers_env.values() if not os.environ.get(name)]:
        return f"the variable {unset[0]} of `headers_env` is not set"
    redactor, at_once = redactor_for(headers_env), threading.Event()
    at_once.set()
    try:
        body = span_encoder(redactor.text)([])
        client = OtlpClient(traces_url(endpoint), resolve_headers(headers_env), timeout)
    except ImportError as error:
        return f"{error}: pip install 'windlass[telemetry]'"
    problem, _refused = client.post(body, at_once)
    client.close()
    return redactor.text(problem)
