"""`--agentbench-policy`: quarantined failures do not fail a session, and failures of blocking cases always do."""

from __future__ import annotations

import jsonschema
import pytest

from pytest_agentbench.cli import main
from pytest_agentbench.reports.reading import report_schema

WRONG = {"says": "Rome"}
POLICY = "--agentbench-policy=policy.yaml"


@pytest.fixture
def project(bench):
    """A case that passes, and one that fails."""
    bench.agent()
    bench.case("good")
    bench.case("moody", metadata=WRONG)
    return bench


def write_policy(bench, model="<lambda>", **lists):
    entries = {
        status: [{"case": f"cases/{name}/test.yaml::{name}", "model": model} for name in names]
        for status, names in lists.items()
    }
    bench.write("policy.yaml", {"schema_version": 1, **entries})


def test_a_quarantined_failure_is_shown_and_does_not_fail_the_session(project):
    write_policy(project, quarantined=["moody"])
    finished = project.run(POLICY)
    jsonschema.validate(finished.report, report_schema())
    assert finished.exit == 0, finished.text
    (row,) = [row for row in finished.report["runs"] if row["case_id"] == "moody"]
    assert (row["outcome"], row["policy"]) == ("failed", "quarantined")
    assert [case.get("policy") for case in finished.report["cases"]] == [None, "quarantined"]
    assert "1 run failed in quarantine and did not count:" in finished.text
    assert finished.report["session"]["warnings"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("failing", "reason"), [("case", None), ("test", "1 test that is no case failed.")])
def test_another_failure_fails_the_session_still(project, failing, reason):
    write_policy(project, quarantined=["moody"])
    if failing == "case":
        project.case("bad", metadata=WRONG)
    else:
        project.write("test_plain.py", "def test_plain(): assert 0\n")
    finished = project.run(POLICY)
    assert finished.exit == 1
    assert finished.report["session"]["faults"] == [reason] * (reason is not None)


@pytest.mark.slow
def test_quarantined_runs_count_in_no_gate(project):
    write_policy(project, quarantined=["moody"])
    finished = project.run(POLICY, "--agentbench-fail-under=1")
    gate = finished.report["session"]["gate"]
    assert (finished.exit, gate["passed"], gate["pass_rate"]) == (0, True, 1.0)
    assert finished.report["totals"]["pass_rate"] == 0.5


@pytest.mark.slow
def test_quarantined_cases_are_not_compared(project):
    project.case("moody")
    assert project.run("--agentbench-json=a.json").exit == 0
    project.case("moody", metadata=WRONG)
    write_policy(project, quarantined=["moody"])
    finished = project.run(POLICY, "--agentbench-compare=a.json", "--agentbench-max-regressions=0")
    assert finished.exit == 0, finished.text
    assert "cases/moody/test.yaml::moody" in finished.report["comparison"]["models"][0]["cases"]["only_baseline"]


def test_a_failed_blocking_case_fails_the_gate_at_any_pass_rate(project):
    write_policy(project, blocking=["moody"])
    finished = project.run(POLICY, "--agentbench-fail-under=0.1")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["moody [<lambda>] is blocking: 0 of 1 runs passed."]


def test_a_case_that_must_pass_is_not_quarantined(project):
    project.case("moody", metadata=WRONG, must_pass=True)
    write_policy(project, quarantined=["moody"])
    finished = project.run(POLICY)
    assert finished.exit == 1
    assert "moody [<lambda>] must pass: the policy cannot quarantine it" in finished.report["session"]["warnings"][0]


def test_an_entry_of_no_case_is_a_warning_and_one_that_was_not_selected_is_none(project):
    write_policy(project, quarantined=["moody", "gone"])
    warnings = project.run(POLICY, "-k", "good").report["session"]["warnings"]
    assert warnings == [
        "policy.yaml: found no case cases/gone/test.yaml::gone [<lambda>]; write the file anew, or remove the entry"
    ]


@pytest.mark.slow
def test_workers_have_the_policy_of_their_controller(project):
    write_policy(project, quarantined=["moody"])
    assert project.spawn(POLICY, "-n2").exit == 0


def test_a_broken_policy_is_a_usage_error_with_its_place(project):
    write_policy(project, quarantined=["moody"], blocking=["moody"])
    finished = project.run(POLICY)
    assert finished.exit == 4
    assert "policy.yaml:" in finished.text
    assert (
        "quarantined[0]: found 'cases/moody/test.yaml::moody' on '<lambda>', which is in blocking[0]" in finished.text
    )


@pytest.mark.slow
def test_the_policy_that_history_writes_is_applied(project, capsys):
    for _ in range(2):
        project.run("--agentbench-no-reuse")
    assert main(["history", "--passes", "2", "--write", "policy.yaml"]) == 0
    assert "1 blocking, 0 quarantined" in capsys.readouterr().out
    project.case("good", metadata=WRONG)
    finished = project.run(POLICY, "--agentbench-fail-under=0")
    assert finished.report["session"]["gate"]["reasons"] == ["good [<lambda>] is blocking: 0 of 1 runs passed."]
