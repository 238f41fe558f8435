"""Stage interaction: how an agent worked with the web, from recorded values of its reports."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import Annotations
from pytest_agentbench.packs.research.arithmetic import (
    Expert,
    Interaction,
    compat_expert,
    compat_interaction,
    compat_success_rate,
    cost_saving,
    interaction_efficiency,
    interaction_strategy,
    task_of,
    time_saving_hours,
    versus_expert,
)
from pytest_agentbench.packs.research.commands import (
    RESULTS,
    add_compat,
    add_config,
    add_part_parser,
    add_rows,
    add_tasks,
)
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.inputs import (
    input_rows,
    make_report,
    read_tasks,
    require_value,
    run_part,
    score_outcomes,
)
from pytest_agentbench.packs.research.records import NotNegative, Report, ReportRow, Share
from pytest_agentbench.packs.research.scores import InteractionScore
from pytest_agentbench.packs.research.stages import PART_STAGES
from pytest_agentbench.records.base import Record

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.grading import Grading, Metrics
    from pytest_agentbench.packs.research.inputs import Tasks
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


_Satisfaction = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]


class _Part(Record):
    # Fields of others are ignored, and pydantic is not to warn of `model_name`, which is the original's word.
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


M = TypeVar("M", bound=_Part)


class _Timing(_Part):
    total_duration_seconds: NotNegative | None = None
    thinking_time_seconds: NotNegative | None = None
    first_response_time_seconds: NotNegative | None = None


class _Tokens(_Part):
    total_input_tokens: NotNegative | None = None
    total_output_tokens: NotNegative | None = None
    model_name: str | None = None
    estimated_cost_usd: NotNegative | None = None


class _Performance(_Part):
    automation_rate: Share | None = None
    error_rate: Share | None = None
    efficiency_score: Share | None = None
    retry_count: NotNegative | None = None


class _ToolCall(_Part):
    call_count: NotNegative = 1
    success_rate: Share | None = None


class _Feedback(_Part):
    satisfaction_rating: _Satisfaction | None = None
    interruptions: NotNegative | None = None


class _Details(_Part):
    tool_calls: tuple[_ToolCall, ...] | None = None
    search_queries: tuple[Any, ...] | None = None
    user_feedback: _Feedback = Field(default_factory=_Feedback)


class _Interactions(_Part):
    timing: _Timing = Field(default_factory=_Timing)
    token_usage: _Tokens = Field(default_factory=_Tokens)
    performance_metrics: _Performance = Field(default_factory=_Performance)
    interaction_details: _Details = Field(default_factory=_Details)


class _Length(_Part):
    word_count: NotNegative | None = None
    citation_count: NotNegative | None = None


class _Coverage(_Part):
    sources_used: NotNegative | None = None
    coverage_completeness: Share | None = None


class _Quality(_Part):
    content_length: _Length = Field(default_factory=_Length)
    information_coverage: _Coverage = Field(default_factory=_Coverage)


class _TaskMetadata(_Part):
    title: str = ""
    task_type: str | None = None


class Recorded(_Part):
    """Sections of a report's row besides the seed's `execution_metrics`; other fields of the row are ignored."""

    task_metadata: _TaskMetadata = Field(default_factory=_TaskMetadata)
    interaction_metrics: _Interactions | None = None
    quality_metrics: _Quality = Field(default_factory=_Quality)


class _Flat(_Part):
    """Fields of `execution_metrics` besides the seed's, under the names in results."""

    thinking_time_seconds: NotNegative | None = None
    first_response_time_seconds: NotNegative | None = None
    error_rate: Share | None = None
    efficiency_score: Share | None = None
    retry_count: NotNegative | None = None
    search_queries_count: NotNegative | None = None
    successful_tool_rate: Share | None = None
    coverage_completeness: Share | None = None
    user_satisfaction_rating: _Satisfaction | None = None
    user_interruptions: NotNegative | None = None


def interaction_of(
    report: Report,
    annotations: Annotations | None,
    domain: str | None,
    level: int | str | None,
    config: PoetConfig,
    row: Mapping[str, Any],
    *,
    compat: bool = False,
) -> InteractionScore:
    """Return a report's recorded values, with the derived ones. `row` has the further fields of the report's row.

    Without annotations, domain or level nothing is compared with an expert. Raises ConfigError for unknown ones,
    and for impossible recorded values. `compat` fills in the original's estimates.
    """
    sections, recorded = _checked(Recorded, row, ""), report.metrics.model_extra or {}
    expert = None
    if compat:
        expert = compat_expert(annotations, domain, level, sections.task_metadata.task_type)
    # Without an expert the rest is scored anyway: this stage compares if it can.
    elif annotations is not None and domain is not None and level is not None:
        expert = task_of(annotations, config, domain, level).expert
    task = _interaction(report, sections, _checked(_Flat, recorded, "execution_metrics."), expert, compat=compat)
    if compat:
        measured = sections.interaction_metrics is not None
        task = compat_interaction(task, report.prompt, report.article, measured=measured)
    elif task.model_name is None:
        # Not in compat mode: the original's estimates name another model.
        task = replace(task, model_name=report.model)
    return _score(str(report.id), sections.task_metadata.title, task)


def _interaction(
    report: Report, recorded: Recorded, flat: _Flat, expert: Expert | None, *, compat: bool
) -> Interaction:
    """Return the recorded values from any of their places."""
    metrics, usage = report.metrics, report.metrics.token_usage
    more = recorded.interaction_metrics or _Interactions()
    timing, tokens, performance, details = (
        more.timing,
        more.token_usage,
        more.performance_metrics,
        more.interaction_details,
    )
    length, coverage = recorded.quality_metrics.content_length, recorded.quality_metrics.information_coverage
    expert_hours, expert_rate = (None, None) if expert is None else (expert.hours, expert.hourly_rate_usd)
    # A call of the original's may represent several (`call_count`).
    calls = None if details.tool_calls is None else sum(call.call_count for call in details.tool_calls)
    queries = None if details.search_queries is None else len(details.search_queries)
    if compat:
        success = compat_success_rate([call.success_rate for call in details.tool_calls or ()])
    else:
        success = _success(details.tool_calls or ())
    return Interaction(
        # Values of `execution_metrics` come first, because all other stages use them.
        total_duration_seconds=_first(metrics.total_duration_seconds, timing.total_duration_seconds),
        thinking_time_seconds=_first(flat.thinking_time_seconds, timing.thinking_time_seconds),
        first_response_time_seconds=_first(flat.first_response_time_seconds, timing.first_response_time_seconds),
        total_input_tokens=_first(usage.input_tokens, tokens.total_input_tokens),
        total_output_tokens=_first(usage.output_tokens, tokens.total_output_tokens),
        model_name=tokens.model_name,
        estimated_cost_usd=_first(usage.total_cost_usd, tokens.estimated_cost_usd),
        automation_rate=_first(metrics.automation_level, performance.automation_rate),
        error_rate=_first(flat.error_rate, performance.error_rate),
        efficiency_score=_first(flat.efficiency_score, performance.efficiency_score),
        retry_count=_first(flat.retry_count, performance.retry_count),
        tool_calls_count=_first(metrics.tool_calls_count, calls),
        search_queries_count=_first(flat.search_queries_count, queries),
        successful_tool_rate=_first(flat.successful_tool_rate, success),
        word_count=_first(metrics.word_count, length.word_count),
        citation_count=_first(metrics.citation_count, length.citation_count),
        sources_used=_first(metrics.sources_used, coverage.sources_used),
        coverage_completeness=_first(flat.coverage_completeness, coverage.coverage_completeness),
        user_satisfaction_rating=_first(flat.user_satisfaction_rating, details.user_feedback.satisfaction_rating),
        user_interruptions=_first(flat.user_interruptions, details.user_feedback.interruptions),
        expert_time_hours=expert_hours,
        expert_hourly_rate_usd=expert_rate,
    )


def _success(calls: tuple[_ToolCall, ...]) -> float | None:
    """Return the share of successful calls, or None without calls, or if one has no result."""
    total = sum(call.call_count for call in calls)
    rates = [call.success_rate for call in calls]
    # One call without a recorded result makes the rate unknown.
    if not total or None in rates:
        return None
    return sum((call.success_rate or 0.0) * call.call_count for call in calls) / total


def _score(task_id: str, title: str, task: Interaction) -> InteractionScore:
    efficiency = interaction_efficiency(task)
    saved_hours, saved_usd, versus = time_saving_hours(task), cost_saving(task), versus_expert(task)
    seconds = task.total_duration_seconds
    tokens = (task.total_input_tokens, task.total_output_tokens)
    missing = tuple(field.name for field in fields(task) if getattr(task, field.name) is None)
    compared = {"time_savings_hours": saved_hours, "cost_saving_usd": saved_usd, "efficiency_vs_expert": versus}
    return InteractionScore(
        metrics={"task_id": task_id, "task_title": title, **asdict(task), **compared},
        # asdict leaves properties out.
        efficiency={**asdict(efficiency), "overall_efficiency": efficiency.overall_efficiency},
        strategic=asdict(interaction_strategy(task)),
        summary={
            "basic_info": {
                "task_id": task_id,
                "model_name": task.model_name,
                "duration_minutes": None if seconds is None else round(seconds / 60, 2),
                "total_tokens": None if None in tokens else sum(count or 0 for count in tokens),
            },
            "efficiency": {
                "time_savings_hours": _rounded(saved_hours),
                "cost_saving_usd": _rounded(saved_usd),
                "automation_rate": task.automation_rate,
                "efficiency_vs_expert": _rounded(versus),
            },
            "quality": {
                "word_count": task.word_count,
                "sources_used": task.sources_used,
                "citation_count": task.citation_count,
                "user_satisfaction": task.user_satisfaction_rating,
                "coverage_completeness": task.coverage_completeness,
            },
            "performance": {
                "error_rate": task.error_rate,
                "retry_count": task.retry_count,
                "tool_calls_count": task.tool_calls_count,
                "successful_tool_rate": task.successful_tool_rate,
            },
        },
        valid=not missing,
        missing=missing,
    )


def _checked(form: type[M], data: Mapping[str, Any], prefix: str) -> M:
    try:
        return form.model_validate(data)
    except ValidationError as error:
        problems = (
            f"{prefix}{'.'.join(map(str, problem['loc']))}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
            for problem in error.errors(include_url=False)
        )
        # The row itself was read already, so that there is no line to name: the stage's file names the row.
        raise ConfigError("; ".join(problems)) from error


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 2)


REPORT = PART_STAGES["interaction"].rows


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser, files = add_part_parser(
        subparsers,
        "interaction",
        "Score the use of the web by an agent from the recorded values of each report; unrecorded "
        f"values are null. Writes {REPORT}; asks no model. Exit status 0: every row could be read; 1: some could not; "
        "2: wrong usage.",
        reports="reports with execution_metrics (JSONL)",
        results=str(RESULTS),
    )
    add_tasks(files)
    add_config(files)
    add_compat(parser)
    add_rows(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    return run_part("interaction", args)


async def score_reports(call: Call, file: Path, output: Path) -> None:
    """Score the reports of a file. Raises ConfigError if a file cannot be read."""
    # The original's estimates have a separate expert for tasks without a domain.
    tasks = read_tasks(call, compat_defaults=False)
    rows = input_rows(call, file, ReportRow)

    async def score(number: int, row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        value = require_value(row)
        domain, level = _placed(tasks, value)
        interaction = interaction_of(
            make_report(value, file.stem),
            tasks.annotations,
            domain,
            level,
            call.config,
            value.model_extra or {},
            compat=call.args.compat,
        )
        return {"id": value.id, "prompt": value.prompt, **interaction.model_dump()}

    await score_outcomes(call, "interaction", file, output, rows, score)


def _placed(tasks: Tasks, row: ReportRow) -> tuple[str | None, int | str | None]:
    """Return the domain and complexity level, as far as known; the original has them below `task_metadata`."""
    task = row.model_copy(update={name: value for name, value in _metadata(row).items() if getattr(row, name) is None})
    if task.domain is None and task.topic is None and tasks.queries is None and tasks.defaults.domain is None:
        return None, task.complexity_level
    return tasks.domain_and_level(task)


def _metadata(row: ReportRow) -> dict[str, Any]:
    metadata = (row.model_extra or {}).get("task_metadata")
    if isinstance(metadata, dict):
        return {name: metadata.get(name) for name in ("domain", "complexity_level")}
    return {}


async def grade_report(grading: Grading) -> InteractionScore:
    """Return how the agent of one item worked with the web. Raises ConfigError."""
    task, row = grading.task, grading.material.row
    level, compat = task.complexity_level, grading.scoring.compat
    return interaction_of(grading.report, grading.annotations, task.domain, level, grading.config, row, compat=compat)


def list_metrics(grading: Grading) -> Metrics:
    """Yield the overall efficiency, with all others as its details."""
    web = grading.score("interaction")
    score = web.efficiency["overall_efficiency"]
    details: dict[str, Any] = {"efficiency": web.efficiency, "strategic": web.strategic}
    if score is None:
        details["reason"] = f"not recorded: {', '.join(web.missing)}"
    yield "interaction_efficiency", score, details


def keep_evidence(score: InteractionScore) -> Mapping[str, Any]:
    """Return nothing: the score follows from recorded values, which are stored with every report."""
    return {}
