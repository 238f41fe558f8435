"""The report as Markdown: a comment on a pull request, GitHub's job summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_agentbench.reports.ci import sections
from pytest_agentbench.reports.ci.blocks import joined, listed
from pytest_agentbench.reports.ci.compared import comparison
from pytest_agentbench.reports.ci.escaping import SENTENCE, code
from pytest_agentbench.reports.ci.places import Places

COMMENT = 65_000
"""Bytes of a comment: GitHub takes 65,536 characters."""
MARKER = "<!-- agentbench -->"
"""The first line: by it a later run finds the comment that it is to replace."""


def comparison_markdown(found: Mapping[str, Any], report: Mapping[str, Any], places: Places) -> str:
    """A comparison (report.json's `comparison`) alone; `report` is the current side's."""
    rows = {row["nodeid"]: row for row in report["runs"]}
    reasons = [f"- {code(reason, SENTENCE)}" for reason in found["failures"]]
    blocks = [*comparison(found, rows, places), *listed("❌ **It fails**", reasons, sections.SHOWN, "more reasons")]
    return joined(blocks, sections.facts(report), COMMENT)


def markdown(report: Mapping[str, Any], places: Places, limit: int = COMMENT) -> str:
    """The verdict, the models, what changed, what failed and why, in at most `limit` bytes of UTF-8.

    Parts come in the order of their weight: where it gets tight, the last ones are cut first, and say so.
    """
    found = report.get("comparison")
    rows = {row["nodeid"]: row for row in report["runs"]}
    blocks = [
        *sections.verdict(report),
        *sections.uncollected(report, places),
        *sections.models(report),
        *(comparison(found, rows, places, report["session"]["gate"]["reasons"]) if found is not None else []),
        *sections.failures(report, places),
        *sections.errors(report, places),
        *sections.skips(report),
        *sections.datasets(report),
        *sections.matrix(report, places),
    ]
    head = f"{MARKER}\n"
    return head + joined(blocks, sections.facts(report), limit - len(head))
