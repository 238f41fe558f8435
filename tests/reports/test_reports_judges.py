"""From evaluations to `judge_votes` in rows, to `judges[]`, to the lines and warnings that people read."""

from __future__ import annotations

import json

import execnet
import jsonschema
import pytest
from reports_samples import DEMO, MODEL, make_case, make_evaluation, make_judge, make_run

from pytest_agentbench.cli.output import Standard
from pytest_agentbench.packs.research.records import (
    CriterionScore,
    ExecutionMetrics,
    ResearchScores,
    ResearchScoring,
    ResearchTask,
)
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import JudgeIteration, JudgeVerdict, MetricResult, Scored
from pytest_agentbench.reports.judges import family_warnings
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row
from pytest_agentbench.reports.terminal import write_summary

SCHEMA = jsonschema.Draft202012Validator(report_schema())
NOTHING = {
    "duration_seconds": None,
    "reused": False,
    "evaluation_reused": False,
    "artifact_path": None,
    "message": None,
}
CLAUDE = Model(model_id="claude", requested_model="claude-sonnet-4-5")


def iterations(*scores, run="quality", model="gpt-4o-mini", shuffled=False, scripted=False):
    """Of one judge run; None is an iteration without a verdict."""
    return tuple(
        JudgeIteration(
            judge_run_id=run,
            judge_id=run,
            model=model,
            scripted=scripted,
            repetition=number,
            shuffled=shuffled,
            status="invalid_output" if score is None else "success",
            verdict=score and JudgeVerdict(summary="", dimensions={}, overall=Scored(score=score)),
        )
        for number, score in enumerate(scores, 1)
    )


def row(case_id, *judged, model=CLAUDE, case=None, hashed=None, **evaluation):
    judge = make_judge(iterations=judged) if judged else None
    found = make_evaluation("passed", judge=judge, evaluation_profile_id="strict", **evaluation)
    nodeid = f"cases/test.yaml::{case_id}[{model if isinstance(model, str) else model.model_id}]"
    verdict = {"by": "judge", "judge": hashed, "rubric": "c" * 16, "models": [], "passed": True, "score": 5.0}
    told = [] if hashed is None else [verdict]
    return run_row(
        *(nodeid, case or make_case(case_id), model, 1, make_run(), found), outcome="passed", judged=told, **NOTHING
    )


def judges_of(*rows):
    report = json.loads(json.dumps(build_report(rows, {}), allow_nan=False))
    SCHEMA.validate(report)
    return report["judges"]


def test_a_row_tells_what_each_iteration_of_each_judge_said():
    found = row("a", *iterations(7, None, 8), *iterations(3, run="second", model="llama-3"))
    assert found["judge_votes"] == [
        {
            "judge": "quality",
            "source": "judge",
            "model": "gpt-4o-mini",
            "scripted": False,
            "scores": [7.0, None, 8.0],
            "pass_at": 5.0,
            "profile": "strict",
        },
        {
            "judge": "second",
            "source": "judge",
            "model": "llama-3",
            "scripted": False,
            "scores": [3.0],
            "pass_at": 5.0,
            "profile": "strict",
        },
    ]
    assert execnet.loads(execnet.dumps(found)) == found
    assert "judge_votes" not in row("a")


def test_the_agreement_of_votes_on_a_run_is_reported_per_judge():
    (judge,) = judges_of(row("a", *iterations(4, 6)), row("b", *iterations(8, None, 8)), row("c", *iterations(2)))
    assert (judge["runs"], judge["repeated"], judge["votes"], judge["failed"]) == (3, 2, 5, 1)
    assert judge["mean_score"] == pytest.approx(5.6)
    assert judge["cv_percent"] == pytest.approx((20 + 0) / 2)
    assert judge["spread"] == pytest.approx(1.0)  # squares 2 and 0, two degrees of freedom
    # votes 4, 6, 8, 8 about 6.5: squares 11, of which 2 within; 1 - (2 / 1 * 2) / (4 / 3 * 11)
    assert judge["alpha"] == pytest.approx(1 - 4 / (44 / 3))
    assert judge["agreement"] == pytest.approx(0.5)
    assert (judge["order_swap"], judge["between"], judge["reasons"]) == (None, None, {})


@pytest.mark.parametrize(
    ("scores", "reason"),
    [([(5,), (6,)], "no run has two votes of it"), ([(7, 7), (7, 7)], "all votes are the same")],
)
def test_an_undefined_alpha_has_its_reason(scores, reason):
    (judge,) = judges_of(*(row(f"c{n}", *iterations(*each)) for n, each in enumerate(scores)))
    assert judge["alpha"] is None
    assert reason in judge["reasons"]["alpha"]


def test_judges_of_one_profile_are_compared_by_the_means_of_their_votes():
    rows = [
        row("a", *iterations(2, 4), *iterations(5, run="other", model="llama-3")),
        row("b", *iterations(8, 8), *iterations(8, run="other", model="llama-3")),
        row("c", *iterations(1), *iterations(None, run="other", model="llama-3")),
    ]
    first, second = judges_of(*rows)
    assert first["between"] == second["between"]
    assert first["between"]["judges"] == ["quality (gpt-4o-mini)", "other (llama-3)"]
    assert first["between"]["runs"] == 2
    # units (3, 5) and (8, 8) about 6: squares 18, of which 2 within
    assert first["between"]["alpha"] == pytest.approx(1 - 2 * 2 / (4 / 3 * 18))
    assert (second["votes"], second["failed"]) == (2, 1)


def test_judges_of_one_name_that_are_not_the_same_do_not_mix():
    """Two folders have a profile of one id, with other prompts."""
    other = iterations(6, run="second", model="llama-3")
    rows = [row(f"c{n}", *iterations(n, 9), *other, hashed=hashed * 16) for n in (1, 2) for hashed in "ab"]
    judges = judges_of(*rows, row("c3", *iterations(2, 3)))
    assert [(judge["judge"], (judge["hash"] or "-")[0], judge["runs"]) for judge in judges] == [
        *(("quality", "a", 2), ("second", "a", 2), ("quality", "b", 2), ("second", "b", 2), ("quality", "-", 1))
    ]
    assert [judge["between"] and judge["between"]["runs"] for judge in judges] == [2, 2, 2, 2, None]


def test_a_vote_on_the_threshold_agrees_with_the_judges_verdict():
    """0.07 of the scale is 0.7, and 10 * 0.07 a little more than 0.7."""
    judge = make_judge(iterations=iterations(0.7, 9), pass_threshold=0.07)
    found = run_row(
        *("cases/test.yaml::a[claude]", make_case("a"), CLAUDE, 1, make_run()),
        make_evaluation("passed", judge=judge),
        outcome="passed",
        **NOTHING,
    )
    (judge,) = judges_of(found)
    assert judge["agreement"] == 1


@pytest.mark.parametrize("scores", [(-5.0, 5.0), (1e200, 5.0), (float("nan"), 5.0)])
def test_votes_that_no_judge_may_give_cost_no_report(scores):
    (judge,) = judges_of(row("a", *iterations(*scores)))
    assert judge["cv_percent"] is None


def test_votes_of_a_metric_are_a_judge_too():
    votes = [{"correct": correct, "reason": ""} for correct in (True, True, False)]
    details = {"votes": votes, "agreement": 1 / 3, "failed": 1, "model": "gpt-4o", "scripted": False}
    metrics = (MetricResult(name="llm_judgement", score=1.0, details=details), MetricResult(name="f1", score=0.5))
    found = row("a", metrics=metrics)
    assert found["judge_votes"][0]["scores"] == [1.0, 1.0, 0.0, None]
    (judge,) = judges_of(found)
    assert (judge["judge"], judge["source"], judge["agreement"]) == ("llm_judgement", "metric", pytest.approx(1 / 3))


def test_a_blank_answer_that_no_judge_was_asked_about_is_no_vote():
    details = {"votes": [], "agreement": None, "reason": "empty", "cached": 0, "failed": 0, "model": None}
    assert "judge_votes" not in row("a", metrics=(MetricResult(name="llm_judgement", score=0.0, details=details),))


def test_shuffled_orders_tell_how_often_the_verdict_turns():
    (judge,) = judges_of(
        row("a", *iterations(4, 6, 7, shuffled=True)), row("b", *iterations(8, None, 9, shuffled=True))
    )
    swap = judge["order_swap"]
    assert (swap["order"], swap["runs"], swap["pairs"], swap["changed"]) == ("shuffled", 2, 4, 2)
    assert swap["changed_rate"] == pytest.approx(0.5)
    assert swap["mean_abs_difference"] == pytest.approx((2 + 3 + 1 + 1) / 4)
    assert swap["mean_difference"] is None
    low, high = swap["changed_ci95"]
    assert low < 0.5 < high


def test_turning_verdicts_are_clustered_by_case():
    rows = [row(f"c{n}", *iterations(*said, shuffled=True)) for n, said in enumerate([(4, 6), (4, 4), (6, 7), (3, 8)])]
    again = [{**each, "nodeid": each["nodeid"].replace("[claude]", f"[claude-r{n}]")} for each in rows for n in (2, 3)]
    (once,), (thrice,) = judges_of(*rows), judges_of(*rows, *again)
    assert (once["order_swap"]["pairs"], thrice["order_swap"]["pairs"]) == (4, 12)
    assert thrice["order_swap"]["changed_ci95"] == pytest.approx(once["order_swap"]["changed_ci95"])


def race_row(case_id, draws, *, swap=True, reference=5.0, judge="gpt-4o", scripted=False):
    task = ResearchTask(
        row_id=1, prompt="?", language="en", scoring=ResearchScoring(position_swap=swap, samples=len(draws) // 2)
    )
    criterion = CriterionScore(dimension="insight", criterion="c", target=5.0, reference=reference)
    research = ResearchScores(
        row_id=1,
        model="m",
        language="en",
        execution_metrics=ExecutionMetrics(),
        criteria=(criterion,),
        judge_model=judge,
        judge_scripted=scripted,
    )
    metrics = (MetricResult(name="race", score=0.5, details={"draws": draws}),)
    return row(case_id, case=make_case(case_id, research=task), metrics=metrics, research=research)


def test_swapped_reports_tell_how_far_the_place_of_a_report_counts():
    (judge,) = judges_of(race_row("a", [0.6, 0.45, 0.7, 0.6]), race_row("b", [0.5, 0.4, 0.3, 0.3]))
    swap = judge["order_swap"]
    assert (swap["order"], swap["runs"], swap["pairs"], swap["changed"]) == ("swapped", 2, 4, 2)
    assert swap["mean_difference"] == pytest.approx((0.15 + 0.1 + 0.1 + 0) / 4)
    assert (judge["judge"], judge["source"], judge["model"]) == ("race", "research", "gpt-4o")


@pytest.mark.parametrize("order", ["shuffled", "swapped"])
def test_an_order_without_a_least_good_score_has_no_verdict_to_change(order):
    """A report.json from elsewhere may say so; its schema allows it."""
    votes = {"judge": "quality", "source": "judge", "model": "m", "profile": None, "scripted": False}
    votes |= {"scores": [4.0, 6.0], "pass_at": None, "order": order}
    (judge,) = build_report([{**row("a"), "judge_votes": [votes]}], {})["judges"]
    assert (judge["order_swap"], judge["votes"]) == (None, 2)


def test_reports_that_are_judged_once_or_alone_have_no_order():
    for found in (race_row("a", [0.6, 0.5], swap=False), race_row("a", [0.6, 0.5], swap=False, reference=None)):
        (judge,) = judges_of(found)
        assert judge["order_swap"] is None
    assert judge["agreement"] is None


def test_a_judge_of_the_judged_models_family_is_warned_of_once():
    other = Model(model_id="o3", requested_model="o3-mini")
    rows = [row(f"c{n}", *iterations(5), model=model) for n, model in enumerate([MODEL, MODEL, other, CLAUDE])]
    (judge,) = judges_of(*rows)
    assert (judge["runs"], judge["same_family"]) == (4, 3)
    assert family_warnings(rows) == [
        "gpt-4o-mini judges gpt4o, o3 of the same family (OpenAI): judges favour it; "
        "use a judge of another family, or several"
    ]


@pytest.mark.parametrize("model", [DEMO.model_copy(update={"requested_model": "gpt-4o"}), "gpt-agent"])
def test_scripts_and_agents_have_no_family(model):
    assert family_warnings([row("a", *iterations(5), model=model)]) == []
    assert family_warnings([row("a", *iterations(5, scripted=True), model=MODEL)]) == []


def test_a_report_of_an_older_version_has_no_votes_and_no_judges():
    old = {key: value for key, value in row("a", *iterations(4, 5)).items() if key != "judge_votes"}
    assert judges_of(old) == []


def test_the_summary_says_in_a_line_how_far_to_trust_each_model_and_judge(capsys):
    rows = [row("a", *iterations(4, 6, shuffled=True)), row("b", *iterations(8, 8, run="\x1b[31mred\u202e"))]
    again = {**rows[0], "nodeid": "cases/test.yaml::a[claude-r2]", "repetition": 2, "outcome": "failed"}
    write_summary(Standard(), build_report([*rows, again], {}))
    said = capsys.readouterr().out
    assert "  claude: 1 case passed and failed\n" in said
    assert (
        "gpt-4o-mini (quality): alpha -0.50, CV 20.0 %, 0.0 % of pairs agree, 2 of 2 pairs change with the order"
        in said
    )
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_the_summary_of_an_older_report_has_no_judges(capsys):
    report = build_report([row("a", *iterations(4, 6))], {})
    del report["judges"], report["models"][0]["flaky_cases"]
    write_summary(Standard(), report)
    said = capsys.readouterr().out
    assert "claude" in said
    assert "judges" not in said
