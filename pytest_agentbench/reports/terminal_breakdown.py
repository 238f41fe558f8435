"""The summary's table of groups: how each dataset's tags and fields did."""

from __future__ import annotations

from math import inf
from typing import Any

from pytest_agentbench.reports.datasets import FINAL_SCORE
from pytest_agentbench.reports.report import Report
from pytest_agentbench.reports.table import (
    Column,
    Style,
    Terminal,
    column,
    fit,
    interval_text,
    rate_cell,
    write_row,
    write_titles,
)

SHOWN = 12
"""How many groups are named; the weakest where there are more."""

_Line = tuple[dict[str, Any], dict[str, Any]]
"""A dataset's result and one group of its breakdown."""


def write_breakdown(reporter: Terminal, report: Report, style: Style) -> None:
    """Write the groups of all datasets in which something was judged or scored."""
    lines = [
        (result, group)
        for result in report["datasets"]
        for group in result["breakdown"]
        if (group["pass_rate"], group["mean_score"]) != (None, None)
    ]
    if not lines:
        return
    shown = lines if len(lines) <= SHOWN else sorted(lines, key=_weakness)[:SHOWN]
    reporter.line("")
    reporter.write_line("breakdown", bold=True)
    columns = fit(_columns(shown, report, style), style.width)
    write_titles(reporter, columns)
    for row in range(len(shown)):
        write_row(reporter, columns, row)
    if len(lines) > len(shown):
        reporter.write_line(
            f"  the weakest {len(shown)} of {len(lines)} groups; all: datasets[].breakdown in report.json"
        )


def _weakness(line: _Line) -> tuple[float, float, float]:
    """Smallest where a group is surely weak: by the upper end of its interval, else a lone failed item comes first."""
    _, group = line
    rate, score = group["pass_rate_ci95"], group["mean_score"]
    return inf if rate is None else rate[1], inf if score is None else score, -group["items"]


def _columns(lines: list[_Line], report: Report, style: Style) -> list[Column]:
    """Dataset and model have a column where the report has several."""
    wanted, narrow = report["session"]["gate"]["fail_under"], max(10, style.width // 7)
    columns = [
        column(title, 2, [style.clip(result[key], narrow) for result, _ in lines], "<")
        for title, key in (("dataset", "dataset"), ("model", "model_id"))
        if len({result[key] for result in report["datasets"]}) > 1
    ]
    groups = [group for _, group in lines]
    columns += [
        column("field", 0, [style.clip(group["field"], narrow) for group in groups], "<"),
        column("value", 0, [style.clip(group["value"], style.width // 4) for group in groups], "<"),
        column("items", 3, [_items(group) for group in groups]),
        column("pass rate", 1, [rate_cell(group["pass_rate"], wanted, style) for group in groups]),
        column("95 % CI", 4, [interval_text(group["pass_rate_ci95"], style) for group in groups]),
    ]
    if any(group["mean_score"] is not None for group in groups):
        columns.append(column(_scored_by(lines, style), 5, [_score(group["mean_score"], style) for group in groups]))
    return columns


def _scored_by(lines: list[_Line], style: Style) -> str:
    """The metric's name, where all datasets shown are scored by the same one."""
    names = {result["scored_by"] for result, _ in lines} - {None}
    name = names.pop() if len(names) == 1 else FINAL_SCORE
    return "score" if name == FINAL_SCORE else style.clip(name, 16)


def _items(group: dict[str, Any]) -> str:
    """With how many of them the figures are about, where that is not all."""
    items, judged = group["items"], group["judged"]
    return str(items) if judged == items else f"{judged} of {items}"


def _score(value: float | None, style: Style) -> str:
    return style.dash if value is None else f"{value:.2f}"
