"""Reports: what a session found, for people (terminal, assertion reports, live progress) and for programs
(report.json, user properties, JUnit, the gate)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.reports.assertion import Fault, error_report, failure_report, faults, headline
from pytest_agentbench.reports.breakdown import Entry, breakdown, groupable
from pytest_agentbench.reports.gate import Counts, Gate, case_failures, gate
from pytest_agentbench.reports.progress import Progress, StatusLine
from pytest_agentbench.reports.rows import Row, run_row, user_properties
from pytest_agentbench.reports.statistics import (
    mean_interval,
    pass_at_k,
    pass_hat_k,
    pass_rate_interval,
    wilson_interval,
)
from pytest_agentbench.reports.tool_use import model_tool_use

if TYPE_CHECKING:
    from pytest_agentbench.reports.forecast import write_forecast
    from pytest_agentbench.reports.report import build_report, report_schema, suite_properties, write_report
    from pytest_agentbench.reports.table import Terminal
    from pytest_agentbench.reports.terminal import write_summary

_HOMES = {
    "forecast": ("write_forecast",),
    "report": ("build_report", "report_schema", "suite_properties", "write_report"),
    "table": ("Terminal",),
    "terminal": ("write_summary",),
}
"""What workers, which make no report, do without, and all but dry runs."""
__getattr__ = lazy_exports(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "Counts",
    "Entry",
    "Fault",
    "Gate",
    "Progress",
    "Row",
    "StatusLine",
    "Terminal",
    "breakdown",
    "build_report",
    "case_failures",
    "error_report",
    "failure_report",
    "faults",
    "gate",
    "groupable",
    "headline",
    "mean_interval",
    "model_tool_use",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate_interval",
    "report_schema",
    "run_row",
    "suite_properties",
    "user_properties",
    "wilson_interval",
    "write_forecast",
    "write_report",
    "write_summary",
]
