"""OTLP over HTTP: spans as protobuf, and the client that posts them.

The messages are built directly: OpenTelemetry's own exporter takes four times as long for a span. Of the standard
variables, those for headers, certificates and the resource are read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from windlass.telemetry.spans import AttributeValue, SpanRecord
from windlass.version import __version__

__all__ = ["OtlpClient", "environment_headers", "span_encoder", "traces_url"]

INTERNAL, CLIENT = 1, 3
"""Kinds of spans."""
ERROR: Any = 2
"""The status of a span that failed."""
SAMPLED = 1
RETRYABLE = frozenset({429, 502, 503, 504})
FIRST_WAIT = 1.0
"""Seconds before the first retry; each further one waits twice as long."""
MOST_ANSWERED = 64 * 1024
"""Bytes of an answer that are read."""


def traces_url(endpoint: str) -> str:
    """The address for traces: that of a collector, or a whole one."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def environment_headers(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of the standard variable, `name=value,name=value`, with escapes as in addresses."""
    given = env.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or env.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return {key.strip(): unquote(value.strip()) for key, value in _pairs(given)}


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            yield key, value


def _resource(env: Mapping[str, str]) -> dict[str, AttributeValue]:
    """The attributes of every trace from here: the service, and what the standard variables add."""
    told: dict[str, AttributeValue] = {"service.name": "windlass", "service.version": __version__}
    told |= {key.strip(): unquote(value.strip()) for key, value in _pairs(env.get("OTEL_RESOURCE_ATTRIBUTES", ""))}
    return told | ({"service.name": env["OTEL_SERVICE_NAME"]} if env.get("OTEL_SERVICE_NAME") else {})


def span_encoder(
    clean: Callable[[str], str], env: Mapping[str, str] = os.environ
) -> Callable[[Iterable[SpanRecord]], bytes]:
    """Make the function that encodes a request. Every text in it passes `clean`."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def fill(attributes: Any, values: Mapping[str, AttributeValue]) -> None:
        add = attributes.add
        for key, value in values.items():
            pair = add(key=key)
            if isinstance(value, str):
                pair.value.string_value = clean(value).encode("utf-8", "replace").decode()
            elif isinstance(value, bool):
                pair.value.bool_value = value
            elif isinstance(value, int):
                pair.value.int_value = max(-(2**63), min(2**63 - 1, value))
            else:
                pair.value.double_value = value

    def encode(spans: Iterable[SpanRecord]) -> bytes:
        request = ExportTraceServiceRequest()
        whole = request.resource_spans.add()
        fill(whole.resource.attributes, _resource(env))
        scope = whole.scope_spans.add()
        scope.scope.name, scope.scope.version = "windlass", __version__
        add = scope.spans.add
        for span in spans:
            made = add(
                trace_id=span.trace.to_bytes(16),
                span_id=span.id.to_bytes(8),
                name=clean(span.name).encode("utf-8", "replace").decode(),
                kind=CLIENT if span.client else INTERNAL,
                start_time_unix_nano=_nanoseconds(span.start),
                end_time_unix_nano=_nanoseconds(span.end),
                flags=SAMPLED,
            )
            if span.parent is not None:
                made.parent_span_id = span.parent.to_bytes(8)
            fill(made.attributes, span.attributes)
            for event in span.events:
                fill(
                    made.events.add(name=event.name, time_unix_nano=_nanoseconds(event.at)).attributes, event.attributes
                )
            for trace, id in span.links:
                made.links.add(trace_id=trace.to_bytes(16), span_id=id.to_bytes(8))
            if span.error is not None:
                made.status.code = ERROR
                made.status.message = clean(span.error).encode("utf-8", "replace").decode()
        encoded: bytes = request.SerializeToString()
        return encoded

    return encode


def _nanoseconds(seconds: float) -> int:
    return max(0, min(2**63 // 1_000, round(seconds * 1_000_000))) * 1_000


class OtlpClient:
    """Posts requests to one address. A redirect is not followed: the headers are for this address alone."""

    def __init__(
        self, url: str, headers: Mapping[str, str], timeout: float, env: Mapping[str, str] = os.environ
    ) -> None:
        import requests

        self._session = requests.Session()
        certificate = env.get("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE") or env.get("OTEL_EXPORTER_OTLP_CERTIFICATE")
        self._verify: bool | str = certificate or True
        self._url = url
        self._headers = {"Content-Type": "application/x-protobuf", **environment_headers(env), **headers}
        self._timeout = timeout

    def post(self, body: bytes, over: threading.Event) -> tuple[str, int]:
        """Post one request; tried again while the endpoint may take it later, until the timeout or until it is `over`.

        Returns the problem (empty if there is none), and the number of spans that the endpoint says it refused.
        """
        import gzip

        packed, until, wait = gzip.compress(body, 1), time.monotonic() + self._timeout, FIRST_WAIT
        while True:
            problem, refused, later = self._once(packed, max(0.1, until - time.monotonic()))
            if not problem or later is None:
                return problem, refused
            pause = max(later, wait)
            if time.monotonic() + pause > until or over.wait(pause):
                return problem, refused
            wait *= 2

    def _once(self, packed: bytes, timeout: float) -> tuple[str, int, float | None]:
        """The problem, the spans that were refused, and the seconds to wait before a retry; None if that is no use."""
        import requests

        try:
            with self._session.post(
                self._url,
                packed,
                headers={**self._headers, "Content-Encoding": "gzip"},
                timeout=timeout,
                verify=self._verify,
                allow_redirects=False,
                stream=True,
            ) as answer:
                told = answer.raw.read(MOST_ANSWERED)
        except (requests.ConnectionError, requests.Timeout) as error:
            return _cause(error), 0, 0.0
        except Exception as error:  # a header or certificate that cannot be used, an answer that is cut off
            return _cause(error), 0, None
        if answer.status_code < 300:
            return "", _refused(told), None
        later = None
        if answer.status_code in RETRYABLE:
            asked = answer.headers.get("retry-after", "")
            later = float(asked) if asked.isascii() and asked.isdigit() else 0.0
        return f"it answers {answer.status_code} {answer.reason}", 0, later

    def close(self) -> None:
        self._session.close()


def _refused(told: bytes) -> int:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        return max(0, int(ExportTraceServiceResponse.FromString(told).partial_success.rejected_spans))
    except Exception:  # it answers in words of its own, which have no common error
        return 0


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
