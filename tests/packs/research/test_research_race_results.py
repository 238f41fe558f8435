"""Rows of RACE's results, their means and their text."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.race import race_details, race_row
from pytest_agentbench.packs.research.race_judging import Race, RaceJudged, Scored
from pytest_agentbench.packs.research.race_runs import (
    Run,
    means_over_runs,
    race_means,
    result_text,
    run_difference,
)
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS
from pytest_agentbench.packs.research.scores import LABELS, RaceRow

DIMENSIONS = dict(zip(RACE_DIMENSIONS, (0.1, 0.2, 0.3, 0.4), strict=True))


def judged(overall: float | None = 0.55, sd: float | None = None, reference: float | None = 4.0) -> RaceJudged:
    reply = {name: (Scored(f"{name} a", 6.0, reference, "So."),) for name in RACE_DIMENSIONS}
    draw = Race(overall, dict(DIMENSIONS), 0.35, 5.0, 4.0)
    return RaceJudged(overall, dict(DIMENSIONS), 0.35, sd, (draw,), (reply,))


def test_a_row_has_all_scores_and_its_language_if_the_prompt_suggests_another() -> None:
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


def test_details_have_the_replies_of_each_draw() -> None:
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


def run(*scores: float, name: str = "a") -> Run:
    rows = (
        RaceRow(id=n, prompt=f"prompt {n}", overall_score=score, **dict.fromkeys(RACE_DIMENSIONS, score / 2))
        for n, score in enumerate(scores)
    )
    return Run(Path(name), tuple(rows))


def test_means_and_sample_deviations_over_runs() -> None:
    means, deviations = means_over_runs([run(0.2, 0.4), run(0.4, 0.6), run(0.5, 0.9)])
    assert means["overall_score"] == pytest.approx(0.5)
    assert deviations["overall_score"] == pytest.approx(0.2)  # of 0.3, 0.5 and 0.7, by n - 1
    assert (means["insight"], deviations["insight"]) == pytest.approx((0.25, 0.1))
    means, deviations = means_over_runs([run(0.2), run()])
    assert (means["insight"], deviations["insight"]) == (0.1, None)


def test_two_runs_are_paired_by_task() -> None:
    first, second = run(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.1), run(0.6, 0.6, 0.6, 0.6, 0.6, 0.6)
    difference = run_difference(first, second)
    assert difference is not None
    assert (difference.tasks, difference.test) == (6, "exact sign flip")
    assert (difference.difference, difference.p_value) == pytest.approx((0.1, 2 / 64))
    turned = run_difference(Run(second.file, second.rows[::-1]), first)
    assert turned is not None
    assert (turned.difference, turned.p_value) == (-difference.difference, difference.p_value)
    assert run_difference(first, run()) is None


def test_a_difference_with_its_interval() -> None:
    difference = run_difference(run(*[0.5] * 8), run(*(0.51 + 0.01 * n for n in range(8))))
    assert difference is not None
    assert difference.ci95 is not None
    assert 0 < difference.ci95[0] < difference.difference < difference.ci95[1]
    assert str(difference).startswith(f"+0.0450, 95 % interval {difference.ci95[0]:+.4f} to ")
    assert str(difference).endswith(", p = 0.0078 (exact sign flip, 8 tasks)")
