"""Stage efficiency: a report's time and cost against an expert's."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.packs.research.annotations import Annotations
from pytest_agentbench.packs.research.arithmetic import (
    Expert,
    compat_efficiency,
    efficiency,
    task_of,
)
from pytest_agentbench.packs.research.commands import (
    add,
    add_compat,
    add_config,
    add_part_parser,
    add_results,
    add_rows,
    add_tasks,
)
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.inputs import (
    Incomplete,
    input_rows,
    make_report,
    read_tasks,
    require_annotations,
    require_value,
    run_part,
    score_outcomes,
)
from pytest_agentbench.packs.research.records import DefaultField, ExecutionMetrics, Report, ReportRow, TokenUsage
from pytest_agentbench.packs.research.results import StageResults
from pytest_agentbench.packs.research.scores import NO_QUALITY, EfficiencyScore, describe_score
from pytest_agentbench.packs.research.stages import PART_STAGES

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.grading import Grading, Metrics
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


def efficiency_of(
    report: Report,
    annotations: Annotations,
    domain: str,
    level: int | str | None,
    config: PoetConfig,
    *,
    priced_as: str | None = None,
    compat: bool = False,
    defaults: tuple[DefaultField, ...] = (),
) -> EfficiencyScore:
    """Return a report's efficiency against the expert of its domain and complexity level. Unrecorded data makes its
    part None.

    A report with tokens and without cost is priced as `priced_as`, else as its own model. Raises ConfigError for an
    unknown domain, level or model. `compat` scores as the original, which uses 0 for an unrecorded automation.
    `defaults` names which of domain and level is a default.
    """
    task = task_of(annotations, config, domain, level)
    metrics, weights = report.metrics, config.efficiency_weights
    # The recorded cost is the paid one: it includes discounts and paid tools, which prices by tokens do not.
    cost, source = ai_cost(metrics.token_usage, annotations, priced_as or report.model)
    hours, automation = metrics.hours, metrics.automation_level
    parts = efficiency(task.expert, hours=hours, cost_usd=cost, automation=automation, weights=weights)
    score = parts.score
    # The original scores a report without an automation, but not one without time or cost.
    if compat and hours is not None and parts.cost_saving_usd is not None:
        score = compat_efficiency(
            task.expert, hours=hours, cost_saving_usd=parts.cost_saving_usd, automation=automation, weights=weights
        )
    return EfficiencyScore(
        efficiency_score=score,
        time_saving=parts.time_saving,
        time_saving_hours=parts.time_saving_hours,
        cost_saving_usd=parts.cost_saving_usd,
        # As recorded, in compat mode too: there only the score takes a missing one for 0.
        automation_rate=automation,
        domain=task.domain,
        complexity_level=task.level,
        difficulty=task.difficulty,
        expert_hours=task.expert.hours,
        expert_cost_usd=task.expert.cost_usd,
        hours=hours,
        ai_cost_usd=cost,
        ai_cost=source,
        input_tokens=metrics.token_usage.input_tokens,
        output_tokens=metrics.token_usage.output_tokens,
        defaults=defaults,
        reasons=_reasons(metrics, task.expert, cost, scored=score is not None),
    )


def ai_cost(
    usage: TokenUsage, annotations: Annotations, model: str
) -> tuple[float | None, Literal["recorded", "priced"] | None]:
    """Return an agent's cost in USD, and its origin: recorded, or its tokens at the model's price.

    None if neither cost nor both numbers of tokens were recorded. Raises ConfigError for a model without a price.
    """
    if usage.total_cost_usd is not None:
        return usage.total_cost_usd, "recorded"
    if usage.input_tokens is None or usage.output_tokens is None:
        return None, None
    # Never a default price: an unknown model is an error that names the known ones.
    price = annotations.price(model)
    return (
        usage.input_tokens * price.input_price_per_1k + usage.output_tokens * price.output_price_per_1k
    ) / 1000, "priced"


def resource_efficiency(quality: float | None, usage: TokenUsage) -> float | None:
    """Return quality (0-1) for 1,000 tokens.

    None if the quality or a number of tokens is unknown, or there are none.
    """
    if quality is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    tokens = usage.input_tokens + usage.output_tokens
    if tokens:
        return 1000 * quality / tokens
    return None


def _reasons(metrics: ExecutionMetrics, expert: Expert, cost: float | None, *, scored: bool) -> dict[str, str]:
    reasons = {}
    if metrics.total_duration_seconds is None:
        reasons["time_saving"] = "execution_metrics.total_duration_seconds is missing"
    elif not expert.hours:
        reasons["time_saving"] = "the annotations' expert takes 0 h, of which nothing can be saved"
    if cost is None:
        usage = metrics.token_usage
        tokens = [name for name in ("input_tokens", "output_tokens") if getattr(usage, name) is None]
        reasons["cost_saving_usd"] = f"execution_metrics.token_usage has no total_cost_usd and no {' or '.join(tokens)}"
    if metrics.automation_level is None:
        reasons["automation_rate"] = "execution_metrics.automation_level is missing"
    if not scored:
        # Of the score alone: nothing is missing in the report, and `cost_saving_usd` itself is known.
        free = [] if expert.cost_usd else ["the annotations' expert costs 0 USD, of which nothing can be saved"]
        reasons["efficiency_score"] = "; ".join([*reasons.values(), *free])
    return reasons


_FIELDS = {
    "efficiency": "efficiency_score",
    "time_saving": "time_saving",
    "cost_saving_usd": "cost_saving_usd",
    "automation": "automation_rate",
}
"""Names of a score's fields, by metrics."""
REPORT = PART_STAGES["efficiency"].rows
_MEANS = (
    "efficiency_score",
    "time_saving",
    "time_saving_hours",
    "cost_saving_usd",
    "automation_rate",
    "resource_efficiency",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser, files = add_part_parser(
        subparsers,
        "efficiency",
        "Compare the time, cost and automation of reports with the time and cost of an expert of their "
        f"domain. Writes {REPORT}; asks no model. Exit status 0: every report is scored; 1: some are not; 2: wrong "
        "usage.",
        reports="reports with execution_metrics (JSONL)",
    )
    add_tasks(files)
    add_results(files)
    add_config(files)
    add_pricing(parser)
    add_compat(parser)
    add_rows(parser)


def add_pricing(parser: argparse._ActionsContainer) -> None:
    """Add the option for the price of tokens, for reports without a cost."""
    add(
        parser,
        "--model_pricing",
        metavar="NAME",
        help="price tokens as this model's of token_pricing_data.json (default: the name of the input)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    return run_part("efficiency", args)


async def score_reports(call: Call, file: Path, output: Path) -> None:
    """Score the reports of a file. Raises ConfigError if it, or an annotation file, cannot be read."""
    args, model = call.args, file.stem
    tasks = read_tasks(call)
    annotations, stages = require_annotations(tasks), StageResults(call, args.results_dir, model)
    rows = input_rows(call, file, ReportRow)

    async def score(number: int, row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        report = make_report(require_value(row), model)
        domain, level, defaults = tasks.place(require_value(row))
        efficiency_score = efficiency_of(
            report,
            annotations,
            domain,
            level,
            call.config,
            priced_as=args.model_pricing,
            compat=args.compat,
            defaults=defaults,
        )
        # Quality for tokens needs RACE and FACT: if these have not run yet, the stage prints that and scores
        # the rest.
        quality, why = stages.quality(require_value(row), compat=args.compat)
        per_token = resource_efficiency(quality, report.metrics.token_usage)
        value = {
            "id": report.id,
            "prompt": report.prompt,
            **efficiency_score.model_dump(),
            "resource_efficiency": per_token,
        }
        if per_token is None:
            why = why or "execution_metrics.token_usage has no numbers of tokens"
            value["reasons"] = {**efficiency_score.reasons, "resource_efficiency": why}
        if efficiency_score.missing is not None:
            # The row fails, and its file has all known values.
            raise Incomplete(efficiency_score.missing, value)
        return value

    await score_outcomes(call, "efficiency", file, output, rows, score, _MEANS)


async def grade_report(grading: Grading) -> EfficiencyScore:
    """Return the efficiency of one item's report against the expert of its task. Raises ConfigError."""
    task, annotations = grading.task, grading.annotations
    assert annotations is not None
    assert task.domain is not None
    level, compat = task.complexity_level, grading.scoring.compat
    return efficiency_of(
        grading.report, annotations, task.domain, level, grading.config, compat=compat, defaults=task.defaults
    )


def list_metrics(grading: Grading) -> Metrics:
    """Yield the efficiency, its parts, and the quality for 1,000 tokens."""
    work, row = grading.score("efficiency"), grading.score("poet")
    for name, field in _FIELDS.items():
        score = getattr(work, field)
        yield name, score, describe_score(score, work.reasons.get(field) or "not recorded")
    per_token = row.resource_efficiency
    why = NO_QUALITY if row.quality_score is None else "execution_metrics.token_usage has no numbers of tokens"
    yield "resource_efficiency", per_token, describe_score(per_token, why)


def keep_evidence(score: EfficiencyScore) -> Mapping[str, Any]:
    """Return nothing: the score follows from recorded values, which are stored with every report."""
    return {}
