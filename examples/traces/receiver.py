"""A small OTLP receiver, to see what Windlass sends without installing anything else.

    python3 receiver.py listen SPANS     # keeps spans in the file SPANS; its address is in address.txt
    python3 receiver.py show SPANS       # prints them as a tree

It needs `windlass[telemetry]`, which brings the protocol's messages. A real one is an OpenTelemetry Collector, Jaeger,
Tempo or a service: they listen for the same requests.
"""

from __future__ import annotations

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver(BaseHTTPRequestHandler):
    file = Path()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        with self.file.open("a") as kept:
            for span in (one for all in request.resource_spans for scope in all.scope_spans for one in scope.spans):
                kept.write(json.dumps(as_line(span)) + "\n")
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Say nothing of each request."""


def as_line(span: Any) -> dict[str, Any]:
    attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "start": span.start_time_unix_nano,
        "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        "attributes": attributes,
        "events": [event.name for event in span.events],
        "error": span.status.message if span.status.code == 2 else None,
    }


def show(file: Path) -> None:
    spans = {span["id"]: span for span in map(json.loads, file.read_text().splitlines())}

    def lines(parent: str, depth: int) -> None:
        for span in sorted(spans.values(), key=lambda one: (one["start"], one["name"])):
            above = span["parent"] if span["parent"] in spans else ""
            if above == parent:
                trouble = f"  ! {span['error']}" if span["error"] else ""
                print(f"{'  ' * depth}{span['name']}  {span['seconds']:.1f} s{trouble}")
                lines(span["id"], depth + 1)

    lines("", 0)


def main(act: str, file: str) -> None:
    if act == "show":
        show(Path(file))
        return
    Receiver.file = Path(file)
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Path("address.txt").write_text(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:3])
