"""The tested difference of every two columns of a report, for the page, where a reader chooses the pair."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare_rates

MOST_COLUMNS = 6
"""Columns of which all pairs are tested. A pair with hundreds of changed cases takes about 0.1 s."""
_FIGURES = ("cases", "difference", "ci95", "test", "p_value")


def compare_every_pair(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the difference of pass rates of every two columns that `column_comparisons` does not have.

    [] for too many columns. Each p value is that of its pair alone. It is not adjusted, because a reader looks at one
    pair after another.
    """
    if not 1 < len(report["models"]) <= MOST_COLUMNS:
        return []
    known = {(pair["baseline_model_id"], pair["model_id"]) for pair in report.get("column_comparisons", ())}
    columns = build_campaign(report).models
    pairs = []
    for old, new in combinations(columns, 2):
        if (old, new) in known or (new, old) in known:
            continue
        figures = compare_rates(columns[old], columns[new]).as_dict()
        if figures["cases"]:
            pairs.append({"reference": old, "column": new, "rate": {name: figures[name] for name in _FIGURES}})
    return pairs
