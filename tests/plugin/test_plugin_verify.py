"""Cases that hidden tests and commands decide, in whole sessions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.bench import HEAD
from support.docker_here import needs_bubblewrap

AGENT = (
    HEAD
    + """
def agent(case, context):
    note("runs.txt", case.case_id)
    for path, text in case.metadata.get("leaves", {}).items():
        context.workspace.write_text(path, text)
    return "done"
"""
)
CASES = Path(__file__).parents[2] / "cases"
SCRIPT = 'echo "looked at $(cat answer.txt)"\ntest "$(cat answer.txt)" = 42\n'


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    bench.profile("plain", sandbox="local")
    return bench


def decided(bench, case_id="one", *, answer="42", script=SCRIPT, **fields):
    """A case that a script decides, which the agent never sees."""
    verify = {"files": {"check.sh": "verify/check.sh"}, "command": ["sh", "check.sh"]}
    bench.write(f"cases/{case_id}/verify/check.sh", script)
    fields = {"verify": verify, "metadata": {"leaves": {"answer.txt": answer}}, "deterministic_checks": None, **fields}
    bench.case(case_id, **fields)


def run(bench, *args):
    return bench.run("--agentbench-run-profile", "plain", *args)


@pytest.mark.slow
def test_a_verifier_passes_and_fails_cases(project):
    decided(project, "one")
    decided(project, "two", answer="41")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed", "two[agent]": "failed"}
    assert "check verify: the verifier's command ended with exit code 1, expected 0" in finished.text
    assert "looked at 41" in finished.text
    [check] = finished.runs["one[agent]"]["checks"]
    assert (check["check_id"], check["outcome"]) == ("verify", "passed")


@pytest.mark.slow
def test_several_verifiers_decide_together(project):
    passes, fails = {"command": "test -e answer.txt"}, {"command": "exit 1"}
    decided(project, verify=[passes, fails, {**passes, "check_id": "third"}])
    checks = run(project).runs["one[agent]"]["checks"]
    assert [(check["check_id"], check["outcome"]) for check in checks] == [
        ("verify", "passed"),
        ("verify_2", "failed"),
        ("third", "passed"),
    ]


@pytest.mark.slow
def test_another_hidden_file_decides_the_same_run_again(project):
    decided(project)
    assert run(project).outcomes == {"one[agent]": "passed"}
    again = run(project)
    assert (again.outcomes, again.runs["one[agent]"]["reused"]) == ({"one[agent]": "passed"}, True)
    decided(project, script="exit 1\n")
    assert run(project).outcomes == {"one[agent]": "failed"}
    decided(project, verify={"command": "exit 0"})
    assert run(project).outcomes == {"one[agent]": "passed"}
    assert project.lines("runs.txt") == ["one"]


@needs_bubblewrap
@pytest.mark.slow
def test_a_verdict_that_is_known_needs_no_sandbox(project, monkeypatch):
    project.profile("plain", sandbox="bubblewrap")
    decided(project)
    assert run(project).outcomes == {"one[agent]": "passed"}
    monkeypatch.setenv("PATH", str(project.path))  # without bwrap
    decided(project, "two")
    finished = project.spawn("--agentbench-run-profile", "plain")
    assert finished.outcomes == {"one[agent]": "passed", "two[agent]": "skipped"}
    assert project.lines("runs.txt") == ["one"]


def test_a_case_without_a_runnable_verifier_is_skipped_before_it_costs(project):
    project.profile("plain", sandbox={"type": "docker"})
    decided(project)
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "skipped"}
    assert "no image is named" in run(project, "-rs").text
    assert project.lines("runs.txt") == []


def test_hidden_tests_are_not_collected_and_not_shown(project):
    project.write("cases/one/verify/test_hidden.py", "from nowhere import anything\n")
    decided(project, script="# the secret of the case\nexit 0\n")
    finished = run(project)
    assert (finished.exit, finished.outcomes) == (0, {"one[agent]": "passed"})
    stored = [path for path in (project.path / "outputs").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if b"the secret of the case" in path.read_bytes()]


def test_tests_of_a_template_are_the_agents(project):
    project.write("cases/one/workspace/test_old.py", "from nowhere import anything\n")
    project.write("cases/one/workspace/conftest.py", "from nowhere import anything\n")
    decided(project, workspace="workspace")
    finished = run(project)
    assert (finished.exit, finished.outcomes) == (0, {"one[agent]": "passed"})


def test_folders_of_those_names_elsewhere_are_collected(bench):
    bench.write("verify/test_a.py", "def test_a(): pass\n")
    bench.write("workspace/test_b.py", "def test_b(): pass\n")
    assert "2 passed" in bench.run().text


def test_printed_keys_are_redacted_in_stored_verdicts(project, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "k-5be37f1c91a2")
    decided(project, answer="k-5be37f1c91a2")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "failed"}
    assert "k-5be37f1c91a2" not in finished.text
    [path] = (project.path / "outputs/evaluations").rglob("final_result_1.json")
    assert "looked at [redacted]" in json.loads(path.read_text())["checks"][0]["outputs"]["printed"]


def test_predictions_leave_nothing_to_verify(project):
    decided(project)
    project.rows("answers.jsonl", {"case_id": "one", "prediction": "42"})
    finished = run(project, "--agentbench-predictions", "answers.jsonl")
    assert list(finished.outcomes.values()) == ["error"]
    assert "predictions contain only answers" in finished.text


def test_changed_files_are_judged_with_the_conftest_of_the_template(project):
    project.write("cases/one/template/conftest.py", "KIND = 'template'\n")
    project.write("cases/one/template/data.txt", "template\n")
    leaves = {"conftest.py": "KIND = 'agent'\n", "data.txt": "agent\n"}
    decided(project, workspace="template", metadata={"leaves": leaves}, verify={"command": "cat conftest.py data.txt"})
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed"}
    [path] = (project.path / "outputs/evaluations").rglob("final_result_1.json")
    assert json.loads(path.read_text())["checks"][0]["outputs"]["printed"] == "KIND = 'template'\nagent\n"


@needs_bubblewrap
@pytest.mark.slow
def test_the_example_runs_offline(bench):
    shutil.copytree(CASES, bench.path / "cases")
    finished = bench.run("cases/hidden_tests", "--model", "demo")
    assert finished.outcomes == {"hidden_tests[demo]": "passed"}


@pytest.mark.slow
def test_the_report_contains_the_place_of_grading(project):
    leaves = {"metadata": {"leaves": {"solution.py": "def two(): return 2\n"}}}
    tests = {"files": {"tests": "verify"}, "pytest": {"tests": ["tests/test_a.py"]}}
    project.write("cases/one/verify/test_a.py", "from solution import two\ndef test_a(): assert two() == 2\n")
    decided(project, "one", verify=tests, **leaves)
    asks = "from agentbench_solution import Solution\ndef test_a(): assert Solution().call('solution:two') == 2\n"
    project.write("cases/two/verify/test_a.py", asks)
    decided(project, "two", verify={**tests, "apart": True}, **leaves)
    decided(project, "three")
    finished = run(project, "--junitxml=junit.xml")
    graded = {name: row["checks"][0]["graded"] for name, row in finished.runs.items()}
    assert graded == {"one[agent]": "in process", "two[agent]": "apart", "three[agent]": "beside"}
    assert set(finished.outcomes.values()) == {"passed"}
    assert "graded in process: 1 run, by tests that the solution could change; `apart: true`" in finished.text
    assert 'name="agentbench.graded.verify" value="in process"' in (project.path / "junit.xml").read_text()
