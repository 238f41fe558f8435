from __future__ import annotations

import json
from math import inf, nan

import execnet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import (
    DEMO,
    MODEL,
    USAGE,
    failed_check,
    make_case,
    make_evaluation,
    make_judge,
    make_row,
    make_run,
)

from pytest_agentbench.records.case import Thresholds
from pytest_agentbench.records.evaluation import MetricResult, Scored
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.ends import end_warnings
from pytest_agentbench.reports.reading import run_mistake
from pytest_agentbench.reports.rows import MESSAGE_LIMIT, run_row, user_properties

NOTHING = {
    "duration_seconds": None,
    "reused": False,
    "evaluation_reused": False,
    "artifact_path": None,
    "message": None,
}


class Numpyish(float):
    """Stands for numpy.float64: a float that execnet refuses."""


def full_row(**changes):
    evaluation = make_evaluation(
        checks=(failed_check(),),
        metrics=(MetricResult(name="f1", score=Numpyish(0.25)), MetricResult(name="f1", score=0.5)),
        judge=make_judge(expectations=0.75),
        final_score=4.2,
    )
    paths = {"artifact_path": "outputs/runs/run_2.json", "evaluation_path": "evaluations/final_result_2.json"}
    given = {**NOTHING, **paths, "line": 7, "duration_seconds": 1.5, "message": "no", **changes}
    case = make_case(tags=("smoke",), must_pass=True, thresholds=Thresholds(pass_rate=0.5))
    return run_row(
        "cases/test.yaml::capital[gpt4o-r2]", case, MODEL, 2, make_run(), evaluation, outcome="failed", **given
    )


def test_a_row_contains_the_values_of_its_records():
    assert full_row() == {
        "nodeid": "cases/test.yaml::capital[gpt4o-r2]",
        "case_id": "capital",
        "title": None,
        "question": None,
        "expected": None,
        "answer": "It is London.",
        "model_id": "gpt4o",
        "label": "GPT-4o",
        "scripted": False,
        "own_agent": False,
        "predictions": None,
        "repetition": 2,
        "line": 7,
        "tags": ["smoke"],
        "dataset": None,
        "fields": {},
        "must_pass": True,
        "thresholds": {"pass_rate": 0.5, "pass_hat_k": None},
        "outcome": "failed",
        "status": "success",
        "end_reason": None,
        "checks": [
            {
                "check_id": "has-answer",
                "kind": "regex_match",
                "outcome": "failed",
                "message": "the answer does not hold 'Paris'",
            }
        ],
        "metrics": {"f1": 0.25, "f1-2": 0.5},
        "judge": {"overall": 4.2, "task": 3.5, "spark": 6.0, "expectations": 0.75},
        "tool_use": None,
        "final_score": 4.2,
        "usage": {
            "input_tokens": 1200,
            "output_tokens": 80,
            "total_tokens": 1280,
            "reasoning_tokens": None,
            "cached_tokens": None,
        },
        "cost_usd": {"run": 0.0123, "judge": 0.002},
        "duration_seconds": 1.5,
        "reused": False,
        "evaluation_reused": False,
        "cassette": None,
        "fingerprint": "ab12",
        "artifact": "outputs/runs/run_2.json",
        "evaluation": "evaluations/final_result_2.json",
        "measure": None,
        "message": "no",
        "reason": "no",
    }


def test_a_row_names_the_metrics_that_read_a_reply_up_to_a_further_question():
    metrics = (
        MetricResult(name="numeric_match", score=1.0, details={"run_on": True}),
        MetricResult(name="own", score=1.0, details={"run_on": "yes"}),
    )
    row = run_row("n", make_case(), MODEL, 1, make_run(), make_evaluation(metrics=metrics), outcome="passed", **NOTHING)
    assert row["run_on"] == ["numeric_match"]
    assert "run_on" not in full_row()
    model = MODEL.model_id
    sentence = "on with a further question: the first answer was scored; a stop sequence would end them there"
    assert list(end_warnings([row, full_row()])) == [f"{model}: 1 reply goes {sentence}"]
    assert list(end_warnings([row, row])) == [f"{model}: 2 replies go {sentence}"]
    assert list(end_warnings([full_row()])) == []


@pytest.mark.parametrize(
    ("run", "verdict", "expected"),
    [
        (None, None, None),
        ("replayed", None, "replayed"),
        (None, "replayed", "replayed"),
        ("recorded", "replayed", "recorded"),
        ("replayed", "recorded", "recorded"),
    ],
)
def test_a_row_tells_what_cassettes_did_for_run_and_verdict(run, verdict, expected):
    evaluation = make_evaluation("passed", cassette=verdict)
    row = run_row("x::c[m]", make_case(), MODEL, 1, make_run(cassette=run), evaluation, outcome="passed", **NOTHING)
    assert row["cassette"] == expected
    assert dict(user_properties(row)).get("agentbench.cassette") == expected


def test_user_properties_have_the_documented_names():
    assert user_properties(full_row()) == [
        ("agentbench.case_id", "capital"),
        ("agentbench.model", "gpt4o"),
        ("agentbench.repetition", 2),
        ("agentbench.status", "success"),
        ("agentbench.outcome", "failed"),
        ("agentbench.final_score", 4.2),
        ("agentbench.judge.overall", 4.2),
        ("agentbench.judge.task", 3.5),
        ("agentbench.judge.spark", 6.0),
        ("agentbench.judge.expectations", 0.75),
        ("agentbench.metric.f1", 0.25),
        ("agentbench.metric.f1-2", 0.5),
        ("agentbench.check.has-answer", "failed"),
        ("agentbench.cost_usd", pytest.approx(0.0143)),
        ("agentbench.tokens.input", 1200),
        ("agentbench.tokens.output", 80),
        ("agentbench.duration_seconds", 1.5),
        ("agentbench.reused", False),
        ("agentbench.evaluation_reused", False),
        ("agentbench.fingerprint", "ab12"),
        ("agentbench.artifact", "outputs/runs/run_2.json"),
    ]


def test_unknown_values_have_no_property():
    names = {name for name, _ in user_properties(make_row("error", seconds=None))}
    known = ("case_id", "model", "repetition", "outcome", "reused", "evaluation_reused")
    assert names == {f"agentbench.{name}" for name in known}


any_text = st.text(st.characters(codec=None), max_size=30)


@pytest.mark.slow
@given(any_text, any_text, any_text, st.floats() | st.none())
def test_rows_survive_execnet_and_json_with_any_text(case_id, said, label, number):
    evaluation = make_evaluation(
        checks=(failed_check(message=said),),
        metrics=(MetricResult(name=said or "m", score=number),),
        judge=make_judge(0.0 if number is None else number),
        final_score=number,
    )
    row = run_row(
        f"x.yaml::{case_id}[m]",
        make_case(case_id, tags=(said,)),
        MODEL.model_copy(update={"label": label}),
        1,
        make_run(usage=Usage(cost_usd=number)),
        evaluation,
        outcome="failed",
        **{**NOTHING, "duration_seconds": number, "message": said, "artifact_path": label},
    )
    assert execnet.loads(execnet.dumps(row)) == row
    assert execnet.loads(execnet.dumps(user_properties(row))) == user_properties(row)
    assert json.loads(json.dumps(row, allow_nan=False).encode()) == row
    row["message"].encode()


@pytest.mark.parametrize("odd", [nan, inf, -inf, 1e308])
def test_values_that_are_not_numbers_are_unknown(odd):
    assert make_row(score=odd)["final_score"] is None
    assert make_row(metric=odd)["metrics"] == {"exact_match": None}


@pytest.mark.parametrize("odd", [-1, -0.01, nan, 1e308])
def test_impossible_costs_and_tokens_are_unknown(odd):
    tokens = -1 if odd == -1 else None
    usage = Usage(input_tokens=tokens, output_tokens=2, cost_usd=odd)
    row = run_row("n", make_case(), MODEL, 1, make_run(usage=usage), None, outcome="passed", **NOTHING)
    assert row["cost_usd"]["run"] is None
    assert row["usage"]["input_tokens"] is None
    assert row["usage"]["output_tokens"] == 2


def test_lone_surrogates_are_replaced_and_pairs_joined():
    row = make_row(message="a\ud800b \ud83d\ude00")
    assert row["message"] == "a\ufffdb \U0001f600"


def test_messages_are_bounded():
    row = full_row(message="x" * 10_000)
    assert row["message"] == "x" * (MESSAGE_LIMIT - 1) + "…"


def test_a_row_names_the_model_that_answered():
    scripted, own = make_row(model=DEMO), make_row(model="my_agent")
    assert (scripted["model_id"], scripted["scripted"], scripted["own_agent"]) == ("demo", True, False)
    assert (own["model_id"], own["scripted"], own["own_agent"], own["label"]) == ("my_agent", False, True, None)


def judged_metric(cost, **details):
    return MetricResult(name="llm_judgement", score=1.0, usage=Usage(cost_usd=cost), details=details)


@pytest.mark.parametrize(
    ("artifact", "evaluation", "cost"),
    [
        (None, None, 0.0),
        (make_run(None, "provider_error"), None, 0.0),
        (make_run(), make_evaluation("passed"), 0.0),
        (make_run(), make_evaluation("passed", judge=make_judge(7)), 0.002),
        (make_run(), make_evaluation("passed", judge=make_judge(7, usage=Usage())), None),
        (make_run(), make_evaluation("error", error="never answered", judge_usage=Usage()), None),
        (make_run(), make_evaluation("error", error="never kept the form", judge_usage=Usage(cost_usd=0.003)), 0.003),
        (make_run(), make_evaluation("error", error="a check broke, and no judge was asked"), 0.0),
        (make_run(), make_evaluation(metrics=(judged_metric(0.001), judged_metric(0.004))), 0.005),
        (make_run(), make_evaluation(judge=make_judge(7), metrics=(judged_metric(0.001),)), 0.003),
        (make_run(), make_evaluation(judge=make_judge(7), metrics=(judged_metric(None),)), None),
        (make_run(), None, None),
    ],
)
def test_judging_is_free_only_where_no_judge_was_asked(artifact, evaluation, cost):
    row = run_row("x::c[m]", make_case(), MODEL, 1, artifact, evaluation, outcome="error", **NOTHING)
    assert row["cost_usd"]["judge"] == (cost if cost is None else pytest.approx(cost))
    assert row["cost_usd"]["run"] == (None if artifact is None else USAGE.cost_usd)


@pytest.mark.parametrize("agreement", [None, "all", -1, 2, float("nan")])
def test_a_row_has_agreement_only_with_several_votes(agreement):
    evaluation = make_evaluation(
        metrics=(judged_metric(0.0, agreement=1 / 3), judged_metric(0.0, agreement=agreement), judged_metric(0.0))
    )
    row = run_row("x::c[m]", make_case(), MODEL, 1, make_run(), evaluation, outcome="failed", **NOTHING)
    assert row["agreement"] == {"llm_judgement": 1 / 3}
    assert "agreement" not in make_row(metric=1.0)


def test_criteria_of_the_rubric_are_in_the_row_with_short_evidence():
    criteria = {"Truth": Scored(score=7, evidence=("seen " * 200, "b", "c", "d"))}
    evaluation = make_evaluation(judge=make_judge(criteria=criteria))
    row = run_row("a.yaml::a[m]", make_case(), MODEL, 1, make_run(), evaluation, outcome="failed", **NOTHING)
    [criterion] = row["judge_criteria"]
    assert (criterion["name"], criterion["score"]) == ("Truth", 7)
    assert [len(text) for text in criterion["evidence"]] == [300, 1, 1]
    assert "judge_criteria" not in full_row()
    assert run_mistake(row) is None
