"""Report format: `agentbench report --format words FILE` writes a line for each run of a card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench import ReportFormat


def write_words(report: Mapping[str, Any], path: Path) -> None:
    """Write case, model, outcome and words of each run of a card, between tabs. Raises OSError."""
    lines = [
        f"{run['case_id']}\t{run['model_id']}\t{run['outcome']}\t{run['brevity']['words']}\n"
        for run in report["runs"]
        if run.get("brevity") is not None
    ]
    path.write_text("".join(["case\tmodel\toutcome\twords\n", *lines]), encoding="utf-8")


WORDS = ReportFormat("the words of each answer to a card, between tabs", write_words)
