"""What one metric says of a file of predictions: figures for programs, a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.reports import Entry, breakdown, groupable, mean_interval, pass_rate_interval

if TYPE_CHECKING:
    from pytest_agentbench.benchmark import EvaluationResult
    from pytest_agentbench.records import MetricSpec
    from pytest_agentbench.sources import BenchmarkItem

_SHOWN = 10


def scorecard(
    spec: MetricSpec, items: Sequence[BenchmarkItem], results: Sequence[EvaluationResult], summary: dict[str, Any]
) -> dict[str, Any]:
    """The summary with intervals, pass rate, what is missing or failed, and the breakdown. None: unknown."""
    scores = [[result.score] for result in results if result.score is not None]
    verdicts = [_passed(result, spec.threshold) for result in results]
    judged = [passed for passed in verdicts if passed is not None]
    return {
        **summary,
        "threshold": spec.threshold,
        "score_ci95": mean_interval(scores),
        "pass_rate": sum(judged) / len(judged) if judged else None,
        "pass_rate_ci95": pass_rate_interval([(int(passed), 1) for passed in judged]),
        "missing_ids": [result.item_id for result in results if result.missing],
        "failed": [{"item_id": result.item_id, "error": result.error} for result in results if result.failed],
        "breakdown": breakdown(
            [
                _entry(item, result, passed)
                for item, result, passed in zip(items, results, verdicts, strict=True)
                if not (result.missing and result.score is None)
            ]
        ),
    }


def print_scorecard(card: dict[str, Any], *, counted: bool) -> None:
    """Prints it. `counted` says that missing predictions count as 0."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    wanted = "" if card["threshold"] is None else f" >= {card['threshold']:g}"
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text.assemble((_printable(card["name"]), "bold"), f", {card['metric']}{wanted}"))
    console.print(Text(_counts(card, counted=counted)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    columns = ["items", "mean", "95 % interval"]
    if card["pass_rate"] is not None:
        columns += ["pass rate", "95 % interval"]
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    everything = {**card, "items": card["total_items"], "mean_score": card["average_score"]}
    table.add_row("all", *_figures(everything)[: len(columns)])
    for group in card["breakdown"]:
        name = _printable(f"{group['field']}: {group['value']}")
        table.add_row(Text(name), *_figures(group)[: len(columns)])
    Console().print(table)
    for line in _problems(card):
        console.print(Text(line))


def first_few(texts: Sequence[str]) -> str:
    """The first ten, and how many more there are."""
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return _printable(", ".join(texts[:_SHOWN])) + more


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


def _figures(group: dict[str, Any]) -> list[str]:
    return [
        f"{group['items']:,}",
        _number(group["mean_score"]),
        _interval(group["score_ci95"]),
        "-" if group["pass_rate"] is None else f"{_number(group['pass_rate'], 100, 1)} %",
        _interval(group["pass_rate_ci95"], 100, 1),
    ]


def _number(value: float | None, scale: float = 1, digits: int = 3) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _interval(ends: Sequence[float] | None, scale: float = 1, digits: int = 3) -> str:
    """Cut to what scores can be: an interval of few items reaches beyond."""
    if ends is None:
        return "-"
    low, high = (_number(min(1.0, max(0.0, end)), scale, digits) for end in ends)
    return f"[{low}, {high}]"


def _problems(card: dict[str, Any]) -> list[str]:
    lines = []
    if card["missing_ids"]:
        lines.append(f"missing: {first_few(card['missing_ids'])}")
    failed = card["failed"]
    lines += [f"failed: {_printable(each['item_id'])}: {_printable(each['error'])}" for each in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        lines.append(f"failed: {len(failed) - _SHOWN:,} more")
    if "saved" in card:
        lines.append(f"saved: {card['saved']}")
    return [*lines, ""] if lines else lines


def _printable(text: str) -> str:
    """One line without control characters: a file must not steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
