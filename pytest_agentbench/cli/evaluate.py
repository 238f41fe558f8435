"""`agentbench evaluate DATA PREDICTIONS`: score answers that are there already; no agent runs."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.argument_types import parse_fraction
from pytest_agentbench.cli.output import list_first, refuse_usage
from pytest_agentbench.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from pytest_agentbench.benchmark.benchmark import Benchmark
    from pytest_agentbench.records.case import MetricSpec


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
        help="score with this metric (repeatable); an item passes from T on. Default: the dataset's metrics, else "
        "exact_match>=1",
    )
    parser.add_argument("--compat", choices=("v1", "v2"), help="use the original's definitions, or its rewrite's")
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
        type=parse_fraction,
        metavar="FRACTION",
        help="fail if the pass rate, or without a threshold the mean score, is below this",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of tables")


def run(args: argparse.Namespace) -> int:
    """Print a table for each metric; problems of the input go to stderr."""
    for path in (args.data, args.predictions):
        if not path.is_file():
            return refuse_usage("evaluate", f"{path}: {_describe_missing_file(path)}")
    if args.output is not None and args.output.is_dir():
        return refuse_usage("evaluate", f"--output: found the folder {args.output}, expected a file to write")
    from pytest_agentbench.benchmark.benchmark import Benchmark, BenchmarkWarning
    from pytest_agentbench.cli.scorecards import SHOWN
    from pytest_agentbench.sources.predictions import read_mapped_predictions, read_predictions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BenchmarkWarning)  # printed below, in full
        benchmark = Benchmark(args.data)
        descriptor = benchmark.dataset.descriptor if benchmark.dataset is not None else None
        predictions: dict[str, Any] | list[Any]
        if descriptor is not None and descriptor.predictions is not None:
            predictions = read_mapped_predictions(args.predictions, descriptor.predictions)
        else:
            predictions = read_predictions(args.predictions)
        if isinstance(predictions, list):
            _require_file_order(benchmark, args.predictions)
        specs = args.metric or list(benchmark.metrics)
        if not specs:
            message = "only a session can decide its rows by `verify`: pytest DATASET --agentbench-predictions FILE"
            return refuse_usage("evaluate", f"{args.data}: {message}")
        if problem := _find_metric_problem(specs, benchmark):
            return refuse_usage("evaluate", problem)
        for error in benchmark.load_errors:
            print(error, file=sys.stderr)
        if args.model and not any(_asks_model(benchmark, spec) for spec in specs):
            print("agentbench evaluate: warning: --model: no metric here asks a model", file=sys.stderr)
        cards = [_evaluate_metric(benchmark, spec, predictions, args, alone=len(specs) == 1) for spec in specs]
    if unmatched := benchmark.unmatched_ids:
        warning = f"{args.predictions}: warning: found ids that no item has: {list_first(unmatched, SHOWN)}"
        print(warning, file=sys.stderr)
    below = [card for card in cards if _is_below(card, args.fail_under)]
    if args.json:
        inputs = {"load_errors": benchmark.load_errors, "unmatched_ids": unmatched}
        print(json.dumps({**inputs, "metrics": cards}, indent=2, ensure_ascii=False, default=str))
    else:
        _print_scorecards(cards, below, args)
    incomplete = any(card["failed"] or (card["missing_ids"] and args.missing == "zero") for card in cards)
    unsaved = args.output is not None and any("saved" not in card for card in cards)
    return int(bool(benchmark.load_errors or incomplete or below or unsaved))


def _evaluate_metric(
    benchmark: Benchmark, spec: MetricSpec, predictions: Any, args: argparse.Namespace, *, alone: bool
) -> dict[str, Any]:
    """Return the scorecard of one metric, after saving its results where that is asked for."""
    from pytest_agentbench.bounded.folders import slug
    from pytest_agentbench.cli.scorecards import scorecard

    options = {"missing": args.missing, "compat": args.compat}
    if args.model and _asks_model(benchmark, spec):
        options["model"] = args.model
    with _show_progress(spec.name) as progress:
        try:
            results = benchmark.evaluate(predictions, spec, progress=progress, **options)
        except ConfigError as error:
            raise ConfigError(f"{args.predictions}: {error}") from error
    card = scorecard(spec, benchmark.items, results, benchmark.get_summary())
    if args.output is not None:
        path = args.output
        if not alone:
            path = path.with_suffix(f".{slug(spec.name)}{path.suffix}")
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
    from pytest_agentbench.cli.scorecards import print_scorecard

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

    descriptor = benchmark.dataset.descriptor if benchmark.dataset else None
    # A list has no ids, so it may be in the order before or after shuffling.
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


def _describe_missing_file(path: Path) -> str:
    if not path.exists():
        return "there is no such file"
    if path.is_dir():
        return "found a folder, expected a file"
    return "found no regular file, expected one"
