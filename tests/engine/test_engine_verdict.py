from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_agentbench.config import EvaluationProfile
from pytest_agentbench.engine.verdict import require_decision, verdict, wants_judge
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, CheckResult, MetricResult, RunArtifact, RunError

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
def test_what_decides_a_case(case, profile):
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
def test_what_decides_nothing_is_refused(case, profile):
    with pytest.raises(ConfigError, match=r"/c/test.yaml:1: nothing decides this case"):
        require_decision(case, profile)


def test_a_judge_is_asked_for_what_it_can_measure():
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
def test_failures_win_over_what_could_not_be_told(checks, metrics, outcome):
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
