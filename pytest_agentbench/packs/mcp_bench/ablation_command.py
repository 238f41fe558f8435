"""`agentbench mcp ablation`: the effect of shuffled prompts and averaging on judges (seed 004, 6.4, Table 7).

`human.jsonl` has people's agreement with the judges' scores, a line for each annotator, task and pipeline:

    {"annotator": "ann", "case_id": "bench.task_1", "pipeline": "shuffled", "agreement": 2}

`pipeline` is `plain` or `shuffled`; `agreement` is 0 (they disagree), 1 (in part) or 2 (they agree).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, ValidationError

from pytest_agentbench.bounded.json_files import read_items
from pytest_agentbench.cli.list import cases_below
from pytest_agentbench.cli.output import printable
from pytest_agentbench.cli.places import enclosing_root, require_existing
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.routes import missing_key, resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.options import parse_positive
from pytest_agentbench.packs.mcp_bench.ablation import (
    REQUESTS,
    AskedJudge,
    Judging,
    Pipeline,
    Scores,
    StoredTask,
    compute_cv_over_judges,
    compute_cv_over_shuffles,
    list_stored_tasks,
)
from pytest_agentbench.packs.mcp_bench.records import McpTask
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.records.case import Case
from pytest_agentbench.reports.table import line_up
from pytest_agentbench.sources.predictions import field_problem, refuse_file, valid_items
from pytest_agentbench.statistics.estimates import mean
from pytest_agentbench.terminal_text import count_text


class Rating(Record):
    """The agreement of one annotator with a pipeline's scores for a task."""

    annotator: Text
    case_id: Text
    pipeline: Literal["plain", "shuffled"]
    agreement: Annotated[StrictInt, Field(ge=0, le=2)]


def read_ratings(path: Path) -> list[Rating]:
    """Return all ratings. Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each."""
    ratings: dict[tuple[str, str, str], tuple[Rating, int]] = {}
    problems: list[str] = []
    for item in valid_items(path, read_items(path), problems):
        try:
            rating = Rating.model_validate(item.value)
        except ValidationError as error:
            problems += [f"{path}:{item.line}:1: {field_problem(detail)}" for detail in error.errors(include_url=False)]
            continue
        # A second rating would silently weigh double, so it is an error with both lines.
        key = (rating.annotator, rating.case_id, rating.pipeline)
        if key in ratings:
            problems.append(
                f"{path}:{item.line}:1: found a second rating of {rating.annotator} for {rating.case_id} "
                f"({rating.pipeline}), the first is in line {ratings[key][1]}; expected one"
            )
        ratings.setdefault(key, (rating, item.line))
    if problems:
        refuse_file(path, problems)
    if not ratings:
        raise ConfigError(f'{path}:1:1: found no rating, expected lines such as {{"annotator": "ann", "case_id": ...}}')
    return [rating for rating, _ in ratings.values()]


def group_agreements(ratings: Sequence[Rating], case_ids: Collection[str]) -> dict[Pipeline, list[int]]:
    """Return the agreements for these tasks by pipeline."""
    agreements: dict[Pipeline, list[int]] = defaultdict(list)
    for rating in ratings:
        if rating.case_id in case_ids:
            agreements[rating.pipeline].append(rating.agreement)
    return agreements


_PIPELINES: dict[Pipeline, str] = {
    "plain": "one order, one reply",
    "shuffled": "5 shuffled orders, mean",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "ablation",
        help="judge the same runs with and without shuffled prompts",
        description="Let several judges score stored runs of MCP tasks, once with the plain prompt and once with five "
        "shuffled prompts whose scores are averaged, and print the variation of the scores (Table 7 of MCP-Bench). "
        "Verdicts are stored in the output folder, so that the same call again costs nothing. Exit status 0: every run "
        "was scored; 1: some could not be scored; 2: wrong usage.",
    )
    parser.add_argument(
        "cases", nargs="*", type=Path, default=[Path()], metavar="CASES", help="task files or folders (default: .)"
    )
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="MODEL",
        help="a model that judges (repeatable); default: the judges of the evaluation profile",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="the evaluation profile with the judges' request options and the prompt's language",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="the folder of the runs (default: outputs)",
    )
    parser.add_argument(
        "--runs",
        type=parse_positive,
        metavar="N",
        help="judge only so many runs, of as many different tasks as possible",
    )
    parser.add_argument(
        "--human", type=Path, metavar="FILE", help="JSONL with people's agreement: annotator, case_id, pipeline, 0-2"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the number of requests, and make none")
    parser.add_argument("--json", action="store_true", help="print a JSON object with every score instead")


def run(args: argparse.Namespace) -> int:
    """Print the table; reasons why runs could not be scored go to stderr."""
    ratings = read_ratings(args.human) if args.human is not None else []
    cases = _find_tasks(args.cases)
    root = enclosing_root(cases[0].path)
    profile = EvaluationProfile.default() if args.profile is None else root.evaluation_profile(args.profile)
    judges = _resolve_judges(root, profile, args.judge)
    tasks = list_stored_tasks(cases, args.output)[: args.runs]
    if not tasks:
        return _fail(f"{args.output}: found no successful run of these tasks; run them first: pytest ... --model ID")
    judging = Judging(judges, profile, args.output)
    if args.dry_run:
        total = len(tasks) * len(judges) * REQUESTS
        missing = judging.count_missing(tasks)
        print(
            f"{count_text(len(tasks), 'run')} x {count_text(len(judges), 'judge')} x {REQUESTS} verdicts: "
            f"{count_text(missing, 'request')} to make, "
            f"{total - missing:,} verdicts are stored"
        )
        return 0
    scores = asyncio.run(_judge_tasks(judging, tasks))
    # Both rows of the table are about the same runs: those that every judge scored in both pipelines.
    counted = [run_scores for run_scores in scores if run_scores.complete(judges)]
    for run_scores in scores:
        for failure in run_scores.failures:
            print(f"{run_scores.task.case.case_id}: {printable(failure)}", file=sys.stderr)
    if not counted:
        return _fail("no run was scored by every judge in both pipelines")
    figures = _compute_figures(judging, counted, left_out=len(scores) - len(counted), ratings=ratings)
    if args.json:
        print(json.dumps(figures, indent=2, ensure_ascii=False))
    else:
        _print(figures)
    unmatched = len(ratings) - sum(pipeline["human_ratings"] for pipeline in figures["pipelines"].values())
    if unmatched:
        print(f"{args.human}: {count_text(unmatched, 'rating')} of other tasks left out", file=sys.stderr)
    if len(counted) == len(scores):
        return 0
    return 1


# -- the runs to judge, and the judges


def _find_tasks(paths: list[Path]) -> list[Case]:
    problems: list[str] = []
    cases = [case for case in cases_below(require_existing(paths), problems) if case.part(McpTask) is not None]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not cases:
        raise ConfigError(
            f"{', '.join(map(str, paths))}: found no MCP task, expected files of tasks (docs/mcp-bench.md)"
        )
    return cases


def _resolve_judges(root: ConfigRoot, profile: EvaluationProfile, names: Sequence[str]) -> list[AskedJudge]:
    """Return the judge models, each with its request options in the profile."""
    options = {judge.model: judge.options for judge in profile.judges if judge.type == CHAT_JUDGE and judge.model}
    model_ids = list(dict.fromkeys(names or options))
    if not model_ids:
        raise ConfigError("found no judge; name models with --judge, or a --profile with judges")
    judges = [AskedJudge(resolve_model(name, models=root.models()), options.get(name, {})) for name in model_ids]
    reasons = [reason for judge in judges if (reason := missing_key(judge.model)) is not None]
    if reasons:
        raise ConfigError("\n".join(reasons))
    return judges


async def _judge_tasks(judging: Judging, tasks: Sequence[StoredTask]) -> list[Scores]:
    scripts = Scripts()
    if any(judge.model.scripted for judge in judging.judges):
        for task in tasks:
            scripts.load_beside(task.case)
    endpoints = Endpoints(scripts=scripts)
    try:
        return await judging.scores(tasks, endpoints)
    finally:
        await endpoints.close()


# -- the figures


def _compute_figures(
    judging: Judging, scores: Sequence[Scores], *, left_out: int, ratings: Sequence[Rating]
) -> dict[str, Any]:
    """Return all printed figures. Unknown is None."""
    agreements_by_pipeline = group_agreements(ratings, {run_scores.task.case.case_id for run_scores in scores})
    pipelines = {}
    for pipeline in _PIPELINES:
        completions = [run_scores.by_pipeline[pipeline] for run_scores in scores]
        by_judge = compute_cv_over_shuffles(completions)
        agreements = agreements_by_pipeline.get(pipeline, [])
        pipelines[pipeline] = {
            "cv_over_judges_percent": compute_cv_over_judges(completions),
            "cv_over_shuffles_percent": mean(by_judge.values()),
            "cv_over_shuffles_percent_by_judge": by_judge,
            "human_agreement": mean(agreements),
            "human_ratings": len(agreements),
        }
    usage = judging.usage
    return {
        "runs": len(scores),
        "left_out": left_out,
        "judges": [judge.model.model_id for judge in judging.judges],
        "pipelines": pipelines,
        "verdicts": {"asked": judging.asked, "kept": judging.reused},
        "cost_usd": usage.cost_usd,
        "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
        "scores": list(map(_score_row, scores)),
    }


def _score_row(scores: Scores) -> dict[str, Any]:
    run = scores.task.run
    return {
        "case_id": run.case_id,
        "model_id": run.model.get("model_id"),
        "repetition": run.repetition,
        "task_completion": scores.by_pipeline,
    }


def _print(figures: Mapping[str, Any]) -> None:
    runs, judges = figures["runs"], figures["judges"]
    left_out = f" ({figures['left_out']:,} more could not be scored)" if figures["left_out"] else ""
    print(f"{count_text(runs, 'run')}{left_out}, judged by {', '.join(map(printable, judges))}\n")
    rows = [("pipeline", "CV over judges", "CV over shuffles", "human agreement")]
    rows += [
        _format_row(f"{pipeline}: {title}", figures["pipelines"][pipeline]) for pipeline, title in _PIPELINES.items()
    ]
    print("\n".join(line_up(rows, gap=3)), end="\n\n")
    for judge, cv in figures["pipelines"]["shuffled"]["cv_over_shuffles_percent_by_judge"].items():
        print(f"CV over the shuffles of {printable(judge)}: {_format_percent(cv)}")
    verdicts, cost = figures["verdicts"], "unknown"
    if figures["cost_usd"] is not None:
        cost = f"${figures['cost_usd']:.4f}"
    print(f"{count_text(verdicts['asked'], 'verdict')} asked for, {verdicts['kept']:,} stored before; cost {cost}")


def _format_row(name: str, figures: Mapping[str, Any]) -> tuple[str, str, str, str]:
    agreement = "-"
    if figures["human_agreement"] is not None:
        agreement = f"{figures['human_agreement']:.2f} of 2 ({count_text(figures['human_ratings'], 'rating')})"
    over_judges, over_shuffles = figures["cv_over_judges_percent"], figures["cv_over_shuffles_percent"]
    return name, _format_percent(over_judges), _format_percent(over_shuffles), agreement


def _format_percent(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} %"


def _fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
