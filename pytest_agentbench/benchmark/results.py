"""What an evaluation finds: one result for each item, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

Prediction = str | tuple[str, ...] | None
"""A text, several (one per repetition), or None where there is none."""


@dataclass
class EvaluationResult:
    """How one prediction compares with its item's answer (seed 001).

    `score` is 0-1, None for what could not be scored: `details["error"]` then says why, or `details["missing"]` is
    true. A missing prediction that counts as 0 has both a score and `details["missing"]`.
    """

    item_id: str
    question: str
    ground_truth: str
    prediction: Prediction
    score: float | None
    metric_name: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def missing(self) -> bool:
        """Whether there was no prediction."""
        return bool(self.details.get("missing"))

    @property
    def failed(self) -> bool:
        """Whether the item could not be scored; a missing prediction is no such item."""
        return self.score is None and not self.missing

    @property
    def error(self) -> str | None:
        """Why the item could not be scored."""
        return self.details.get("error") if self.failed else None


def summarize(
    name: str, description: str, total_items: int, metric: str | None, results: Sequence[EvaluationResult]
) -> dict[str, Any]:
    """The summary of an evaluation; averages, extremes and counts of what has no score are None or left out.

    `evaluated_items` + `missing_predictions` + `failed_items` is the number of results. `agreement`, the mean of what
    judged metrics report, is there only where one does.
    """
    scores = [result.score for result in results if result.score is not None]
    missing = sum(result.missing for result in results)
    failed = sum(result.failed for result in results)
    summary: dict[str, Any] = {
        "name": name,
        "description": description,
        "total_items": total_items,
        "evaluated_items": len(results) - missing - failed,
        "metric": metric,
        "average_score": fsum(scores) / len(scores) if scores else None,
        "max_score": max(scores, default=None),
        "min_score": min(scores, default=None),
        "perfect_matches": sum(score == 1.0 for score in scores),
        "missing_predictions": missing,
        "failed_items": failed,
    }
    agreements = [result.details["agreement"] for result in results if _agrees(result)]
    if agreements:
        summary["agreement"] = fsum(agreements) / len(agreements)
    return summary


def _agrees(result: EvaluationResult) -> bool:
    return isinstance(result.details.get("agreement"), (int, float))
