"""The tested difference of every two columns of a report, for the page, where a reader chooses the pair."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare_rates

MOST_COLUMNS = 6
"""Columns of which all pairs are tested: 15 pairs, at worst 0.3 s each."""


def compare_every_pair(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the difference of pass rates of every two columns with common cases, [] for too many columns.

    Each p value is that of its pair alone. It is not adjusted, because a reader looks at one pair after another.
    """
    if not 1 < len(report["models"]) <= MOST_COLUMNS:
        return []
    columns = build_campaign(report).models
    return [
        {"reference": old, "column": new, "rate": measure.as_dict()}
        for old, new in combinations(columns, 2)
        if (measure := compare_rates(columns[old], columns[new])).cases
    ]
