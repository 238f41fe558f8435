"""OpenTelemetry: runs, their model calls and tool calls as spans, and verdicts as events, by the GenAI conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.reports.telemetry.environment import is_disabled, otel_problem

if TYPE_CHECKING:
    from pytest_agentbench.reports.telemetry.sending import Telemetry

__getattr__ = lazy_exports(__name__, {"Telemetry": f"{__name__}.sending"})

__all__ = ["Telemetry", "is_disabled", "otel_problem"]
