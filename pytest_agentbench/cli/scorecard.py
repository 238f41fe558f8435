"""What one metric says of a file of predictions: figures for programs, a table for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.cli.printing import printable
from pytest_agentbench.reports import Entry, breakdown, groupable, pass_rate_interval, score_interval

if TYPE_CHECKING:
    from pytest_agentbench.benchmark import EvaluationResult
    from pytest_agentbench.records import MetricSpec
    from pytest_agentbench.sources import BenchmarkItem

_SHOWN = 10
_NARROWEST_NAME = 16
_ANY_WIDTH = 10_000


def scorecard(
    spec: MetricSpec, items: Sequence[BenchmarkItem], results: Sequence[EvaluationResult], summary: dict[str, Any]
) -> dict[str, Any]:
    """The summary with intervals, pass rate, what is missing or failed, and the breakdown. None: unknown.

    `items` are those that count, `judged` those of them that have a score.
    """
    scores = [[result.score] for result in results if result.score is not None]
    verdicts = [_passed(result, spec.threshold) for result in results]
    judged = [passed for passed in verdicts if passed is not None]
    entries = [
        _entry(item, result, passed)
        for item, result, passed in zip(items, results, verdicts, strict=True)
        if not (result.missing and result.score is None)
    ]
    return {
        **summary,
        "threshold": spec.threshold,
        "items": len(entries),
        "judged": len(scores),
        "score_ci95": score_interval(scores),
        "pass_rate": sum(judged) / len(judged) if judged else None,
        "pass_rate_ci95": pass_rate_interval([(int(passed), 1) for passed in judged]),
        "missing_ids": [result.item_id for result in results if result.missing],
        "failed": [{"item_id": result.item_id, "error": result.error} for result in results if result.failed],
        "breakdown": breakdown(entries),
    }


def print_scorecard(card: dict[str, Any], *, counted: bool) -> None:
    """Prints it. `counted` says that missing predictions count as 0."""
    from rich.console import Console
    from rich.text import Text

    wanted = "" if card["threshold"] is None else f" >= {card['threshold']:g}"
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text.assemble((printable(card["name"]), "bold"), f", {card['metric']}{wanted}"))
    console.print(Text(_counts(card, counted=counted)))
    _print_table(card)
    for line in _problems(card):
        console.print(Text(line))


def _print_table(card: dict[str, Any]) -> None:
    """All items and each group. What does not fit a terminal is left out, intervals first; names are folded."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = ["all", *(printable(f"{group['field']}: {group['value']}") for group in card["breakdown"])]
    groups = [{**card, "mean_score": card["average_score"]}, *card["breakdown"]]
    console = Console()
    if not console.is_terminal:
        console = Console(width=_ANY_WIDTH)
    room = console.width - min(max(map(len, names)), _NARROWEST_NAME) - len("  ")
    columns = _fitting(_columns(groups, with_rate=card["pass_rate"] is not None), room)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(column.cells for column in columns), strict=True):
        table.add_row(Text(name), *cells)
    console.print(table)


def first_few(texts: Sequence[str]) -> str:
    """The first ten, and how many more there are."""
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return printable(", ".join(texts[:_SHOWN])) + more


def _passed(result: EvaluationResult, threshold: float | None) -> bool | None:
    """A row's own evaluator has the last word; what has no score is neither passed nor failed."""
    if result.score is None or threshold is None:
        return None
    own = result.details.get("passed") if "evaluator" in result.details else None
    return bool(own) if own is not None else result.score >= threshold


def _entry(item: BenchmarkItem, result: EvaluationResult, passed: bool | None) -> Entry:
    metadata = item.metadata or {}
    tags = metadata.get("tags")
    tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else ()
    return Entry(fields=groupable(metadata), tags=tags, score=result.score, passed=passed)


def _counts(card: dict[str, Any], *, counted: bool) -> str:
    missing = f"{card['missing_predictions']:,} missing" + (" (counted as 0)" if counted else " (left out)")
    text = f"{card['evaluated_items']:,} of {card['total_items']:,} items scored, "
    text += f"{missing if card['missing_predictions'] else '0 missing'}, {card['failed_items']:,} failed"
    if card["min_score"] is not None:
        text += f"; scores {card['min_score']:.3g} to {card['max_score']:.3g}, {card['perfect_matches']:,} perfect"
    if "agreement" in card:
        text += f"; the judge agrees with itself in {100 * card['agreement']:.0f} %"
    return text


class _Column(NamedTuple):
    """Of those that do not fit, the one with the highest rank is left out first."""

    title: str
    rank: int
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells))) + len("   ")


def _columns(groups: Sequence[dict[str, Any]], *, with_rate: bool) -> list[_Column]:
    columns = [
        _Column("items", 2, [_items(group) for group in groups]),
        _Column("mean", 3 if with_rate else 0, [_number(group["mean_score"]) for group in groups]),
        _Column("95 % interval", 5, [_interval(group["score_ci95"]) for group in groups]),
    ]
    if with_rate:
        columns += [
            _Column("pass rate", 0, [_percent(group["pass_rate"]) for group in groups]),
            _Column("95 % interval", 4, [_interval(group["pass_rate_ci95"], 100, 1) for group in groups]),
        ]
    return columns


def _fitting(columns: list[_Column], room: int) -> list[_Column]:
    while sum(column.width for column in columns) > room and len(columns) > 1:
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def _items(group: dict[str, Any]) -> str:
    """With how many of them have a score, where that is not all."""
    items, judged = group["items"], group["judged"]
    return f"{items:,}" if judged == items else f"{judged:,} of {items:,}"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{_number(rate, 100, 1)} %"


def _number(value: float | None, scale: float = 1, digits: int = 3) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _interval(ends: Sequence[float] | None, scale: float = 1, digits: int = 3) -> str:
    if ends is None:
        return "-"
    low, high = (_number(end, scale, digits) for end in ends)
    return f"[{low}, {high}]"


def _problems(card: dict[str, Any]) -> list[str]:
    lines = []
    if card["missing_ids"]:
        lines.append(f"missing: {first_few(card['missing_ids'])}")
    alike: dict[str, list[str]] = defaultdict(list)
    for each in card["failed"]:
        alike[each["error"]].append(each["item_id"])
    lines += [f"failed: {first_few(ids)}: {printable(error)}" for error, ids in [*alike.items()][:_SHOWN]]
    if len(alike) > _SHOWN:
        lines.append(f"failed: {sum(map(len, [*alike.values()][_SHOWN:])):,} more, with other errors")
    if "saved" in card:
        lines.append(f"saved: {card['saved']}")
    return [*lines, ""] if lines else lines
