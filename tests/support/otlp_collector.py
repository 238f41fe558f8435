"""Collect OpenTelemetry on loopback: receive OTLP over HTTP, decode its protobuf, and store the spans.

with Collector() as collector:
    ...  # OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint
assert collector.named("chat gpt")
"""

from __future__ import annotations

import contextlib
import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Kept:
    """A received span or event. Ids are hex, times in ns; `parent` is empty at a root."""

    name: str
    trace_id: str
    span_id: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    parent: str = ""
    kind: int = 0
    start: int = 0
    end: int = 0
    failed: str | None = None


@dataclass
class Collector:
    """A collector. It answers with `status` and `reason`; with `hangs` it does not answer until it is closed.

    With `endless` its answer never ends; `told` counts the bytes of it that were read.
    """

    status: int = 200
    reason: str | None = None
    hangs: bool = False
    endless: bool = False
    told: int = 0
    spans: list[Kept] = field(default_factory=list)
    events: list[Kept] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    body: bytes = b""

    def __enter__(self) -> Collector:
        self._closing = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                if collector.hangs:
                    collector._closing.wait(60)
                self.send_response(collector.status, collector.reason)
                if 300 <= collector.status < 400:
                    self.send_header("location", f"{collector.endpoint}/elsewhere")
                if not collector.endless:
                    self.send_header("content-length", "0")
                self.end_headers()
                if collector.endless:
                    self._tell_for_ever()

            def _tell_for_ever(self) -> None:
                self.close_connection = True
                with contextlib.suppress(ConnectionError):
                    while not collector._closing.is_set():
                        collector.told += self.wfile.write(bytes(65_536))

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def named(self, name: str) -> list[Kept]:
        """Return the spans of this name."""
        return [span for span in self.spans if span.name == name]

    def roots(self) -> list[Kept]:
        """Return the spans of whole runs, in the order of their beginning."""
        return sorted((span for span in self.spans if not span.parent), key=lambda span: span.start)

    def below(self, root: Kept) -> list[Kept]:
        """Return the spans of a run's model and tool calls, in the order of their beginning."""
        return sorted((span for span in self.spans if span.parent == root.span_id), key=lambda span: span.start)

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.requests.append((path, headers))
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.body += body
        if path == "/v1/traces":
            for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _attributes(batch.resource.attributes)
                self.spans += [_span(span, resource) for scope in batch.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/logs", path
            for batch in ExportLogsServiceRequest.FromString(body).resource_logs:
                resource = _attributes(batch.resource.attributes)
                self.events += [_event(record, resource) for scope in batch.scope_logs for record in scope.log_records]


def _span(span: Any, resource: dict[str, Any]) -> Kept:
    return Kept(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        _attributes(span.attributes),
        resource,
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.message if span.status.code == 2 else None,
    )


def _event(record: Any, resource: dict[str, Any]) -> Kept:
    ids = record.trace_id.hex(), record.span_id.hex()
    return Kept(record.event_name, *ids, _attributes(record.attributes), resource, start=record.time_unix_nano)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
