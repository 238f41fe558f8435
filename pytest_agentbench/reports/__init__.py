"""Reports: what a session found, for people (terminal, assertion reports, live progress) and for programs
(report.json, user properties, JUnit, the gate)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.reports.assertion import Fault, error_report, failure_report, faults, headline
from pytest_agentbench.reports.breakdown import Entry, breakdown, groupable
from pytest_agentbench.reports.gate import MIN_COMPLETION, Counts, Gate, case_failures, gate
from pytest_agentbench.reports.progress import Progress, StatusLine
from pytest_agentbench.reports.rows import Row, run_row, user_properties
from pytest_agentbench.reports.statistics import (
    mean_interval,
    pass_at_k,
    pass_hat_k,
    pass_rate_interval,
    score_interval,
    wilson_interval,
)
from pytest_agentbench.reports.tool_use import model_tool_use

if TYPE_CHECKING:
    from pytest_agentbench.reports.agreement.human import add_session_labels, human_results
    from pytest_agentbench.reports.agreement.judges import family_warnings
    from pytest_agentbench.reports.agreement.labels import HUMAN_FILE, Label, read_labels
    from pytest_agentbench.reports.comparison import Campaign, campaign, compare
    from pytest_agentbench.reports.comparison.baseline import read_campaign
    from pytest_agentbench.reports.forecast import write_forecast
    from pytest_agentbench.reports.journal import Journal, JournalReader, journals, read_journal
    from pytest_agentbench.reports.outputs import write_chart, write_outputs
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.report import build_report, report_schema, suite_properties, write_report
    from pytest_agentbench.reports.table import Terminal
    from pytest_agentbench.reports.terminal import FoldedErrors, write_summary
    from pytest_agentbench.reports.uncollected import collection_problems

_HOMES = {
    "comparison": ("Campaign", "campaign", "compare"),
    "comparison.baseline": ("read_campaign",),
    "forecast": ("write_forecast",),
    "agreement.human": ("add_session_labels", "human_results"),
    "agreement.judges": ("family_warnings",),
    "journal": ("Journal", "JournalReader", "journals", "read_journal"),
    "agreement.labels": ("HUMAN_FILE", "Label", "read_labels"),
    "outputs": ("write_chart", "write_outputs"),
    "reading": ("read_report",),
    "report": ("build_report", "report_schema", "suite_properties", "write_report"),
    "table": ("Terminal",),
    "terminal": ("FoldedErrors", "write_summary"),
    "uncollected": ("collection_problems",),
}
"""What workers, which make no report, do without, and all but dry runs."""
__getattr__ = lazy_exports(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "HUMAN_FILE",
    "MIN_COMPLETION",
    "Campaign",
    "Counts",
    "Entry",
    "Fault",
    "FoldedErrors",
    "Gate",
    "Journal",
    "JournalReader",
    "Label",
    "Progress",
    "Row",
    "StatusLine",
    "Terminal",
    "add_session_labels",
    "breakdown",
    "build_report",
    "campaign",
    "case_failures",
    "collection_problems",
    "compare",
    "error_report",
    "failure_report",
    "family_warnings",
    "faults",
    "gate",
    "groupable",
    "headline",
    "human_results",
    "journals",
    "mean_interval",
    "model_tool_use",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate_interval",
    "read_campaign",
    "read_journal",
    "read_labels",
    "read_report",
    "report_schema",
    "run_row",
    "score_interval",
    "suite_properties",
    "user_properties",
    "wilson_interval",
    "write_chart",
    "write_forecast",
    "write_outputs",
    "write_report",
    "write_summary",
]
