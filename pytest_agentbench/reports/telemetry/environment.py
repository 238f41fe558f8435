"""Read what the OTEL_* variables say that the SDK does not read itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

INSTALL = "pip install 'pytest-agentbench[otel]'"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PROTOCOLS = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
)
_EXPORTERS = ("OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER")


def otel_problem(environ: Mapping[str, str]) -> str | None:
    """Return why no spans can be sent, None where they can: the extra is missing, or another exporter is asked for."""
    if find_spec("opentelemetry") is None or any(
        find_spec(name) is None for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    ):
        return f"--agentbench-otel needs the OpenTelemetry SDK and its OTLP exporter: {INSTALL}"
    for name in _PROTOCOLS:
        if environ.get(name, "http/protobuf") != "http/protobuf":
            return (
                f"--agentbench-otel: {name}: found {environ[name]!r}, expected 'http/protobuf', the one that is sent; "
                "collectors take it on port 4318"
            )
    for name in _EXPORTERS:
        if environ.get(name, "otlp") not in ("otlp", "none"):
            return f"--agentbench-otel: {name}: found {environ[name]!r}, expected 'otlp' or 'none'"
    return None


def sends(signal: str, environ: Mapping[str, str]) -> bool:
    """Return whether `TRACES` or `LOGS` are sent."""
    return environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"


def captures_content(environ: Mapping[str, str]) -> bool:
    """Return whether what people, models and tools wrote may be sent."""
    return environ.get(CONTENT, "").strip().lower() == "true"


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Return whether the SDK is switched off as a whole."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
