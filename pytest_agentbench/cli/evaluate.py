"""`agentbench evaluate DATA PREDICTIONS`: score answers that are there already; no agent runs."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import printable
from pytest_agentbench.reports.datasets import Entry, breakdown
from pytest_agentbench.reports.rows import groupable_fields
from pytest_agentbench.reports.table import Column, fit_columns, make_column
from pytest_agentbench.statistics.estimates import mean, pass_rate_interval, score_interval

if TYPE_CHECKING:
    from pytest_agentbench.benchmark.benchmark import Benchmark
    from pytest_agentbench.benchmark.results import EvaluationResult
    from pytest_agentbench.records.case import MetricSpec
    from pytest_agentbench.sources.items import BenchmarkItem


_SHOWN = 10
_NARROWEST_NAME = 16
_ANY_WIDTH = 10_000


def scorecard(
    spec: MetricSpec, items: Sequence[BenchmarkItem], results: Sequence[EvaluationResult], summary: dict[str, Any]
) -> dict[str, Any]:
    """Return the summary with intervals, pass rate, what is missing or failed, and the breakdown; None is unknown.

    `items` are those that count, `judged` those of them that have a score.
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
    """Print a scorecard. `counted` says that missing predictions count as 0."""
    from rich.console import Console
    from rich.text import Text

    wanted = "" if card["threshold"] is None else f" >= {card['threshold']:g}"
    # Without soft_wrap rich would break lines at the width: nobody could grep or copy them.
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text.assemble((printable(card["name"]), "bold"), f", {card['metric']}{wanted}"))
    console.print(Text(_write_counts(card, counted=counted)))
    _print_table(card)
    for line in _list_problems(card):
        console.print(Text(line))


def _print_table(card: dict[str, Any]) -> None:
    """Print all items and each group. What does not fit a terminal is left out, intervals first; names are folded."""
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


def list_first(texts: Sequence[str]) -> str:
    """Return the first ten, and how many more there are."""
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return printable(", ".join(texts[:_SHOWN])) + more


def _decide_passed(result: EvaluationResult, threshold: float | None) -> bool | None:
    """Return whether a row passed: its own evaluator has the last word; what has no score did neither."""
    if result.score is None or threshold is None:
        return None
    # A metric of a plugin may have a detail of this name that means something else.
    own = result.details.get("passed") if "evaluator" in result.details else None
    return bool(own) if own is not None else result.score >= threshold


def _make_entry(item: BenchmarkItem, result: EvaluationResult, passed: bool | None) -> Entry:
    metadata = item.metadata or {}
    tags = metadata.get("tags")
    tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else ()
    return Entry(fields=groupable_fields(metadata), tags=tags, score=result.score, passed=passed)


def _write_counts(card: dict[str, Any], *, counted: bool) -> str:
    missing = f"{card['missing_predictions']:,} missing" + (" (counted as 0)" if counted else " (left out)")
    text = f"{card['evaluated_items']:,} of {card['total_items']:,} items scored, "
    text += f"{missing if card['missing_predictions'] else '0 missing'}, {card['failed_items']:,} failed"
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
    return f"{items:,}" if judged == items else f"{judged:,} of {items:,}"


def _format_percent(rate: float | None) -> str:
    return "-" if rate is None else f"{_format_number(rate, 100, 1)} %"


def _format_number(value: float | None, scale: float = 1, digits: int = 3) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _format_interval(ends: Sequence[float] | None, scale: float = 1, digits: int = 3) -> str:
    if ends is None:
        return "-"
    low, high = (_format_number(end, scale, digits) for end in ends)
    return f"[{low}, {high}]"


def _list_problems(card: dict[str, Any]) -> list[str]:
    lines = []
    if card["missing_ids"]:
        lines.append(f"missing: {list_first(card['missing_ids'])}")
    alike: dict[str, list[str]] = defaultdict(list)
    for each in card["failed"]:
        # Together: one broken endpoint fails a thousand items with one message.
        alike[each["error"]].append(each["item_id"])
    lines += [f"failed: {list_first(ids)}: {printable(error)}" for error, ids in [*alike.items()][:_SHOWN]]
    if len(alike) > _SHOWN:
        lines.append(f"failed: {sum(map(len, [*alike.values()][_SHOWN:])):,} more, with other errors")
    if "saved" in card:
        lines.append(f"saved: {card['saved']}")
    return [*lines, ""] if lines else lines


_USAGE = 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "evaluate",
        help="score a file of predictions against a dataset",
        description="Score predictions against the answers of a dataset. No agent runs; only metrics that ask a model "
        "do so. Exit status 0: every item was scored; 1: predictions are missing, items could not be scored, rows "
        "could not be loaded, or a metric is below --fail-under; 2: wrong usage.",
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="a .jsonl or .json of questions, or a dataset.yaml")
    parser.add_argument(
        "predictions", type=Path, metavar="PREDICTIONS", help="JSON or JSONL: {id: prediction}, or a list in item order"
    )
    parser.add_argument(
        "--metric",
        type=_parse_metric,
        action="append",
        default=[],
        metavar="NAME[>=T]",
        help="score with this metric (repeatable); an item passes from T on. Default: what the dataset asks for, else "
        "exact_match>=1",
    )
    parser.add_argument("--compat", choices=("v1",), help="use the original benchmark's definitions")
    parser.add_argument(
        "--missing",
        choices=("zero", "skip"),
        default="zero",
        help="zero: an item without a prediction counts as 0 (default); skip: it is left out",
    )
    parser.add_argument("--model", metavar="MODEL", help="the model that metrics such as llm_judgement ask")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.json",
        help="save every item's result; with several metrics one file for each, FILE.METRIC.json",
    )
    parser.add_argument(
        "--fail-under",
        type=_parse_fraction,
        metavar="FRACTION",
        help="fail where the pass rate, or without a threshold the mean score, is below this",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of tables")


def run(args: argparse.Namespace) -> int:
    """Print a table for each metric; problems of the input go to stderr."""
    for path in (args.data, args.predictions):
        if not path.is_file():
            return _refuse(f"{path}: {_describe_missing_file(path)}")
    if args.output is not None and args.output.is_dir():
        return _refuse(f"--output: found the folder {args.output}, expected a file to write")
    from pytest_agentbench.benchmark.benchmark import Benchmark, BenchmarkWarning
    from pytest_agentbench.sources.predictions import read_predictions

    predictions = read_predictions(args.predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BenchmarkWarning)  # what they say is told below, and in full
        benchmark = Benchmark(args.data)
        if isinstance(predictions, list):
            _require_file_order(benchmark, args.predictions)
        specs = args.metric or list(benchmark.metrics)
        if problem := _find_metric_problem(specs, benchmark):
            return _refuse(problem)
        for error in benchmark.load_errors:
            print(error, file=sys.stderr)
        if args.model and not any(_asks_model(benchmark, spec) for spec in specs):
            print("agentbench evaluate: warning: --model: no metric here asks a model", file=sys.stderr)
        cards = [_evaluate_metric(benchmark, spec, predictions, args, alone=len(specs) == 1) for spec in specs]
    if unmatched := benchmark.unmatched_ids:
        found = f"{args.predictions}: warning: found ids that no item has: {list_first(unmatched)}"
        print(found, file=sys.stderr)
    below = [card for card in cards if _is_below(card, args.fail_under)]
    if args.json:
        inputs = {"load_errors": benchmark.load_errors, "unmatched_ids": unmatched}
        print(json.dumps({**inputs, "metrics": cards}, indent=2, ensure_ascii=False, default=str))
    else:
        _print_scorecards(cards, below, args)
    incomplete = any(card["failed"] or (card["missing_ids"] and args.missing == "zero") for card in cards)
    unsaved = args.output is not None and any("saved" not in card for card in cards)
    return 1 if benchmark.load_errors or incomplete or below or unsaved else 0


def _evaluate_metric(
    benchmark: Benchmark, spec: MetricSpec, predictions: Any, args: argparse.Namespace, *, alone: bool
) -> dict[str, Any]:
    """Return the scorecard of one metric, after saving its results where that is asked for."""
    from pytest_agentbench.errors import ConfigError, InfrastructureError
    from pytest_agentbench.store.files import slug

    model = {"model": args.model} if args.model and _asks_model(benchmark, spec) else {}
    options = {"missing": args.missing, "compat": args.compat, **model}
    with _show_progress(spec.name) as progress:
        try:
            results = benchmark.evaluate(predictions, spec, progress=progress, **options)
        except ConfigError as error:
            raise ConfigError(f"{args.predictions}: {error}") from error
    card = scorecard(spec, benchmark.items, results, benchmark.get_summary())
    if args.output is not None:
        path = args.output if alone else args.output.with_suffix(f".{slug(spec.name)}{args.output.suffix}")
        try:
            benchmark.save_results(path)
            card["saved"] = str(path)
        except InfrastructureError as error:
            print(error, file=sys.stderr)
    return card


def _asks_model(benchmark: Benchmark, spec: MetricSpec) -> bool:
    from pytest_agentbench.metrics.registry import asks_model

    return asks_model(benchmark._get_metric_function(spec.name))


def _print_scorecards(cards: list[dict[str, Any]], below: list[dict[str, Any]], args: argparse.Namespace) -> None:

    for card in cards:
        print_scorecard(card, counted=args.missing == "zero")
    for card in below:
        what = "mean score" if card["threshold"] is None else "pass rate"
        value = _find_gated_rate(card)
        found = "unknown" if value is None else f"{value:.4g}"
        print(f"FAILED: {card['metric']}: the {what} is {found}, --fail-under asks for {args.fail_under:g}")


def _is_below(card: dict[str, Any], fail_under: float | None) -> bool:
    value = _find_gated_rate(card)
    # Unknown is below: a gate that nothing was measured for must not open.
    return fail_under is not None and (value is None or value < fail_under)


def _find_gated_rate(card: dict[str, Any]) -> float | None:
    """Return the rate that --fail-under looks at."""
    value: float | None = card["average_score"] if card["threshold"] is None else card["pass_rate"]
    return value


def _find_metric_problem(specs: list[MetricSpec], benchmark: Benchmark) -> str | None:
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.metrics.registry import missing_extra

    for at, spec in enumerate(specs):
        try:
            benchmark._get_metric_function(spec.name)
        except ConfigError as error:
            return f"--metric: {error}"
        if (lacking := missing_extra(spec.name, spec.compat)) is not None:
            return f"--metric: {lacking}"
        if any(other.name == spec.name for other in specs[:at]):
            return f"--metric: found {spec.name} twice, expected each metric once"
    return None


def _require_file_order(benchmark: Benchmark, predictions: Path) -> None:
    from pytest_agentbench.errors import ConfigError

    descriptor = benchmark.dataset.descriptor if benchmark.dataset else None
    # A list has no ids: whether it was made before or after shuffling cannot be told.
    if descriptor is not None and descriptor.shuffle_seed is not None:
        raise ConfigError(
            f"{predictions}: a list of predictions answers rows in file order, but the dataset has a shuffle_seed; "
            "name predictions by id instead: {item id: prediction}"
        )


@contextmanager
def _show_progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    # On stderr, and gone at its end: stdout is for scorecards and --json.
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _parse_metric(text: str) -> MetricSpec:
    from pytest_agentbench.options import parse_metric
    from pytest_agentbench.records.case import MetricSpec

    name, threshold = parse_metric(text)
    return MetricSpec(name=name, threshold=threshold if ">=" in text else None)


def _parse_fraction(text: str) -> float:
    from pytest_agentbench.options import parse_fraction

    return parse_fraction(text)


def _describe_missing_file(path: Path) -> str:
    if not path.exists():
        return "there is no such file"
    return "found a folder, expected a file" if path.is_dir() else "found no regular file, expected one"


def _refuse(message: str) -> int:
    print(f"agentbench evaluate: {message}", file=sys.stderr)
    return _USAGE
