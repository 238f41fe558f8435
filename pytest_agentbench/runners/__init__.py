"""Ways to run a case: the built-in runners, a user's own callable, and predictions made elsewhere."""

from pytest_agentbench.runners.adapter import adapt
from pytest_agentbench.runners.base import ReportedCall, RunContext, RunEnd, Runner, RunOutput, conclude
from pytest_agentbench.runners.llm_probe import llm_probe
from pytest_agentbench.runners.planner import mcp_planner
from pytest_agentbench.runners.predictions import Predictions
from pytest_agentbench.runners.prompt import render_messages
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.runners.registry import BUILTIN_RUNNERS, RUN_SECONDS
from pytest_agentbench.runners.stored_reports import STORED_METRICS, StoredReports

__all__ = [
    "BUILTIN_RUNNERS",
    "RUN_SECONDS",
    "STORED_METRICS",
    "Predictions",
    "Recorder",
    "ReportedCall",
    "RunContext",
    "RunEnd",
    "RunOutput",
    "Runner",
    "StoredReports",
    "adapt",
    "conclude",
    "llm_probe",
    "mcp_planner",
    "render_messages",
]
