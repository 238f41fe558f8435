"""Scores of a metric over a dataset, and by the fields of its items, as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import list_first, printable
from pytest_agentbench.reports.datasets import Entry, breakdown
from pytest_agentbench.reports.ends import run_on_text
from pytest_agentbench.reports.rows import groupable_fields
from pytest_agentbench.reports.table import Column, fit_columns, make_column
from pytest_agentbench.statistics.estimates import mean, pass_rate_interval, score_interval

if TYPE_CHECKING:
    from pytest_agentbench.benchmark.results import EvaluationResult
    from pytest_agentbench.records.case import MetricSpec
    from pytest_agentbench.sources.items import BenchmarkItem


SHOWN = 10
"""Maximum ids of a list that is printed."""
_NARROWEST_NAME = 16
_ANY_WIDTH = 10_000


def scorecard(
    spec: MetricSpec, items: Sequence[BenchmarkItem], results: Sequence[EvaluationResult], summary: dict[str, Any]
) -> dict[str, Any]:
    """Return the summary with intervals, pass rate, missing and failed items, and the breakdown; None is unknown.

    In the result, `items` counts all items of the score and `judged` the scored ones.
    """
    scores = [[result.score] for result in results if result.score is not None]
    verdicts = [_decide_passed(result, spec.threshold) for result in results]
    judged = [passed for passed in verdicts if passed is not None]
    entries = [
        _make_entry(item, result, passed)
        for item, result, passed in zip(items, results, verdicts, strict=True)
        if not (result.missing and result.score is None)
    ]
    return {
        **summary,
        "threshold": spec.threshold,
        "items": len(entries),
        "judged": len(scores),
        "score_ci95": score_interval(scores),
        "pass_rate": mean(judged),
        "pass_rate_ci95": pass_rate_interval([(int(passed), 1) for passed in judged]),
        "missing_ids": [result.item_id for result in results if result.missing],
        "failed": [{"item_id": result.item_id, "error": result.error} for result in results if result.failed],
        "breakdown": breakdown(entries),
    }


def print_scorecard(card: dict[str, Any], *, counted: bool) -> None:
    """Print a scorecard. `counted`: missing predictions count as 0."""
    from rich.console import Console
    from rich.text import Text

    threshold = "" if card["threshold"] is None else f" >= {card['threshold']:g}"
    # Without soft_wrap rich would break lines at the width: nobody could grep or copy them.
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text.assemble((printable(card["name"]), "bold"), f", {card['metric']}{threshold}"))
    console.print(Text(_write_counts(card, counted=counted)))
    _print_table(card)
    for line in _list_problems(card):
        console.print(Text(line))


def _print_table(card: dict[str, Any]) -> None:
    """Print all items and each group, without the columns that do not fit a terminal; intervals go first."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = ["all", *(printable(f"{group['field']}: {group['value']}") for group in card["breakdown"])]
    groups = [{**card, "mean_score": card["average_score"]}, *card["breakdown"]]
    console = Console()
    if not console.is_terminal:
        # Into a file or a pipe nothing is left out: rich would take 80 columns.
        console = Console(width=_ANY_WIDTH)
    room_for_names = make_column("", -1, [" " * min(max(map(len, names)), _NARROWEST_NAME)])
    figures = _make_columns(groups, with_rate=card["pass_rate"] is not None)
    _, *columns = fit_columns([room_for_names, *figures], console.width - 2, gap=3)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for each in columns:
        table.add_column(each.title, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(each.rows for each in columns), strict=True):
        table.add_row(Text(name), *(Text.assemble(*(part for part, _ in segments)) for segments in cells))
    console.print(table)


def _decide_passed(result: EvaluationResult, threshold: float | None) -> bool | None:
    """Return whether a row passed: by its evaluator, else by the threshold; None without a score."""
    if result.score is None or threshold is None:
        return None
    # A metric of a plugin may have a detail of this name that means something else.
    if "evaluator" in result.details and (own := result.details.get("passed")) is not None:
        return bool(own)
    return result.score >= threshold


def _make_entry(item: BenchmarkItem, result: EvaluationResult, passed: bool | None) -> Entry:
    metadata = item.metadata or {}
    tags = metadata.get("tags")
    if not isinstance(tags, list):
        tags = []
    texts = [tag for tag in tags if isinstance(tag, str)]
    return Entry(fields=groupable_fields(metadata), tags=texts, score=result.score, passed=passed)


def _write_counts(card: dict[str, Any], *, counted: bool) -> str:
    text = f"{card['evaluated_items']:,} of {card['total_items']:,} items scored, "
    text += f"{card['missing_predictions']:,} missing"
    if card["missing_predictions"]:
        text += " (counted as 0)" if counted else " (left out)"
    text += f", {card['failed_items']:,} failed"
    if card["min_score"] is not None:
        text += f"; scores {card['min_score']:.3g} to {card['max_score']:.3g}, {card['perfect_matches']:,} perfect"
    if "agreement" in card:
        text += f"; the judge agrees with itself in {100 * card['agreement']:.0f} %"
    return text


def _make_columns(groups: Sequence[dict[str, Any]], *, with_rate: bool) -> list[Column]:
    columns = [
        make_column("items", 2, [_format_items(group) for group in groups]),
        make_column("mean", 3 if with_rate else 0, [_format_number(group["mean_score"]) for group in groups]),
        make_column("95 % interval", 5, [_format_interval(group["score_ci95"]) for group in groups]),
    ]
    if with_rate:
        columns += [
            make_column("pass rate", 0, [_format_percent(group["pass_rate"]) for group in groups]),
            make_column("95 % interval", 4, [_format_interval(group["pass_rate_ci95"], 100, 1) for group in groups]),
        ]
    return columns


def _format_items(group: dict[str, Any]) -> str:
    """Return how many items there are, and how many of them have a score where that is not all."""
    items, judged = group["items"], group["judged"]
    if judged == items:
        return f"{items:,}"
    return f"{judged:,} of {items:,}"


def _format_percent(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{_format_number(rate, 100, 1)} %"


def _format_number(value: float | None, scale: float = 1, digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{scale * value:.{digits}f}"


def _format_interval(ends: Sequence[float] | None, scale: float = 1, digits: int = 3) -> str:
    if ends is None:
        return "-"
    low, high = (_format_number(end, scale, digits) for end in ends)
    return f"[{low}, {high}]"


def _list_problems(card: dict[str, Any]) -> list[str]:
    lines = []
    if card["missing_ids"]:
        lines.append(f"missing: {list_first(card['missing_ids'], SHOWN)}")
    alike: dict[str, list[str]] = defaultdict(list)
    for each in card["failed"]:
        # Together: one broken endpoint fails a thousand items with one message.
        alike[each["error"]].append(each["item_id"])
    lines += [f"failed: {list_first(ids, SHOWN)}: {printable(error)}" for error, ids in [*alike.items()][:SHOWN]]
    if len(alike) > SHOWN:
        lines.append(f"failed: {sum(map(len, [*alike.values()][SHOWN:])):,} more, with other errors")
    if "run_on" in card:
        lines.append(run_on_text(card["run_on"]))
    if "saved" in card:
        lines.append(f"saved: {card['saved']}")
    if lines:
        return [*lines, ""]
    return lines
