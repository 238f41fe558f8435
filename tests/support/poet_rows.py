"""Rows of the business report as `agentbench research poet` writes them, for tests with many or odd ones."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.packs.research.business_report.figures import PoetRow
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS


def whole(task_id: int | str, score: float = 0.6, **fields: Any) -> PoetRow:
    """Return a report with every part; each of its scores is `score`."""
    return PoetRow.model_validate(
        {
            "task_id": task_id,
            "model_name": "gpt",
            "domain": "finance",
            "complexity_level": 3,
            "language": "en",
            "overall_poet_score": score,
            "efficiency_score": score,
            "quality_score": score,
            "strategic_score": score,
            "race_score": score,
            "fact_accuracy": score,
            "race_dimensions": dict.fromkeys(RACE_DIMENSIONS, score),
            "citations_supported": 3,
            "citations_unsupported": 1,
            "citations_unknown": 0,
            "cost_saving_usd": 99.5,
            "automation_rate": 0.9,
            "knowledge_units_created": 2,
            "knowledge_units_reused": 1,
            "hours": 0.25,
            "expert_hours": 2.5,
            "expert_cost_usd": 100.0,
            "time_saving": 0.9,
            "time_saving_hours": 2.25,
            "ai_cost_usd": 0.5,
            "input_tokens": 1000,
            "output_tokens": 500,
            **fields,
        }
    )


def without_facts(task_id: int | str, reason: str = "validate: no reply", **fields: Any) -> PoetRow:
    """Return a report whose citations could not be checked, so that it has no composite."""
    missing = ("overall_poet_score", "quality_score", "fact_accuracy")
    counts = ("citations_supported", "citations_unsupported", "citations_unknown")
    return whole(task_id, **{**dict.fromkeys((*missing, *counts)), "reasons": {"fact": reason}, **fields})
