"""Send spans to an OTLP endpoint, in a thread of its own, and never more than it can take.

The queue is bounded: spans that do not fit, and those that the endpoint refuses or does not take in time, are dropped
and counted. OpenTelemetry's exporter does the sending, with its retries and back-off.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windlass.redact import Redactor
from windlass.telemetry.spans import AttributeValue, SpanRecord
from windlass.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["SpanSender", "problem_of", "redactor_for", "resolve_headers", "traces_url"]

MOST_WAITING = 20_000
"""Spans that wait to be sent."""
MOST_AT_ONCE = 1_000
"""Spans in one request."""
GATHERED = 0.5
"""Seconds that spans are gathered before they are sent."""

_log = logging.getLogger("windlass.telemetry")


def traces_url(endpoint: str) -> str:
    """The address for traces: that of a collector, or a whole one."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def resolve_headers(names: Mapping[str, str], env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers from the variables that hold them; one that is not set is left out."""
    return {header: env[name] for header, name in names.items() if env.get(name)}


def redactor_for(headers_env: Mapping[str, str], env: Mapping[str, str] = os.environ) -> Redactor:
    """A redactor that knows the headers' values, too."""
    more = {name: env[name] for name in headers_env.values() if name in env}
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for pair in env.get(name, "").split(","):
            key, _, value = pair.partition("=")
            if value:
                more[f"{name} {key.strip()}"] = value.strip()
    # `Bearer KEY`: the key alone is a secret as well.
    more |= {f"{name} key": value.rpartition(" ")[2] for name, value in list(more.items()) if " " in value.strip()}
    return Redactor(env, more)


class SpanSender:
    """Takes spans from any thread and sends them in batches."""

    def __init__(self, url: str, headers: Mapping[str, str], redactor: Redactor, timeout: float) -> None:
        self.exported = 0
        self.dropped = 0
        self.reason = ""
        """Why spans were dropped last."""
        self._redactor = redactor
        self._waiting: deque[SpanRecord] = deque()
        self._sending = 0
        self._news = threading.Event()
        self._over = threading.Event()
        self._idle = threading.Condition()
        self._convert: Callable[[SpanRecord], ReadableSpan] = _converter(redactor)
        self._exporter = _exporter(url, headers, timeout)
        self._thread = threading.Thread(target=self._run, name="windlass-spans", daemon=True)
        self._heard = _Overheard(self._thread)
        self._thread.start()

    def put(self, spans: Iterable[SpanRecord]) -> None:
        for span in spans:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(span)
            else:
                self._drop(1, "the endpoint is slower than the spans come")
        if not self._news.is_set():
            self._news.set()

    def close(self, until: float) -> None:
        """Send what is left, until then (by the monotonic clock); drop the rest."""
        self._over.set()
        self._news.set()
        with self._idle:
            while (self._waiting or self._sending) and (left := until - time.monotonic()) > 0:
                if self._heard.last:
                    break  # it has failed once, and would be tried again
                self._idle.wait(min(left, 0.05))
        self._exporter.shutdown()  # ends a back-off
        self._thread.join(max(0.0, min(0.2, until - time.monotonic() + 0.2)))
        if left_behind := len(self._waiting) + self._sending:
            self._waiting.clear()
            self._drop(left_behind, self.reason or "the endpoint did not take them in time")
        self._heard.close()

    def _run(self) -> None:
        while not (self._over.is_set() and not self._waiting):
            self._news.wait()
            self._over.wait(GATHERED)
            self._news.clear()
            while self._waiting:
                self._sending = min(MOST_AT_ONCE, len(self._waiting))  # first: `close` looks at both
                self._send([self._waiting.popleft() for _ in range(self._sending)])
                with self._idle:
                    self._sending = 0
                    self._idle.notify_all()

    def _send(self, batch: list[SpanRecord]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result = self._exporter.export([self._convert(span) for span in batch])
        except Exception as error:  # traces must never be the reason that something fails
            self._heard.last = f"{type(error).__name__}: {error}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.exported += len(batch)
        else:
            self._drop(len(batch), self._redactor.text(self._heard.last) or "the endpoint did not take them")
        self._heard.last = ""

    def _drop(self, count: int, reason: str) -> None:
        first = not self.dropped
        self.dropped += count
        self.reason = reason
        if first:
            _log.warning("spans cannot be delivered, and are dropped from here on: %s", reason)


class _Overheard(logging.Filter):
    """Keeps the exporter's own log lines out of the log, and remembers the last: each loss is told once, by us.

    Only lines of our thread: a program that embeds the engine may have an exporter of its own.
    """

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.last = ""
        self._thread = thread
        self._loggers = [
            logging.getLogger(name)
            for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "urllib3.connectionpool")
        ]
        for logger in self._loggers:
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread.ident:
            return True
        if record.name.startswith("opentelemetry") and not self.last:
            self.last = record.getMessage()
        return False

    def close(self) -> None:
        for logger in self._loggers:
            logger.removeFilter(self)


def _exporter(url: str, headers: Mapping[str, str], timeout: float) -> Any:
    import requests
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        url, headers=dict(headers), timeout=timeout, compression=Compression.Gzip, session=requests.Session()
    )


def _converter(redactor: Redactor) -> Callable[[SpanRecord], ReadableSpan]:
    """Make the function that turns a span into OpenTelemetry's form. Every text in it passes the redactor."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    sampled = TraceFlags(TraceFlags.SAMPLED)
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or "windlass"})
    scope = InstrumentationScope("windlass", __version__)
    clean = redactor.text

    def cleaned(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        return {key: clean(value) if isinstance(value, str) else value for key, value in attributes.items()}

    def context(trace: int, span: int) -> SpanContext:
        return SpanContext(trace, span, is_remote=False, trace_flags=sampled)

    def convert(span: SpanRecord) -> ReadableSpan:
        return ReadableSpan(
            clean(span.name),
            context(span.trace, span.id),
            None if span.parent is None else context(span.trace, span.parent),
            resource,
            cleaned(span.attributes),
            [Event(event.name, cleaned(event.attributes), _nanoseconds(event.at)) for event in span.events],
            [Link(context(*link)) for link in span.links],
            SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, clean(span.error)),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=scope,
        )

    return convert


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1_000_000)) * 1_000


def problem_of(endpoint: str, headers_env: Mapping[str, str], timeout: float = 5.0) -> str:
    """Send an empty request; returns the problem, or nothing if the endpoint takes it."""
    if unset := [name for name in headers_env.values() if not os.environ.get(name)]:
        return f"the variable {unset[0]} of `headers_env` is not set"
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
        import requests
    except ImportError as error:
        return f"{error}: pip install 'windlass[telemetry]'"
    sent = {"content-type": "application/x-protobuf", **resolve_headers(headers_env)}
    try:
        answer = requests.post(traces_url(endpoint), b"", headers=sent, timeout=timeout, allow_redirects=False)
    except (requests.RequestException, ValueError) as error:  # a header with a line break is a ValueError
        return redactor_for(headers_env).text(_cause(error))
    return "" if answer.status_code < 300 else f"it answers {answer.status_code} {answer.reason}"


def _cause(error: BaseException) -> str:
    """The innermost cause: what the system said."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        reason = getattr(current, "reason", None)
        inner = reason if isinstance(reason, BaseException) else current.__cause__ or current.__context__
        if inner is None and current.args and isinstance(current.args[0], BaseException):
            inner = current.args[0]
        current = inner
    return str(seen[-1]) or type(seen[-1]).__name__
