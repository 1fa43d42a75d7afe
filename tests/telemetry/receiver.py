"""An OTLP receiver: a server of the standard library that decodes what exporters send it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.until import until


class Received:
    """One span."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name: str = span.name
        self.trace, self.id = span.trace_id.hex(), span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.attributes = _plain(span.attributes)
        self.status: int = span.status.code
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.resource = resource


class Receiver:
    """What has come so far."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[bytes] = []
        self.spans: list[Received] = []
        self.metrics: set[str] = set()
        self.requests = 0
        self._mutex = threading.Lock()
        self.address = ""

    def take(self, path: str, body: bytes) -> None:
        with self._mutex:
            self.requests += 1
            self.bodies.append(body)
            if path.endswith("/traces"):
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    resource = _plain(each.resource.attributes)
                    for scope in each.scope_spans:
                        self.spans += [Received(span, resource) for span in scope.spans]
            elif path.endswith("/metrics"):
                for data in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scoped in data.scope_metrics:
                        self.metrics |= {metric.name for metric in scoped.metrics}

    def named(self, name: str) -> list[Received]:
        with self._mutex:
            return [span for span in self.spans if span.name == name]

    def wait_for(self, name: str, number: int = 1) -> list[Received]:
        return until(
            lambda: found if len(found := self.named(name)) >= number else None, f"span {name}"
        )


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in attributes
    }


@contextmanager
def receiving(status: int = 200) -> Iterator[Receiver]:
    """A receiver that answers so, on a free port."""
    receiver = Receiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    receiver.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
