"""Pass rates of groups of cases by column: tags and fields of datasets, for the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.reports.datasets import TAG, Entry, breakdown
from pytest_agentbench.reports.gate import case_key, has_verdict
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.statistics.estimates import mean

FEWEST_CASES = 5
"""Cases of a group below which its rates say too little."""
MOST_GROUPS = 16
"""Groups that are shown, the largest ones."""


def find_topics(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{rows, left_out, fewest}`: the groups with their pass rates by column, and how many others there are.

    A row is `{field, value, cases, rates}`; `rates` are in the order of the report's columns. Fields come before tags.
    Groups are those of `breakdown`.
    """
    # Runs of all columns together: the groups are of cases
    runs = [Entry(row["fields"], row["tags"], None, _passed(row), case_key(row)) for row in report["runs"]]
    groups = breakdown(runs)
    large = sorted((group for group in groups if group["items"] >= FEWEST_CASES), key=lambda group: -group["items"])
    shown = sorted(large[:MOST_GROUPS], key=lambda group: (group["field"] == TAG, group["field"]))
    rates = _rates_by_column(report["runs"])
    columns = [column_of(model) for model in report["models"]]
    rows = [
        {
            "field": group["field"],
            "value": group["value"],
            "cases": group["items"],
            "rates": [mean(rates[group["field"], group["value"], column]) for column in columns],
        }
        for group in shown
    ]
    return {"rows": rows, "left_out": len(groups) - len(shown), "fewest": FEWEST_CASES}


def _rates_by_column(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[bool]]:
    """Return whether each judged run passed, by field, value and column."""
    verdicts: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for row in rows:
        if (passed := _passed(row)) is not None:
            groups = [*row["fields"].items(), *((TAG, tag) for tag in dict.fromkeys(row["tags"]))]
            for field, value in groups:
                verdicts[field, value, column_of(row)].append(passed)
    return verdicts


def _passed(row: Row) -> bool | None:
    return row["outcome"] == "passed" if has_verdict(row) else None
