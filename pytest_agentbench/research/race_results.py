"""Rows of `raw_results.jsonl`, their means, and `race_result.txt` (seed 003; DeepResearch Bench)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import fsum
from typing import Any, Self

from pydantic import model_validator

from pytest_agentbench.records import Language, QueryRow, RowId
from pytest_agentbench.records.research import Share
from pytest_agentbench.research.asking import Unscored
from pytest_agentbench.research.race_judging import RaceJudged
from pytest_agentbench.sources.research_rows import language_of

LABELS = {
    "comprehensiveness": "Comprehensiveness",
    "insight": "Insight",
    "instruction_following": "Instruction Following",
    "readability": "Readability",
    "overall_score": "Overall Score",
}
"""The scores of a row, with their names in race_result.txt, in its order."""


class RaceRow(QueryRow):
    """A row of raw_results.jsonl, scores 0-1; null where target and reference both have 0 points.

    `race_error` says why it has no scores, `article_digest` which article they are of (research/report.py).
    """

    comprehensiveness: Share | None = None
    insight: Share | None = None
    instruction_following: Share | None = None
    readability: Share | None = None
    overall_score: Share | None = None
    race_weighted_dims: Share | None = None
    race_sd: float | None = None
    race_error: str | None = None
    article_digest: str | None = None

    @model_validator(mode="after")
    def _has_scores(self) -> Self:
        missing = [name for name in LABELS if name not in self.model_fields_set]
        if self.race_error is None and missing:
            raise ValueError(f"found no {', '.join(missing)}, expected the scores, or race_error")
        return self

    @property
    def scored(self) -> Self:
        """The row itself. Raises Unscored where it has no score."""
        if self.race_error is not None:
            raise Unscored(self.race_error)
        if self.overall_score is None:
            raise Unscored("the article and the reference have 0 points both, so there is nothing to share")
        return self


def race_row(row_id: RowId, prompt: str, language: Language, judged: RaceJudged) -> RaceRow:
    """The row of a judged report; it names the language only where the prompt would not tell it.

    Raises Unscored where nothing can be shared.
    """
    spoken: dict[str, Any] = {} if language == language_of(prompt) else {"language": language}
    sd = {} if judged.sd is None else {"race_sd": judged.sd}
    return RaceRow(
        id=row_id,
        prompt=prompt,
        **judged.dimensions,
        overall_score=judged.overall,
        race_weighted_dims=judged.weighted_dimensions,
        **spoken,
        **sd,
    ).scored


def race_details(row_id: RowId, judged: RaceJudged) -> dict[str, Any]:
    """What the judge said in each draw of a report, as `{id, draws: [{overall_score, judge_details}]}`."""
    draws = [
        {
            "overall_score": result.overall,
            "judge_details": {name: [_entry(asdict(each)) for each in scores] for name, scores in said.items()},
        }
        for result, said in zip(judged.draws, judged.scored, strict=True)
    ]
    return {"id": row_id, "draws": draws}


def _entry(scored: Mapping[str, Any]) -> dict[str, Any]:
    said = {"criterion": scored["criterion"], "analysis": scored["analysis"]}
    if scored["reference"] is None:
        return {**said, "target_score": scored["target"]}
    return {**said, "article_1_score": scored["target"], "article_2_score": scored["reference"]}


def race_means(rows: Sequence[RaceRow]) -> dict[str, float | None]:
    """The mean of each score by its name, over the rows that have it; None where none has."""
    return {name: _mean(getattr(row, name) for row in rows) for name in LABELS}


def result_text(means: Mapping[str, float | None]) -> str:
    """race_result.txt: five lines with four decimals, `null` where nothing is scored."""
    said = {name: "null" if means[name] is None else f"{means[name]:.4f}" for name in LABELS}
    return "".join(f"{label}: {said[name]}\n" for name, label in LABELS.items())


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None
