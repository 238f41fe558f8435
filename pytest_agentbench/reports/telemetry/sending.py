"""Send spans and events by OTLP over HTTP, from threads of the SDK's; little is read of a collector's answers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from io import BytesIO
from typing import Any

import pytest
import requests
from opentelemetry._logs import LogRecord
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from requests.adapters import HTTPAdapter

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.reports.telemetry.spans import (
    EVENT,
    Attribute,
    SpanFacts,
    agent_span,
    call_spans,
    captures_content,
    evaluation_events,
    sends,
)
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.terminal_text import sendable, visible

LONGEST = 65_536
"""Bytes of an answer that are read. Nothing in it is needed, and an endless one would fill the memory."""
_PROVIDERS = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP{signal}_CREDENTIAL_PROVIDER" for signal in ("", "_TRACES", "_LOGS"))


def collector_session() -> requests.Session | None:
    """Return the HTTP session for an exporter, or None if a variable names a credential provider for the SDK."""
    if any(name in os.environ for name in _PROVIDERS):
        return None
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Guarded())
    return session


class _Guarded(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Raise RequestException for a redirect: the SDK does not follow it but counts it as success."""
        response = super().send(request, *args, **kwargs)
        raw = response.raw
        try:
            # Requests would read all of it, unpacked, as soon as the SDK asks for the content
            response.raw = BytesIO(raw.read(LONGEST, decode_content=False))
        finally:
            raw.close()
        if 300 <= response.status_code < 400:
            raise requests.RequestException(
                f"the collector redirects ({response.status_code}) to {response.headers.get('location')}, which is not "
                "followed; name its own address in OTEL_EXPORTER_OTLP_ENDPOINT"
            )
        return response


# Sends spans and events by OTLP over HTTP, from threads of the SDK's.
#
# A collector that is slow, dead or refuses costs a session a warning, and at its end at most `FLUSH_SECONDS` and one.


FLUSH_SECONDS = 5.0
"""Maximum seconds that the end of a session waits for unsent data."""
QUEUE = 16_384
"""Maximum number of spans, or events, waiting to be sent. Further ones are dropped and counted."""
NAME_LIMIT, MESSAGE_LIMIT = 200, 500
"""Characters of a span's name, of a status or a reason."""

_PACKAGE = "pytest-agentbench"
_SDK_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.sdk._shared_internal",
)


class Telemetry:
    """Sender of a process's runs as spans. A pytest plugin: it flushes when the session ends.

    `warn` is called once if data could not be sent. The OTEL_* variables set endpoint, headers, sampling, limits and
    resource attributes. Call `run` from one thread only.
    """

    def __init__(self, session_id: str, redactor: Redactor, warn: Callable[[str], None]) -> None:
        self._redactor, self._warn = redactor, warn
        self._content = captures_content(os.environ)
        self._complaints = _Complaints()
        resource = _resource(session_id)
        self._ids = _RunIds()
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._spans = _Spans(self._complaints) if sends("TRACES", os.environ) else None
        self._events = _Events(self._complaints) if sends("LOGS", os.environ) else None
        if self._spans is not None:
            room = _room("OTEL_BSP_MAX_QUEUE_SIZE")
            self._tracers.add_span_processor(BatchSpanProcessor(self._spans, room))
        if self._events is not None:
            room = _room("OTEL_BLRP_MAX_QUEUE_SIZE")
            self._loggers.add_log_record_processor(BatchLogRecordProcessor(self._events, max_queue_size=room))
        self._tracer = self._tracers.get_tracer(_PACKAGE, version(_PACKAGE))
        self._logger = self._loggers.get_logger(_PACKAGE, version(_PACKAGE))

    def run(self, artifact: RunArtifact, evaluation: Evaluation | None, model: Model | None, *, reused: bool) -> None:
        """Queue a run with its verdict, both free of secrets. For a `reused` run only the verdict is sent.

        `model` is the session's model entry, or None for the user's own agent.
        """
        with self._complaints.heard():
            self._ids.begin(artifact.run_id)
            if not reused and self._spans is not None:
                self._send_spans(self._spans, artifact, evaluation, model)
            if evaluation is not None and self._events is not None:
                self._send_events(self._events, evaluation)

    @pytest.hookimpl(tryfirst=True)  # the report is written next, with the warning
    def pytest_sessionfinish(self) -> None:
        """Flush the queue, for at most `FLUSH_SECONDS`."""
        # In threads: a provider's shutdown joins its own, which may be in a request that nobody answers
        ending = [
            threading.Thread(target=provider.shutdown, daemon=True) for provider in (self._tracers, self._loggers)
        ]
        until = time.monotonic() + FLUSH_SECONDS
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(max(0.0, until - time.monotonic()))
        counted: list[_Counted] = [each for each in (self._spans, self._events) if each is not None]
        for each in counted:
            each.shutdown()
        for thread in ending:
            thread.join(0.5)  # it ends at once by now, unless it waits for an answer
        self._complaints.close()
        if lacking := [
            f"{each.made - each.sent} of {each.made} {each.what}" for each in counted if each.made > each.sent
        ]:
            reason = self._complaints.first or f"no answer within {FLUSH_SECONDS:g} s"
            self._warn(f"{' and '.join(lacking)} were not sent: {self._redactor.text(visible(reason))}")

    def _send_spans(
        self, spans: _Spans, artifact: RunArtifact, evaluation: Evaluation | None, model: Model | None
    ) -> None:
        began = int(artifact.started_at.timestamp() * 1e9)
        whole = agent_span(artifact, model, content=self._content)
        root = self._start(spans, whole, began, Context())
        if evaluation is not None:
            facts = {"agentbench.outcome": evaluation.outcome, "agentbench.final_score": evaluation.final_score}
            root.set_attributes({name: value for name, value in facts.items() if value is not None})
            if evaluation.outcome in ("passed", "failed"):
                root.set_attribute("test.case.result.status", evaluation.outcome.removesuffix("ed"))
        below = set_span_in_context(root, Context())
        for call in call_spans(artifact, model, content=self._content):
            span = self._start(spans, call, began, below)
            span.end(began + int(call.end * 1e9))
        root.end(began + int(whole.end * 1e9))

    def _start(self, spans: _Spans, facts: SpanFacts, began: int, context: Context) -> Span:
        kind = SpanKind.CLIENT if facts.calls_out else SpanKind.INTERNAL
        at = began + int(facts.start * 1e9)
        name, attributes = sendable(facts.name, NAME_LIMIT), _sendable(facts.attributes)
        span = self._tracer.start_span(name, context, kind, attributes, start_time=at)
        if facts.error is not None:
            span.set_status(StatusCode.ERROR, sendable(facts.error, MESSAGE_LIMIT))
        spans.made += span.is_recording()
        return span

    def _send_events(self, events: _Events, evaluation: Evaluation) -> None:
        context = set_span_in_context(NonRecordingSpan(self._ids.root), Context())
        for attributes in evaluation_events(evaluation, content=self._content):
            record = LogRecord(
                timestamp=time.time_ns(), context=context, event_name=EVENT, attributes=_sendable(attributes)
            )
            events.made += 1
            self._logger.emit(record)


class _RunIds(RandomIdGenerator):
    """Ids that follow from the run's, so that a later verdict on it names the same span."""

    def begin(self, run_id: str) -> None:
        """Begin a run: the next trace and its first span get the run's ids."""
        # From the run's id, so that a session that judges a stored run again adds to the trace of the one that made it
        digest = sha256(run_id.encode("utf-8", "replace")).digest()
        trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
        self.root = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        self._is_next = True

    def generate_trace_id(self) -> int:
        """Return the run's trace id."""
        return self.root.trace_id

    def generate_span_id(self) -> int:
        """Return the run's span id for its first span, the root; then random ids."""
        if self._is_next:
            self._is_next = False
            return self.root.span_id
        return super().generate_span_id()


class _Counted:
    """Exports through another exporter and counts: `made` is how many there were, `sent` how many were taken."""

    what: str
    failure: Any
    exporter: Callable[..., Any]

    def __init__(self, complaints: _Complaints) -> None:
        self._exporter, self._complaints = self.exporter(session=collector_session()), complaints
        self._is_over = False
        self.made = self.sent = 0

    def export(self, batch: Sequence[Any]) -> Any:
        """Send a batch in one request, tried again for as long as the exporter's timeout allows."""
        if self._is_over:
            return self.failure
        with self._complaints.heard():
            result = self._exporter.export(batch)
        if result is not self.failure:
            self.sent += len(batch)
        return result

    def shutdown(self) -> None:
        """Drop unsent data."""
        if not self._is_over:
            self._is_over = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Return True, for nothing waits here."""
        return True


class _Spans(_Counted, SpanExporter):
    what, failure, exporter = "spans", SpanExportResult.FAILURE, OTLPSpanExporter


class _Events(_Counted, LogRecordExporter):
    what, failure, exporter = "events", LogRecordExportResult.FAILURE, OTLPLogExporter


class _Complaints(logging.Filter):
    """Log handler that keeps the SDK's messages out of the items' logs, and stores the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first: str | None = None
        self._threads: set[int] = set()
        for name in _SDK_LOGGERS:
            logging.getLogger(name).addFilter(self)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Attribute log messages of this thread to the session's spans within the context."""
        self._threads.add(here := threading.get_ident())
        try:
            yield
        finally:
            self._threads.discard(here)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether somebody else is to see it."""
        if record.thread not in self._threads:
            return True
        self.first = self.first or record.getMessage()[:MESSAGE_LIMIT]
        return False

    def close(self) -> None:
        """Give the loggers back to others."""
        for name in _SDK_LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _resource(session_id: str) -> Resource:
    """Return the resource of all spans. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    # `Resource.create` would prefer its arguments to the variables; the user's variables must win.
    ours = {
        "service.name": _PACKAGE,
        "service.version": version(_PACKAGE),
        "service.instance.id": f"{session_id}-{os.getpid()}",
        "agentbench.session_id": session_id,
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _room(variable: str) -> int | None:
    """Return the size of the queue, or None if the variable sets it: the SDK reads it."""
    if variable in os.environ:
        return None
    return QUEUE


def _sendable(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return the attributes without lone surrogates, which protobuf does not carry."""
    return {name: sendable(value) if isinstance(value, str) else value for name, value in attributes.items()}
