"""`agentbench research race`: what is asked anew, and numbers at their bounds."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.race_files import PROMPTS, WEIGHTS, criteria, lay_out, reports, row, write
from support.race_judge import RaceJudge

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research import race_judging
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

CRITERIA, REFERENCES = "data/criteria_data/criteria.jsonl", "data/reference/reference.jsonl"


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RaceJudge]:
    monkeypatch.chdir(tmp_path)
    lay_out()
    with RaceJudge() as found:
        found.judge_for(monkeypatch)
        yield found


def race(*options: str, model: str = "gpt") -> int:
    return main(["research", "race", model, *options])


def scores() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("results/race/gpt/raw_results.jsonl").read_text().splitlines()]


def listed(*names: str, **changed: Any) -> dict[str, Any]:
    """Criteria of the first query of these names alone."""
    entries = [{"criterion": name, "explanation": "Look.", "weight": 0.5} | changed for name in names]
    return criteria(1, criterions=dict.fromkeys(RACE_DIMENSIONS, entries))


def moved() -> tuple[str, ...]:
    """All files in another place, with other times and another name."""
    shutil.move("data", "elsewhere")
    shutil.move("elsewhere/test_data/raw_data/gpt.jsonl", "elsewhere/other.jsonl")
    for path in Path("elsewhere").rglob("*.jsonl"):
        os.utime(path, (1, 1))
    files = ("--criteria-file", "elsewhere/criteria_data/criteria.jsonl")
    return ("--raw-data-dir", "elsewhere", *files, "--reference-file", "elsewhere/reference/reference.jsonl")


CHANGES: dict[str, tuple[Callable[[], tuple[str, ...] | None], int]] = {
    "nothing": (lambda: None, 0),
    "the dimensions' weights": (lambda: write(CRITERIA, criteria(1, dimension_weight=dict.fromkeys(WEIGHTS, 0.25))), 0),
    "the criteria's weights": (lambda: write(CRITERIA, listed("Breadth", "Depth (in full)")), 0),
    "the criteria's order": (lambda: write(CRITERIA, listed("Depth (in full)", "Breadth")), 1),
    "a criterion": (lambda: write(CRITERIA, listed("Breadth", "Depth")), 1),
    "an explanation": (lambda: write(CRITERIA, listed("Breadth", "Depth (in full)", explanation="See.")), 1),
    "the reference": (lambda: write(REFERENCES, row(1, "A reference of quality 5.")), 1),
    "the article": (lambda: write(reports(), row(1, "An article of quality 7.")), 1),
    "what the article is rid of": (lambda: write(reports(), row(1, "An article [1][2] of quality 6.")), 0),
    "the metrics": (lambda: write(reports(), row(1, "An article [1] of quality 6.", execution_metrics={})), 0),
    "the order": (lambda: ("--position-swap",), 1),
    "the samples": (lambda: ("--samples", "3"), 2),
    "the reference's absence": (lambda: ("--pointwise",), 1),
    "the cleaning": (lambda: ("--skip-cleaning",), 1),
    "the model": (lambda: ("--judge", "another"), 1),
    "the workers": (lambda: ("--max-workers", "1"), 0),
}


@pytest.mark.parametrize("what", CHANGES)
def test_only_a_change_of_the_judge_prompt_repeats_a_request(judge: RaceJudge, what: str) -> None:
    change, asked = CHANGES[what]
    assert race("--limit", "1") == 0
    assert race("--limit", "1", *(change() or ())) == 0
    assert len(judge.requests) == 1 + asked


def test_places_times_and_names_of_files_ask_nothing(judge: RaceJudge) -> None:
    assert race() == 0
    assert race(*moved(), model="other") == 0
    assert len(judge.requests) == 3


def test_another_version_of_the_prompt_asks_anew(judge: RaceJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert race() == 0
    monkeypatch.setattr(race_judging, "PROMPT_VERSION", "of tomorrow")
    assert race() == 0
    assert len(judge.requests) == 6


@pytest.mark.parametrize("options", [(), ("--pointwise",), ("--compat",)])
@pytest.mark.parametrize("scale", [1, 1.5, 100])
def test_full_marks_are_1_for_any_sum_of_weights(judge: RaceJudge, options: tuple[str, ...], scale: float) -> None:
    weights = (0.05, 0.28, 0.56, 0.11)
    assert sum(weights) > 1
    dimension_weight = {name: weight * scale for name, weight in zip(RACE_DIMENSIONS, weights, strict=True)}
    write(CRITERIA, criteria(1, dimension_weight=dimension_weight))
    write(reports(), row(1, "An article of quality 10."))
    write(REFERENCES, row(1, "A reference of quality 0."))
    assert race(*options) == 0
    [found] = scores()
    assert [found[name] for name in (*RACE_DIMENSIONS, "overall_score", "race_weighted_dims")] == [1.0] * 6


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dimension_weight": dict.fromkeys(RACE_DIMENSIONS, 0)}, "dimension_weight: found weights that are all 0"),
        (
            {"criterions": {name: [{"criterion": "Breadth", "weight": 0}] for name in RACE_DIMENSIONS}},
            "criterions.insight: found weights that are all 0, expected at least one above 0",
        ),
        ({"dimension_weight": {**WEIGHTS, "insight": 1e308}}, "dimension_weight.insight"),
        ({"dimension_weight": {**WEIGHTS, "insight": -0.3}}, "dimension_weight.insight"),
    ],
)
def test_weights_by_which_nothing_can_be_judged_cost_their_row_alone(
    judge: RaceJudge, changed: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(CRITERIA, criteria(1, **changed), criteria(2), criteria(3))
    assert race() == 1
    assert [each["id"] for each in scores() if "overall_score" in each] == [2, 3]
    assert "race_error" in scores()[0]
    assert said in capsys.readouterr().err
    assert len(judge.requests) == 2


def test_a_text_that_is_too_long_for_the_judge(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    judge.choose = lambda message, nth: "context" if len(message) > 20_000 else "ok"
    write(reports(), row(1, "An article of quality 6. " * 1000), row(3, "An article of quality 6."))
    assert race() == 1
    failed, scored = scores()
    assert "This model's maximum context length is 4096 tokens" in failed["race_error"]
    assert scored["overall_score"] == pytest.approx(0.6)
    assert judge.faults == {"context": 1, "ok": 1}
    assert "maximum context length" in capsys.readouterr().err


def test_the_language_of_the_query_counts_in_the_means_too(
    judge: RaceJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        "data/prompt_data/query.jsonl",
        {"id": 1, "prompt": PROMPTS[1], "language": "zh"},
        {"id": 3, "prompt": PROMPTS[3]},
    )
    write(reports(), row(1, "An article of quality 6."), row(3, "An article of quality 1."))
    assert race() == 0
    zh = "Overall Score (zh, 1 of 2): 0.6000"
    assert zh in capsys.readouterr().out
    assert [each.get("language") for each in scores()] == ["zh", None]
    stored = ("--raw-results", "results/race/gpt/raw_results.jsonl", "--output-dir", "again")
    assert main(["research", "race", *stored]) == 0
    assert zh in capsys.readouterr().out
