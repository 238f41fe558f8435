"""A report's web interaction by hand: what was recorded, what follows from it, and what is estimated on request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import Annotations, ComplexityLevel, DomainExpert, TaskType
from pytest_agentbench.packs.research.arithmetic import (
    KNOWLEDGE_SCORES,
    STRATEGIC_SCORES,
    TASK_SCORES,
    Expert,
    Interaction,
    compat_efficiency,
    compat_expert,
    compat_success_rate,
    complexity_adaptability,
    interaction_efficiency,
    interaction_strategy,
    knowledge_creation_value,
    overall_strategic_score,
    strategic_value,
)
from pytest_agentbench.packs.research.config import PoetConfig, StrategicValueWeights
from pytest_agentbench.packs.research.interaction import interaction_of
from pytest_agentbench.packs.research.records import ExecutionMetrics, Report
from pytest_agentbench.packs.research.scores import InteractionScore

DETAILED = {
    "task_metadata": {"title": "Ports"},
    "interaction_metrics": {
        "timing": {"total_duration_seconds": 5400, "thinking_time_seconds": 20, "first_response_time_seconds": 3},
        "token_usage": {
            "total_input_tokens": 3000,
            "total_output_tokens": 1200,
            "model_name": "gpt-x",
            "estimated_cost_usd": 30,
        },
        "performance_metrics": {
            "automation_rate": 0.8,
            "error_rate": 0.25,
            "efficiency_score": 0.6,
            "retry_count": 2,
        },
        "interaction_details": {
            "tool_calls": [
                {"call_count": 3, "success_rate": 1.0},
                {"success_rate": 0.5},
                {"call_count": 4, "success_rate": 0.25},
            ],
            "search_queries": ["a", "b", "c"],
            "user_feedback": {"satisfaction_rating": 4, "interruptions": 1},
        },
    },
    "quality_metrics": {
        "content_length": {"word_count": 1000, "citation_count": 6},
        "information_coverage": {"sources_used": 4, "coverage_completeness": 0.75},
    },
}
FLAT = {
    "total_duration_seconds": 600,
    "token_usage": {"input_tokens": 10, "output_tokens": 20, "total_cost_usd": 5},
    "automation_level": 0.5,
    "tool_calls_count": 11,
    "word_count": 50,
    "citation_count": 7,
    "sources_used": 8,
    "thinking_time_seconds": 1,
    "first_response_time_seconds": 2,
    "error_rate": 0.125,
    "efficiency_score": 0.25,
    "retry_count": 9,
    "search_queries_count": 13,
    "successful_tool_rate": 0.375,
    "coverage_completeness": 0.625,
    "user_satisfaction_rating": 3,
    "user_interruptions": 12,
}
ANNOTATIONS = Annotations(
    folder=Path("annotations"),
    domains={"finance": DomainExpert(avg_hourly_rate_usd=60, avg_task_time_hours=1.0)},
    levels={4: ComplexityLevel(expert_time_multiplier=2.0, difficulty_score=4)},
    prices={},
    task_types={"survey": TaskType(expert_time_hours=6.0, complexity_level=3)},
)


def scored(
    row: Mapping[str, Any],
    metrics: Mapping[str, Any] | None = None,
    *,
    expert: bool = True,
    compat: bool = False,
    article: str = "One [1]. Two three [2].",
) -> InteractionScore:
    told = ExecutionMetrics.model_validate(metrics or {})
    report = Report(7, "research.7", "gpt", "Which port grew most of all?", article, "en", told)
    named = ("finance", 4) if expert else (None, None)
    return interaction_of(report, ANNOTATIONS, *named, PoetConfig(), row, compat=compat)


def test_detailed_records_are_in_the_metrics() -> None:
    score = scored(DETAILED)
    assert score.metrics == {
        "task_id": "7",
        "task_title": "Ports",
        "total_duration_seconds": 5400,
        "thinking_time_seconds": 20,
        "first_response_time_seconds": 3,
        "total_input_tokens": 3000,
        "total_output_tokens": 1200,
        "model_name": "gpt-x",
        "estimated_cost_usd": 30,
        "automation_rate": 0.8,
        "error_rate": 0.25,
        "efficiency_score": 0.6,
        "retry_count": 2,
        "tool_calls_count": 8,
        "search_queries_count": 3,
        "successful_tool_rate": pytest.approx((3 + 0.5 + 1) / 8),
        "word_count": 1000,
        "citation_count": 6,
        "sources_used": 4,
        "coverage_completeness": 0.75,
        "user_satisfaction_rating": 4,
        "user_interruptions": 1,
        "expert_time_hours": 2,
        "expert_hourly_rate_usd": 60,
        "time_savings_hours": 0.5,
        "cost_saving_usd": 90,
        "efficiency_vs_expert": 1,
    }
    assert (score.valid, score.missing) == (True, ())


def test_efficiency_and_summary_follow_from_detailed_records() -> None:
    """2 h in 1.5 h, 30 of 120 USD, (1 - 0.25) * 4 / 5."""
    score = scored(DETAILED)
    assert score.efficiency == pytest.approx(
        {
            "time_efficiency": 1,
            "cost_efficiency": 0.75,
            "automation_efficiency": 0.8,
            "quality_efficiency": 0.6,
            "overall_efficiency": (1 + 0.75 + 0.8 + 0.6) / 4,
        }
    )
    rate = 4.5 / 8
    assert score.strategic == pytest.approx(
        {
            "multi_step_reasoning_score": 8 * 2 / 5 + 20 * 3 / 60,
            "domain_expertise_score": 4 * 3 / 10 + 6 * 2 / 20,
            "synthesis_capability_score": 3.75,
            "independence_score": 0.8 * 0.75 * 5,
            "knowledge_extraction_score": 3 / 2 + 3 * rate,
            "knowledge_organization_score": 1000 * 3 / 5000 + 2 * 0.75,
            "knowledge_reuse_potential": 6 / 3,
            "knowledge_quality_score": 3,
            "created_knowledge_units": 10,
        }
    )
    assert score.summary["basic_info"] == {
        "task_id": "7",
        "model_name": "gpt-x",
        "duration_minutes": 90,
        "total_tokens": 4200,
    }
    assert score.summary["efficiency"] == {
        "time_savings_hours": 0.5,
        "cost_saving_usd": 90,
        "automation_rate": 0.8,
        "efficiency_vs_expert": 1,
    }
    assert score.summary["quality"] == {
        "word_count": 1000,
        "sources_used": 4,
        "citation_count": 6,
        "user_satisfaction": 4,
        "coverage_completeness": 0.75,
    }
    assert score.summary["performance"] == {
        "error_rate": 0.25,
        "retry_count": 2,
        "tool_calls_count": 8,
        "successful_tool_rate": rate,
    }


def test_metrics_of_the_execution_go_before_those_of_the_interaction() -> None:
    score = scored(DETAILED, FLAT)
    told = {name: value for name, value in FLAT.items() if name not in ("token_usage", "automation_level")}
    assert {name: score.metrics[name] for name in told} == told
    assert score.metrics["automation_rate"] == 0.5
    tokens = ("total_input_tokens", "total_output_tokens", "estimated_cost_usd")
    assert [score.metrics[name] for name in tokens] == [10, 20, 5]


def test_summaries_are_rounded_to_cents_and_hundredths() -> None:
    score = scored({}, {"total_duration_seconds": 12_345, "token_usage": {"total_cost_usd": 1.2345}})
    assert score.summary["basic_info"]["duration_minutes"] == 205.75
    assert score.summary["efficiency"]["cost_saving_usd"] == 118.77
    assert score.summary["efficiency"]["efficiency_vs_expert"] == 0.58  # 2 h of 3.429
    assert score.summary["efficiency"]["time_savings_hours"] == 0
    assert score.metrics["efficiency_vs_expert"] == pytest.approx(7200 / 12_345)


def test_unrecorded_metrics_are_none_and_listed_as_missing() -> None:
    score = scored({}, expert=False)
    assert score.metrics["model_name"] == "gpt"  # the report's own
    assert {name for name, value in score.metrics.items() if value is not None} == {
        "task_id", "task_title", "model_name"
    }  # fmt: skip
    assert not score.valid
    assert len(score.missing) == 21
    assert set(score.strategic.values()) == set(score.efficiency.values()) == {None}
    assert score.summary["basic_info"]["total_tokens"] is None
    assert score.summary["basic_info"]["duration_minutes"] is None


@pytest.mark.parametrize(
    ("calls", "rate"),
    [([], None), ([{"call_count": 0, "success_rate": 1.0}], None), ([{"call_count": 2}, {"success_rate": 1.0}], None)],
)
def test_the_success_rate_is_none_without_calls_or_with_unknown_rates(calls, rate) -> None:
    row = {"interaction_metrics": {"interaction_details": {"tool_calls": calls}}}
    score = scored(row)
    assert score.metrics["successful_tool_rate"] is rate
    assert score.metrics["tool_calls_count"] == sum(each.get("call_count", 1) for each in calls)


@pytest.mark.parametrize(
    ("row", "metrics", "said"),
    [
        ({"interaction_metrics": {"timing": {"thinking_time_seconds": -1}}}, {}, "interaction_metrics.timing.thinking"),
        ({}, {"error_rate": 1.5}, r"^execution_metrics\.error_rate: input should"),
        ({}, {"user_satisfaction_rating": 5.5, "error_rate": -1}, "error_rate.*; execution_metrics.user_satis"),
    ],
)
def test_values_that_cannot_be_are_named(row, metrics, said) -> None:
    with pytest.raises(ConfigError, match=said):
        scored(row, metrics)


def test_no_proxy_is_over_five() -> None:
    found = interaction_strategy(
        Interaction(
            tool_calls_count=100,
            thinking_time_seconds=1000,
            sources_used=100,
            citation_count=100,
            search_queries_count=100,
            successful_tool_rate=1,
            word_count=100_000,
            coverage_completeness=1,
            user_satisfaction_rating=5,
            automation_rate=1,
            error_rate=0,
        )
    )
    values = {name: getattr(found, name) for name in found.__slots__}
    assert values.pop("created_knowledge_units") == 200
    assert set(values.values()) == {5}


def test_an_expert_of_no_cost_leaves_no_share_of_it() -> None:
    task = Interaction(expert_time_hours=1, expert_hourly_rate_usd=0, estimated_cost_usd=0, total_duration_seconds=60)
    parts = interaction_efficiency(task)
    assert (
        parts.cost_efficiency,
        parts.time_efficiency,
        parts.overall_efficiency,
    ) == (None, 1, None)


# -- as the original has it -----------------------------------------------------------


def test_compat_estimates_unrecorded_values() -> None:
    """Words by 1.3: 6 asked are 7 tokens, 5 said are 6."""
    score = scored({}, compat=True)
    expected = {
        "total_duration_seconds": 60,
        "thinking_time_seconds": 6,
        "first_response_time_seconds": 5,
        "total_input_tokens": 7,
        "total_output_tokens": 6,
        "model_name": "estimated-model",
        "estimated_cost_usd": (0.003 * 7 + 0.015 * 6) / 1000,
        "automation_rate": 0.8,
        "error_rate": 0.05,
        "efficiency_score": 0.7,
        "retry_count": 0,
        "tool_calls_count": 5,
        "search_queries_count": 3,
        "successful_tool_rate": 0.9,
        "word_count": 5,
        "coverage_completeness": 0.75,
        "user_satisfaction_rating": 3.5,
        "user_interruptions": 0,
    }
    assert {name: score.metrics[name] for name in expected} == pytest.approx(expected)
    assert scored({}, {"total_duration_seconds": 90}, compat=True).metrics["thinking_time_seconds"] == 9


def test_the_original_makes_up_little_where_anything_was_recorded() -> None:
    score = scored({"interaction_metrics": {}}, compat=True)
    assert (score.metrics["first_response_time_seconds"], score.metrics["successful_tool_rate"]) == (0, 1)
    assert score.metrics["total_duration_seconds"] is score.metrics["model_name"] is None


def test_the_originals_expert() -> None:
    assert compat_expert(None, "finance", 4) == Expert(2, 100)
    assert compat_expert(ANNOTATIONS, "law", 4) == Expert(4, 100)
    assert compat_expert(ANNOTATIONS, "finance", 4) == Expert(2, 60)
    assert compat_expert(ANNOTATIONS, "finance", "4") == compat_expert(ANNOTATIONS, "finance", 9) == Expert(1, 60)
    assert compat_expert(ANNOTATIONS, None, None) == Expert(2, 100)


@pytest.mark.parametrize(
    ("domain", "level", "task_type", "expert"),
    [
        ("finance", 4, "survey", Expert(6, 60)),
        ("law", 4, "survey", Expert(6, 100)),
        (None, None, "survey", Expert(6, 100)),
        ("finance", 4, "weird", Expert(2, 60)),
        ("finance", 4, "", Expert(2, 60)),
        ("finance", 9, None, Expert(1, 60)),
    ],
)
def test_the_originals_expert_takes_the_hours_of_the_task_type(domain, level, task_type, expert) -> None:
    assert compat_expert(ANNOTATIONS, domain, level, task_type) == expert


def test_compat_reads_the_task_type_of_a_row_and_the_standard_formula_ignores_it() -> None:
    row = {"task_metadata": {"task_type": "survey"}}
    assert scored(row, compat=True).metrics["expert_time_hours"] == 6
    assert scored(row).metrics["expert_time_hours"] == 2


@pytest.mark.parametrize(
    ("rates", "mean"),
    [([], None), ([0.875], 0.875), ([1.0, 0.5], 0.75), ([1.0, 0.0, 0.5], 0.5), ([None, 0.5], 0.75), ([None], 1.0)],
)
def test_the_originals_success_rate_is_the_plain_mean(rates, mean) -> None:
    assert compat_success_rate(rates) == mean
    calls = [{"call_count": 7 - at, "success_rate": rate} for at, rate in enumerate(rates)]
    score = scored({"interaction_metrics": {"interaction_details": {"tool_calls": calls}}}, compat=True)
    assert score.metrics["successful_tool_rate"] == (1.0 if mean is None else mean)


@pytest.mark.parametrize(
    ("words", "seconds", "thinking"),
    [(0, 60, 6), (11, 60, 6), (119, 60, 6), (121, 60.5, 6.05), (500, 250, 25), (600, 300, 30), (700, 350, 30)],
)
def test_the_originals_estimate_of_time(words, seconds, thinking) -> None:
    score = scored({}, compat=True, article=" ".join(["word"] * words)).metrics
    assert [score["total_duration_seconds"], score["thinking_time_seconds"]] == pytest.approx([seconds, thinking])
    recorded = scored({}, {"total_duration_seconds": 400}, compat=True, article="word " * words).metrics
    assert (recorded["total_duration_seconds"], recorded["thinking_time_seconds"]) == (400, 30)


@pytest.mark.parametrize(
    ("article", "sources", "citations"),
    [
        ("plain", 1, 0),
        ("[1] http://a", 1, 1),
        ("[1][2][3]", 1, 3),
        ("[a](https://a) and [b](http://b)", 2, 2),
        ("[[x]] [3, 4] http http http", 3, 3),
        ("https://a https://a", 2, 0),
    ],
)
def test_the_originals_estimate_of_sources_and_citations(article, sources, citations) -> None:
    score = scored({}, compat=True, article=article).metrics
    assert (score["sources_used"], score["citation_count"]) == (sources, citations)


def test_the_originals_efficiency() -> None:
    """0.4 * 0.5 + 0.3 * 0.25 + 0.3 * 0.5, and half of the points for time without an expert's hours."""
    expert = Expert(2, 100)
    assert compat_efficiency(expert, hours=1, cost_saving_usd=50, automation=0.5) == pytest.approx(0.425)
    assert compat_efficiency(expert, hours=3, cost_saving_usd=-50, automation=None) == 0
    assert compat_efficiency(expert, hours=0, cost_saving_usd=500, automation=2) == 1
    assert compat_efficiency(Expert(0, 100), hours=1, cost_saving_usd=50, automation=1) == pytest.approx(0.2 + 0.3)


def test_the_originals_strategic_score() -> None:
    weights = (0.25, 0.20, 0.20, 0.15, 0.10, 0.05, 0.05, 0.0)
    for at, name in enumerate(STRATEGIC_SCORES):
        scores = {each: 5.0 if each == name else 1.0 for each in STRATEGIC_SCORES}
        assert overall_strategic_score(scores) == pytest.approx(1 + 4 * weights[at])


# -- strategic value --------------------------------------------------------------------


def test_the_strategic_value_by_hand() -> None:
    """0.6 * (2 + 3 + 4 + 5) / 20 + 0.4 * (1 + 1 + 2 + 4) / 20."""
    scores = dict(zip((*TASK_SCORES, *KNOWLEDGE_SCORES), (2, 3, 4, 5, 1, 1, 2, 4), strict=True))
    assert strategic_value(scores) == pytest.approx(0.42 + 0.16)
    assert strategic_value(
        scores, StrategicValueWeights(task_capability=0.5, knowledge_capability=0.5)
    ) == pytest.approx(0.35 + 0.2)
    assert knowledge_creation_value([0.5, 0.75]) == 1.25


@pytest.mark.parametrize(
    ("quality", "hours", "expected"), [(0.5, 0.5, 0.4), (0.5, 0.49, None), (None, 3, None), (0.0, 3, 0)]
)
def test_adaptability_is_quality_by_difficulty(quality, hours, expected) -> None:
    assert complexity_adaptability(quality, 4, hours) == expected
