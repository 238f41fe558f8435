"""Aggregates of a model's reports, means with their n, groups, totals, and several models side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import get_args

from pydantic import Field

from pytest_agentbench.models.ledger import Spent
from pytest_agentbench.packs.research.arithmetic import share_of
from pytest_agentbench.packs.research.business_report.figures import (
    FEWEST_FOR_INTERVAL,
    PART_FIELDS,
    Mean,
    Missing,
    PerformanceClass,
    PoetRow,
    Total,
    add_up,
    average,
    group_by_task,
    performance_class,
    read_thresholds,
)
from pytest_agentbench.packs.research.business_report.recommendations import Recommendation, recommendations
from pytest_agentbench.packs.research.config import PoetConfig, ReportingSettings
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, DefaultField, Language, RaceDimension, RowId
from pytest_agentbench.records.base import Record
from pytest_agentbench.statistics.estimates import mean_of, pass_rate_interval

SCORES = (
    "overall_poet_score",
    "efficiency_score",
    "quality_score",
    "strategic_score",
    "race_score",
    "fact_accuracy",
)
FURTHER = ("time_saving", "automation_rate", "complexity_adaptability", "supported_per_1000_words")


class Group(Record):
    """Reports of one domain, complexity level or language; `name` None: unknown."""

    name: str | None
    n_total: int
    n_scored: int
    scores: dict[str, Mean]
    cost_saving_usd: Total


class Ranked(Record):
    """A report by its composite."""

    task_id: RowId
    domain: str | None
    overall_poet_score: float


class Lack(Record):
    """Reason why a report lacks a part."""

    task_id: RowId
    reason: str


class Citations(Record):
    """Citations of the n reports whose citations were checked. `accuracy` is supported / (supported + unsupported)."""

    n: int
    supported: int
    unsupported: int
    unknown: int
    accuracy: float | None
    ci95: tuple[float, float] | None


class JudgeCost(Record):
    """Cost of judges at one stage; `unknown` requests had no cost, and `cost_usd` is the cost of the others."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unknown: int


class Costs(Record):
    """USD, hours and tokens: the agent's, the expert's, the savings, and the judges' cost in this call."""

    ai_usd: Total
    expert_usd: Total
    saving_usd: Total
    ai_hours: Total
    expert_hours: Total
    saved_hours: Total
    input_tokens: Total
    output_tokens: Total
    judge: dict[str, JudgeCost]


class PoetReport(Record):
    """Business report of one model. `n_total` = scored + failed + not reached; failed ones lack a part.

    `weights` are from the configuration; `race_score_max` and `fact_accuracy_max` are the divisors of RACE and
    citation accuracy. No report is both among the `top` and the `bottom` ones.
    `lost` are unreadable input rows, which count as failed. `classes` counts scored reports, `defaults` the
    reports whose domain or complexity level is a default.
    """

    model: str
    n_total: int
    n_scored: int
    n_failed: int
    n_not_reached: int
    performance_class: PerformanceClass | None
    classes: dict[PerformanceClass, int]
    thresholds: dict[str, float]
    weights: dict[str, float]
    means: dict[str, Mean]
    race_dimensions: dict[RaceDimension, Mean]
    citations: Citations
    by_domain: tuple[Group, ...]
    by_complexity_level: tuple[Group, ...]
    by_language: tuple[Group, ...]
    top: tuple[Ranked, ...]
    bottom: tuple[Ranked, ...]
    costs: Costs
    recommendations: tuple[Recommendation, ...]
    missing: dict[Missing, tuple[Lack, ...]]
    lost: tuple[str, ...]
    defaults: dict[str, int] = Field(default_factory=dict, exclude_if=lambda value: not value)


def poet_report(
    rows: Sequence[PoetRow],
    model: str,
    config: PoetConfig,
    spent: Mapping[str, Spent] | None = None,
    *,
    lost: Sequence[str] = (),
    not_reached: int = 0,
    language: Language = "en",
    race_max: float = 1.0,
) -> PoetReport:
    """Return the report on a model's rows. `spent` is the judges' cost for them by stage; `language` is for
    the texts of recommendations.

    `race_max` is the divisor of RACE in the quality score. `lost` contains the reason of each input row without a
    PoetRow; `not_reached` counts the rows after an interruption.
    """
    thresholds, tasks = read_thresholds(config), [row.task for row in rows]
    scored = [row for row in rows if row.overall_poet_score is not None]
    ranked = [Ranked(**row.model_dump(include=set(Ranked.model_fields))) for row in scored]
    # sort is stable: reports of one score stay in the order of the input, and reports of two calls can be compared.
    ranked.sort(key=attrgetter("overall_poet_score"), reverse=True)
    overall = average(row.overall_poet_score for row in rows)
    classes = [performance_class(report.overall_poet_score, thresholds) for report in ranked]
    top, bottom = _ends(len(ranked), config.reporting_settings)
    return PoetReport(
        model=model,
        n_total=len(rows) + len(lost) + not_reached,
        n_scored=len(scored),
        n_failed=len(rows) - len(scored) + len(lost),
        n_not_reached=not_reached,
        performance_class=None if overall.mean is None else performance_class(overall.mean, thresholds),
        classes={name: classes.count(name) for name in (*thresholds, "insufficient")},
        thresholds=dict(thresholds),
        weights={
            **_weights(config),
            "race_score_max": race_max,
            "fact_accuracy_max": config.evaluation_parameters.fact_accuracy_max,
        },
        means={name: average(map(attrgetter(name), rows), tasks) for name in (*SCORES, *FURTHER)},
        race_dimensions={
            name: average((row.race_dimensions.get(name) for row in rows), tasks) for name in RACE_DIMENSIONS
        },
        citations=_citations(rows),
        by_domain=_groups(rows, lambda row: row.domain or None),
        by_complexity_level=_groups(
            rows, lambda row: None if row.complexity_level is None else str(row.complexity_level)
        ),
        by_language=_groups(rows, lambda row: row.language),
        top=tuple(ranked[:top]),
        bottom=tuple(ranked[::-1][:bottom]),
        costs=_costs(rows, spent or {}),
        recommendations=recommendations(rows, thresholds, language),
        missing=_missing(rows),
        lost=tuple(lost),
        defaults=_count_defaults(rows),
    )


def _count_defaults(rows: Sequence[PoetRow]) -> dict[str, int]:
    """Return the reports with a default, by its field; nothing if there are none."""
    counts = Counter(name for row in rows for name in row.defaults)
    if counts:
        return {name: counts[name] for name in get_args(DefaultField)}
    return {}


def _weights(config: PoetConfig) -> dict[str, float]:
    sections = (config.poet_weights, config.quality_value_weights, config.efficiency_weights, config.strategic_weights)
    return {name: value for section in sections for name, value in section if isinstance(value, float)}


def _ends(n: int, reporting: ReportingSettings) -> tuple[int, int]:
    """Return how many of n reports are among the highest and the lowest: of a few each half has its own."""
    # No report is in both lists: of three, the highest two are the top ones and one is the bottom.
    top = min(reporting.top_tasks_count, max(n - n // 2, n - reporting.bottom_tasks_count))
    return top, min(reporting.bottom_tasks_count, n - top)


def _groups(rows: Sequence[PoetRow], key: Callable[[PoetRow], str | None]) -> tuple[Group, ...]:
    """Return the groups in the order of their names, numbers as such and first, those without one last."""
    groups: dict[str | None, list[PoetRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return tuple(_group(name, groups[name]) for name in sorted(groups, key=_order))


def _order(name: str | None) -> tuple[bool, bool, int, str]:
    number = name is not None and name.isascii() and name.isdigit()
    # Levels are texts here: by length and then by digits, 2 comes before 10.
    return name is None, not number, len(name or "") if number else 0, name or ""


def _group(name: str | None, rows: Sequence[PoetRow]) -> Group:
    tasks = [row.task for row in rows]
    return Group(
        name=name,
        n_total=len(rows),
        n_scored=sum(row.overall_poet_score is not None for row in rows),
        scores={score: average(map(attrgetter(score), rows), tasks) for score in SCORES},
        cost_saving_usd=add_up(row.cost_saving_usd for row in rows),
    )


def _citations(rows: Sequence[PoetRow]) -> Citations:
    checked = [row for row in rows if row.citations_known is not None]
    pairs = [(row.citations_supported or 0, row.citations_known or 0) for row in checked]
    supported, known = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    groups = group_by_task(zip((row.task for row in checked), pairs, strict=True))
    of_tasks = [(sum(pair[0] for pair in group), sum(pair[1] for pair in group)) for group in groups]
    # Citations of one report depend on each other, so the interval is over tasks and not over citations.
    enough = sum(pair[1] > 0 for pair in of_tasks) >= FEWEST_FOR_INTERVAL
    return Citations(
        n=len(checked),
        supported=supported,
        unsupported=known - supported,
        unknown=sum(row.citations_unknown or 0 for row in checked),
        accuracy=share_of(supported, known),
        ci95=pass_rate_interval(of_tasks) if enough else None,
    )


def _costs(rows: Sequence[PoetRow], spent: Mapping[str, Spent]) -> Costs:
    return Costs(
        ai_usd=add_up(row.ai_cost_usd for row in rows),
        expert_usd=add_up(row.expert_cost_usd for row in rows),
        saving_usd=add_up(row.cost_saving_usd for row in rows),
        ai_hours=add_up(row.hours for row in rows),
        expert_hours=add_up(row.expert_hours for row in rows),
        saved_hours=add_up(row.time_saving_hours for row in rows),
        input_tokens=add_up(row.input_tokens for row in rows),
        output_tokens=add_up(row.output_tokens for row in rows),
        judge={stage: _judge_cost(cost) for stage, cost in spent.items() if cost.requests},
    )


def _judge_cost(spent: Spent) -> JudgeCost:
    figures = {name: getattr(spent, name) for name in JudgeCost.model_fields}
    # If no request had a cost, 0 would be an invention.
    return JudgeCost(**{**figures, "cost_usd": spent.cost_usd if spent.unknown < spent.requests else None})


def _missing(rows: Sequence[PoetRow]) -> dict[Missing, tuple[Lack, ...]]:
    parts: tuple[Missing, ...] = ("report", *PART_FIELDS)
    lacks = {
        part: tuple(Lack(task_id=row.task_id, reason=row.reasons[part]) for row in rows if part in row.reasons)
        for part in parts
    }
    return {part: entries for part, entries in lacks.items() if entries}


@dataclass(frozen=True, slots=True)
class Scored:
    """A model's report with the rows that it is made of."""

    report: PoetReport
    rows: Sequence[PoetRow]


class Difference(Record):
    """A model's POET score less the best one's over the tasks that both have, with the paired interval."""

    model: str
    difference: Mean


class Comparison(Record):
    """`best` has the highest mean, over `n` reports: of models with at least five scored ones if there are any."""

    best: str
    n: int
    differences: tuple[Difference, ...]


def comparison(models: Sequence[Scored]) -> Comparison | None:
    """Return the distances of models from the best; None if fewer than two models have a score."""
    candidates = [model for model in models if model.report.n_scored]
    if len(candidates) < 2:
        return None
    # Models with at least five scores first: the best of two reports is luck.
    best = max(candidates, key=_rank)
    reference = _by_task(best)
    differences = []
    for model in (other for other in models if other is not best):
        own = _by_task(model)
        # Paired by task: how hard tasks are is the same for both, and drops out of the interval.
        values = [own[task] - reference[task] for task in own if task in reference]
        differences.append(Difference(model=model.report.model, difference=average(values)))
    return Comparison(best=best.report.model, n=best.report.n_scored, differences=tuple(differences))


def _rank(model: Scored) -> tuple[bool, float]:
    overall = model.report.means["overall_poet_score"]
    return overall.n >= FEWEST_FOR_INTERVAL, overall.mean or 0.0


def _by_task(model: Scored) -> dict[str, float]:
    """Return a model's score on each task, of several reports on one their mean."""
    scored = [(row.task, row.overall_poet_score) for row in model.rows if row.overall_poet_score is not None]
    # Several reports on a task count as one, or a model that repeats an easy one would be better for it.
    groups = group_by_task((task, (task, score)) for task, score in scored)
    return {group[0][0]: mean_of([score for _, score in group]) for group in groups}
