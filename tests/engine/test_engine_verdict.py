from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.tool_use_runs import evaluated, judgement, run, task, use

from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.engine.evaluation import metrics_of, require_decision, verdict, wants_judge
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import TOOL_USE_METRICS
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.records.evaluation import CheckResult, MetricResult
from pytest_agentbench.records.run import RunArtifact, RunError

PLAIN = EvaluationProfile.default()
JUDGED = EvaluationProfile.model_validate(
    {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "Judged",
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
    }
)
HOOKS = EvaluationProfile.model_validate(
    {
        "schema_version": 1,
        "evaluation_profile_id": "hooks",
        "title": "Hooks",
        "security_policy": {"allow_local_python_hooks": True},
    }
)
CHECK = {"check_id": "a", "declarative": {"kind": "final_response_present"}}
HOOK = {"check_id": "h", "python_hook": {"path": "/hook.py", "callable_name": "check"}}
EXPECTED_TIME_OUT = {"check_id": "s", "declarative": {"kind": "status_is", "status": "timed_out"}}
SOFT = {"soft_expectations": [{"text": "friendly"}]}


def make_case(*checks, **fields):
    given = {"case_id": "c", "title": "C", "path": Path("/c/test.yaml"), "runner": {"type": "llm_probe"}}
    return Case.model_validate({**given, "checks": checks, **fields})


def make_run(status="success"):
    error = None if status == "success" else RunError(code=status, message="because")
    return RunArtifact(
        run_id="r",
        case_id="c",
        run_profile_id="p",
        runner_type="callable",
        model={"model_id": "m", "requested_model": "m", "label": None, "scripted": False},
        repetition=1,
        fingerprint="f" * 64,
        status=status,
        started_at=datetime.now(UTC),
        duration_seconds=0.1,
        error=error,
    )


def check(outcome):
    return CheckResult(check_id="a", kind="final_response_present", outcome=outcome, message=f"it {outcome}")


def metric(score=None, threshold=0.5, error=None):
    passed = None if score is None or threshold is None else score >= threshold
    return MetricResult(name="m", score=score, threshold=threshold, passed=passed, error=error)


@pytest.mark.parametrize(
    ("outcomes", "metrics", "fields", "outcome"),
    [
        (["skipped"], [], {}, "error"),
        (["skipped", "skipped"], [metric(1.0, threshold=None)], {}, "error"),
        (["skipped", "passed"], [], {}, "passed"),
        (["skipped", "failed"], [], {}, "failed"),
        (["skipped"], [metric(1.0)], {}, "passed"),
        (["skipped"], [metric(0.1)], {}, "failed"),
        (["skipped"], [], {"report_only": True}, "passed"),
        ([], [], {}, "passed"),
    ],
)
def test_a_run_of_which_no_check_has_run_is_an_error(outcomes, metrics, fields, outcome):
    evaluation = verdict(make_case(CHECK, **fields), PLAIN, make_run(), list(map(check, outcomes)), metrics, None)
    assert evaluation.outcome == outcome
    assert (evaluation.error == "no check has run: it skipped") == (outcome == "error")


@pytest.mark.parametrize(
    ("case", "profile"),
    [
        (make_case(CHECK), PLAIN),
        (make_case(HOOK), HOOKS),
        (make_case(expectations=SOFT), JUDGED),
        (make_case(), JUDGED),
        (make_case(metrics=[{"name": "m", "threshold": 0.5}], reference="x"), PLAIN),
        (make_case(report_only=True), PLAIN),
    ],
    ids=["check", "hook", "expectations", "judge-alone", "metric", "report-only"],
)
def test_a_case_with_any_deciding_part_is_accepted(case, profile):
    require_decision(case, profile)


@pytest.mark.parametrize(
    ("case", "profile"),
    [
        (make_case(), PLAIN),
        (make_case(HOOK), PLAIN),
        (make_case(expectations=SOFT), PLAIN),
        (make_case(metrics=[{"name": "m"}], reference="x"), PLAIN),
    ],
    ids=["nothing", "hook-is-off", "no-judge", "metric-without-threshold"],
)
def test_a_case_that_nothing_decides_is_refused(case, profile):
    with pytest.raises(ConfigError, match=r"/c/test.yaml:1:1: nothing decides this case"):
        require_decision(case, profile)


def test_a_judge_is_asked_only_if_its_criteria_apply():
    assert wants_judge(make_case(CHECK, expectations=SOFT), JUDGED)
    assert not wants_judge(make_case(CHECK), JUDGED)
    assert not wants_judge(make_case(expectations=SOFT), PLAIN)


@pytest.mark.parametrize(
    ("checks", "metrics", "outcome"),
    [
        (["passed"], [], "passed"),
        (["passed", "skipped"], [metric(0.5)], "passed"),
        (["failed"], [], "failed"),
        (["passed"], [metric(0.4)], "failed"),
        (["error"], [], "error"),
        (["passed"], [metric(error="broken")], "error"),
        (["failed", "error"], [], "failed"),
        (["error"], [metric(0.4)], "failed"),
        (["passed"], [metric(0.1, threshold=None)], "passed"),
    ],
)
def test_failures_take_precedence_over_errors(checks, metrics, outcome):
    evaluation = verdict(make_case(CHECK), PLAIN, make_run(), [check(o) for o in checks], metrics, None)
    assert evaluation.outcome == outcome
    assert bool(evaluation.reasons) == (outcome == "failed")
    assert (evaluation.error is not None) == ("error" in checks or any(m.error for m in metrics))


@pytest.mark.parametrize("status", ["failed", "timed_out", "invalid"])
def test_a_status_other_than_success_fails_unless_it_is_expected(status):
    evaluation = verdict(make_case(CHECK), PLAIN, make_run(status), [check("passed")], [], None)
    assert evaluation.outcome == "failed"
    assert evaluation.reasons == (f"the run ended {status}: because",)
    expected = verdict(make_case(EXPECTED_TIME_OUT), PLAIN, make_run(status), [check("passed")], [], None)
    assert expected.outcome == ("passed" if status == "timed_out" else "failed")


def test_report_only_never_fails_but_may_err():
    case = make_case(CHECK, report_only=True)
    assert verdict(case, PLAIN, make_run("failed"), [check("failed")], [metric(0.1)], None).outcome == "passed"
    assert verdict(case, PLAIN, make_run(), [check("error")], [], None).outcome == "error"


# -- MCP tasks and metrics of traces


def test_an_mcp_task_needs_a_judge_or_a_metric_that_can_fail_it():
    require_decision(task("A"), JUDGED)
    assert wants_judge(task("A"), JUDGED)
    metric_at_least = MetricSpec(name="execution_success_rate", threshold=0.5)
    require_decision(task("A").model_copy(update={"metrics": (metric_at_least,)}), PLAIN)
    with pytest.raises(ConfigError, match=r"tasks.json:1:1: nothing decides this MCP task; name an evaluation profile"):
        require_decision(task("A"), PLAIN)


def test_a_case_with_servers_is_measured_by_all_rates_and_by_its_own_thresholds():
    own = MetricSpec(name="soft_error_rate", threshold=0.5)
    case = task("A").model_copy(update={"metrics": (own,)})
    found = metrics_of(case, PLAIN)
    assert found[0] is own
    assert sorted(spec.name for spec in found) == sorted(TOOL_USE_METRICS)
    assert metrics_of(make_case(CHECK), PLAIN) == ()


def test_a_profiles_metric_of_traces_is_for_cases_with_tools():
    asked = MetricSpec(name="execution_success_rate", threshold=1.0)
    profile = PLAIN.model_copy(update={"metrics": (asked, MetricSpec(name="f1_score"))})
    assert metrics_of(make_case(CHECK), profile) == ()
    assert metrics_of(make_case(CHECK, tools=["read_file"]), profile) == (asked,)
    assert metrics_of(task("A"), profile)[0] == asked


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [((1, 1, 4, 4, 5, 5), "passed"), ((1, 1, 4, 4, 4.9, 4.9), "failed")],
    ids=["at-the-bar", "below-it"],
)
def test_the_overall_score_decides_an_mcp_task(scores, outcome):
    """Rules 1, axes 0.1, 0.4 and 0.5: 0.5 in all; the judge's own mean is 3.3 of 10."""
    evaluation = evaluated(task("A"), run(use("A:one")), judgement(*[scores]))
    assert evaluation.outcome == outcome
    assert evaluation.final_score == pytest.approx(10 * (1 + sum(scores) / 20) / 4)
    if outcome == "failed":
        assert evaluation.reasons == (
            "overall 4.97 of 10, expected at least 5.00 "
            "(rules 1.00, task completion 0.10, tool selection 0.40, planning 0.49)",
        )


def test_a_threshold_on_nothing_to_measure_fails():
    nothing = MetricResult(name="execution_success_rate", score=None, threshold=0.9, passed=False)
    evaluation = verdict(make_case(CHECK), PLAIN, make_run(), [check("passed")], [nothing], None)
    assert evaluation.outcome == "failed"
    assert evaluation.reasons == ("metric execution_success_rate: nothing to measure, expected at least 0.9",)
