"""A real OTLP receiver on a loopback port: it parses the protobuf of every request and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

__all__ = ["ReceivedSpan", "Receiver", "tree"]


class ReceivedSpan(NamedTuple):
    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, int, dict[str, Any]], ...]
    links: tuple[tuple[str, str], ...]
    error: str | None
    kind: str

    def event(self, name: str) -> dict[str, Any]:
        return next(attributes for found, _at, attributes in self.events if found == name)


class Receiver:
    """Keeps what it is sent. `answer` may be set to the status that it answers with; `hold` keeps requests waiting."""

    def __init__(self, port: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, Any]] = []
        self.answer = 200
        self.reply = b""
        """The body of its answers."""
        self.asked = 0
        """Requests that it got."""
        self.hold = threading.Event()
        self.hold.set()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                receiver.asked += 1
                receiver.hold.wait(60)
                status = receiver.answer
                if status == 200 and self.path == "/v1/traces":
                    receiver._keep(body, dict(self.headers.items()))
                self.send_response(status if self.path == "/v1/traces" else 404)
                self.send_header("content-length", str(len(receiver.reply)))
                if status == 301:
                    self.send_header("location", f"{receiver.endpoint}/elsewhere")
                self.end_headers()
                self.wfile.write(receiver.reply)

            def log_message(self, *_args: Any) -> None:
                """Tests read what is received, not a log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_error: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def _keep(self, body: bytes, headers: dict[str, str]) -> None:
        plain = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        with self._lock:
            self.bodies.append(plain)
            self.headers.append(headers)

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Every span, as often as it came."""
        with self._lock:
            bodies = list(self.bodies)
        found = []
        for body in bodies:
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                self.resources.append(_plain(resource.resource.attributes))
                found += [_received(span) for scope in resource.scope_spans for span in scope.spans]
        return found

    def unique(self) -> dict[str, ReceivedSpan]:
        """Each span once, by its id. One that came twice must have been the same."""
        by_id: dict[str, ReceivedSpan] = {}
        for span in self.spans:
            assert by_id.setdefault(span.id, span) == span, f"{span} came in two forms"
        return by_id

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.unique().values() if span.name == name]


def tree(spans: dict[str, ReceivedSpan], show: Callable[[ReceivedSpan], str] = lambda span: span.name) -> list[str]:
    """The spans as indented lines, brothers by start and name."""
    beneath: dict[str, list[ReceivedSpan]] = defaultdict(list)
    for span in spans.values():
        beneath[span.parent if span.parent in spans else ""].append(span)

    def lines(parent: str, depth: int) -> list[str]:
        found = []
        for span in sorted(beneath[parent], key=lambda one: (one.start, one.name)):
            found += ["  " * depth + show(span), *lines(span.id, depth + 1)]
        return found

    return lines("", 0)


def _received(span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        tuple((event.name, event.time_unix_nano, _plain(event.attributes)) for event in span.events),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        Span.SpanKind.Name(span.kind),
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in attributes}
