from __future__ import annotations

import json
import os
from math import fsum

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import DEMO, MODEL, USAGE, make_row

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.case import Thresholds
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report, suite_properties, write_report

SCHEMA = jsonschema.Draft202012Validator(report_schema(), format_checker=jsonschema.FormatChecker())
SESSION = {
    "started_at": "2026-01-02T03:04:05+00:00",
    "duration_seconds": 12.5,
    "exit_status": 1,
    "command": ["cases/", "--model", "gpt4o"],
    "versions": {"pytest": "9.2.0"},
    "profiles": {"suite": None, "run_profile": "standard"},
    "warnings": [],
}

usages = st.none() | st.builds(
    Usage,
    input_tokens=st.none() | st.integers(0, 10**6),
    output_tokens=st.none() | st.integers(0, 10**6),
    cost_usd=st.none() | st.floats(0, 10),
)
rows_strategy = st.lists(
    st.builds(
        make_row,
        st.sampled_from(["passed", "failed", "error", "skipped"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([MODEL, DEMO, "my_agent"]),
        st.integers(1, 4),
        score=st.none() | st.floats(0, 10),
        metric=st.none() | st.floats(0, 1),
        usage=usages,
        seconds=st.none() | st.floats(0, 100),
        message=st.none() | st.text(max_size=5),
        must_pass=st.booleans(),
        thresholds=st.none() | st.builds(Thresholds, pass_rate=st.none() | st.floats(0, 1), pass_hat_k=st.just(1.0)),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(rows_strategy)
def test_every_report_keeps_the_published_schema_and_adds_up(rows):
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), 0.5)
    report = json.loads(json.dumps(build_report(rows, {**SESSION, "gate": verdict.as_dict()}), allow_nan=False))
    SCHEMA.validate(report)
    totals, models, cases = report["totals"], report["models"], report["cases"]
    assert report["runs"] == json.loads(json.dumps(rows))
    assert totals["runs"] == len(rows)
    for name in ("runs", "passed", "failed", "errors", "skipped", "reused"):
        assert totals[name] == sum(model[name] for model in models)
    for name in ("passed", "failed", "errors", "skipped"):
        assert totals[name] == sum(case[name] for case in cases)
    assert totals["runs"] == sum(case["repetitions"] for case in cases)
    assert (totals["pass_rate"], totals["completion"]) == (verdict.pass_rate, verdict.completion)
    assert_money_adds_up(totals, models, rows)
    for model in models:
        if (interval := model["pass_rate_ci95"]) is not None:
            assert interval[0] <= model["pass_rate"] <= interval[1]


def assert_money_adds_up(totals, models, rows):
    costs = [row["cost_usd"]["run"] for row in rows if row["outcome"] != "skipped"]
    known = [cost for cost in costs if cost is not None]
    least = totals["at_least"]["cost_usd"]["run"]
    assert least == (fsum(known) if known else None)
    assert totals["cost_usd"]["run"] == (least if len(known) == len(costs) else None)
    if None not in [model["cost_usd"]["run"] for model in models if model["runs"] > model["skipped"]] and known:
        assert totals["cost_usd"]["run"] == pytest.approx(fsum(model["cost_usd"]["run"] or 0 for model in models))


def test_models_have_means_and_intervals():
    rows = [make_row(o, f"c{n}", score=s, metric=0.5) for n, (o, s) in enumerate([("passed", 8.0), ("failed", 4.0)])]
    (model,) = build_report([*rows, make_row("error", "c2", seconds=None)], {})["models"]
    assert (model["runs"], model["pass_rate"], model["mean_score"]) == (3, 0.5, 6.0)
    assert model["completion"] == pytest.approx(2 / 3)
    assert model["pass_rate_ci95"] == pytest.approx([0.0945, 0.9055], abs=1e-4)
    assert (model["score_ci95"], model["scored_cases"], model["cases"]) == (None, 2, 3)
    assert model["metrics"] == {"exact_match": 0.5}
    assert model["judge"] == {"overall": 6.0, "task": 3.5, "spark": 6.0, "expectations": None}
    assert model["duration_seconds"] == {"mean": 1.5, "p50": 1.5, "p95": 1.5, "max": 1.5}


def test_a_sum_with_an_unknown_part_is_unknown_and_has_a_lower_bound():
    (model,) = build_report([make_row(), make_row("error", "b"), make_row("skipped", "c")], {})["models"]
    assert model["cost_usd"] == {"run": None, "judge": 0.0}
    assert model["at_least"]["cost_usd"] == {"run": USAGE.cost_usd, "judge": 0.0}
    assert (model["tokens"]["input"], model["at_least"]["tokens"]["input"]) == (None, 1200)


def test_repetitions_make_one_case_with_pass_at_k():
    limits = Thresholds(pass_rate=0.6, pass_hat_k=0.9)
    outcomes = ["passed", "failed", "passed", "error"]
    rows = [
        make_row(outcome, repetition=n, score=None if outcome == "error" else 2.0 * n, thresholds=limits)
        for n, outcome in enumerate(outcomes, 1)
    ]
    (case,) = build_report(rows, {})["cases"]
    assert (case["repetitions"], case["passed"], case["failed"], case["errors"]) == (4, 2, 1, 1)
    assert case["pass_rate"] == pytest.approx(2 / 3)
    assert case["pass_at_k"] == pytest.approx({"1": 2 / 3, "2": 1.0, "3": 1.0})
    assert case["pass_hat_k"] == pytest.approx({"1": 2 / 3, "2": 1 / 3, "3": 0.0})
    assert (case["mean_score"], case["sd"]) == (4.0, 2.0)
    assert case["thresholds"]["pass_rate"] == {"required": 0.6, "actual": case["pass_rate"], "met": True}
    assert case["thresholds"]["pass_hat_k"] == {"required": 0.9, "actual": 0.0, "met": False}


def test_the_same_case_on_two_models_or_in_two_files_is_two_cases():
    elsewhere = {**make_row(), "nodeid": "other/test.yaml::capital[gpt4o]"}
    report = build_report([make_row(), make_row(model=DEMO), elsewhere], {})
    assert [(case["case_id"], case["model_id"]) for case in report["cases"]] == [
        ("capital", "gpt4o"),
        ("capital", "demo"),
        ("capital", "gpt4o"),
    ]


def test_suite_properties_tell_totals_gate_and_means():
    rows = [make_row(score=8.0, model=DEMO), make_row("failed", "b", score=2.0, model=DEMO)]
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), 0.9)
    properties = dict(suite_properties(build_report(rows, {**SESSION, "gate": verdict.as_dict()})))
    assert properties["agentbench.pass_rate"] == 0.5
    assert properties["agentbench.completion"] == 1.0
    assert properties["agentbench.gate"] == "failed"
    assert properties["agentbench.model.demo.mean_score"] == 5.0
    assert properties["agentbench.model.demo.scripted"] is True
    assert "agentbench.gate" not in dict(suite_properties(build_report(rows, SESSION)))


def test_writing_replaces_the_old_report_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "folder" / "report.json"
    for rows in ([make_row()], [make_row(), make_row("failed", "b")]):
        write_report(build_report(rows, SESSION), path)
        assert len(json.loads(path.read_text(encoding="utf-8"))["runs"]) == len(rows)
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match=r"report\.json: the report could not be written .*--agentbench-json"):
        write_report(build_report([make_row()], SESSION), tmp_path / "file" / "report.json")


def reused(row, *, rejudged=False):
    return {**row, "reused": True, "evaluation_reused": not rejudged}


def test_reused_runs_and_those_judged_anew_are_counted_and_cost_nothing_again():
    rows = [make_row(), reused(make_row(case_id="b")), reused(make_row(case_id="c", model=DEMO), rejudged=True)]
    report = build_report(rows, SESSION, {"run": 0.0123, "judge": None})
    SCHEMA.validate(json.loads(json.dumps(report)))
    assert (report["totals"]["reused"], report["totals"]["rejudged"]) == (2, 1)
    assert [(model["reused"], model["rejudged"]) for model in report["models"]] == [(1, 0), (1, 1)]
    assert report["totals"]["spent_usd"] == {"run": 0.0123, "judge": None}
    assert report["totals"]["cost_usd"]["run"] == pytest.approx(3 * 0.0123)
    properties = dict(suite_properties(report))
    assert (properties["agentbench.reused"], properties["agentbench.rejudged"]) == (2, 1)
    assert properties["agentbench.spent_usd.run"] == 0.0123
    assert "agentbench.spent_usd.judge" not in properties


def test_the_spending_of_a_session_is_unknown_by_default():
    assert build_report([make_row()], SESSION)["totals"]["spent_usd"] == {"run": None, "judge": None}
