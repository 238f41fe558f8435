"""Rows of RACE's results, their means and their text."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.race import race_details, race_means, race_row, result_text
from pytest_agentbench.packs.research.race_judging import Race, RaceJudged, Scored
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS
from pytest_agentbench.packs.research.scores import LABELS, RaceRow

DIMENSIONS = dict(zip(RACE_DIMENSIONS, (0.1, 0.2, 0.3, 0.4), strict=True))


def judged(overall: float | None = 0.55, sd: float | None = None, reference: float | None = 4.0) -> RaceJudged:
    said = {name: (Scored(f"{name} a", 6.0, reference, "So."),) for name in RACE_DIMENSIONS}
    draw = Race(overall, dict(DIMENSIONS), 0.35, 5.0, 4.0)
    return RaceJudged(overall, dict(DIMENSIONS), 0.35, sd, (draw,), (said,))


def test_a_row_has_all_scores_and_says_its_language_where_the_prompt_does_not() -> None:
    row = race_row(7, "Which port?", "en", judged(sd=0.05))
    assert row.model_dump(exclude_unset=True) == {
        "id": 7,
        "prompt": "Which port?",
        **DIMENSIONS,
        "overall_score": 0.55,
        "race_weighted_dims": 0.35,
        "race_sd": 0.05,
    }
    other = race_row(7, "Which port?", "zh", judged())
    assert other.model_dump(exclude_unset=True)["language"] == "zh"
    assert "race_sd" not in other.model_fields_set


def test_nothing_to_share_is_no_row() -> None:
    with pytest.raises(Unscored, match="0 points both"):
        race_row(7, "Which port?", "en", judged(overall=None))
    with pytest.raises(Unscored, match="down"):
        _ = RaceRow(id=1, prompt="p", race_error="down").scored
    with pytest.raises(ValidationError, match="found no readability, overall_score, expected the scores"):
        RaceRow(id=1, prompt="p", comprehensiveness=0.1, insight=0.2, instruction_following=0.3)


def test_details_are_what_was_said_in_each_draw() -> None:
    [draw] = race_details(7, judged())["draws"]
    assert draw["overall_score"] == 0.55
    assert draw["judge_details"]["insight"] == [
        {"criterion": "insight a", "analysis": "So.", "article_1_score": 6.0, "article_2_score": 4.0}
    ]
    [alone] = race_details(7, judged(reference=None))["draws"]
    assert alone["judge_details"]["insight"] == [{"criterion": "insight a", "analysis": "So.", "target_score": 6.0}]


def test_means_are_over_the_rows_that_have_the_score() -> None:
    rows = [race_row(n, "p", "en", judged(overall)) for n, overall in enumerate((0.5, 0.25))]
    failed = RaceRow(id=3, prompt="p", race_error="down")
    means = race_means([*rows, failed])
    assert means == {**{name: pytest.approx(value) for name, value in DIMENSIONS.items()}, "overall_score": 0.375}
    assert result_text(means).splitlines() == [
        "Comprehensiveness: 0.1000",
        "Insight: 0.2000",
        "Instruction Following: 0.3000",
        "Readability: 0.4000",
        "Overall Score: 0.3750",
    ]
    assert result_text(race_means([failed])) == "".join(f"{label}: null\n" for label in LABELS.values())
