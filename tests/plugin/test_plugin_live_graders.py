"""Graders that decide a run in its own sandbox, before the sandbox is stopped."""

from __future__ import annotations

import json

import pytest
from support.bench import HEAD
from support.docker_here import needs_bubblewrap

AGENT = (
    HEAD
    + """
from pathlib import Path
from pytest_agentbench import Grade, Grader, MetricResult, SandboxError

VERSION = 1

async def agent(case, context):
    note("runs.txt", case.case_id)
    sandbox = await context.sandbox()
    await sandbox.put("/tmp/made.txt", case.metadata.get("makes", "good").encode())
    if case.metadata.get("hangs"):
        await asyncio.sleep(60)
    return "Paris"

class HiddenTests(Grader):
    wants_sandbox = decides = True
    accepts = ("timed_out",)

    def applies(self, case):
        return case.metadata.get("late") != "refused"

    def identity(self, services, job, case):
        return {"version": VERSION}

    async def grade(self, request):
        note("grades.txt", request.case.case_id)
        assert (request.metrics, request.judged) == ((), None)
        if Path("outage").exists():
            raise SandboxError("the machine is gone")
        request.workspace.write_text("by_the_grader.txt", "")
        ended = await request.sandbox.exec(["sh", "-c", "grep -q good ${TMPDIR:-/tmp}/made.txt"], seconds=20)
        reward = MetricResult(name="reward", score=float(ended.exit_code == 0))
        if ended.exit_code == 0:
            return Grade(metrics=(reward,), final_score=10.0, is_final=True)
        return Grade(metrics=(reward,), final_score=0.0, is_final=True, failures=("hidden tests: no good file",))

def pytest_agentbench_graders():
    return {"hidden_tests": HiddenTests()}
"""
)


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    bench.profile("plain", sandbox="local")
    return bench


def run(bench, *args):
    return bench.run("--agentbench-run-profile", "plain", *args)


def edit_agent(bench, old, new):
    bench.agent((bench.path / "conftest.py").read_text().replace(old, new))


@pytest.mark.parametrize("kind", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_a_grader_decides_by_the_sandbox_as_the_agent_left_it(bench, kind):
    bench.agent(AGENT)
    bench.profile("plain", sandbox=kind)
    bench.case("right")
    bench.case("wrong", metadata={"makes": "bad"})
    finished = run(bench)
    assert finished.outcomes == {"right[agent]": "passed", "wrong[agent]": "failed"}
    assert "hidden tests: no good file" in finished.text
    rows = {row["case_id"]: row for row in finished.report["runs"]}
    assert {name: (row["final_score"], row["metrics"]["reward"]) for name, row in rows.items()} == {
        "right": (10.0, 1.0),
        "wrong": (0.0, 0.0),
    }
    artifact = json.loads((bench.path / "outputs" / rows["right"]["artifact"]).read_text())
    assert [change["path"] for change in artifact["changes"]] == []  # the grader's file is none of the agent's


def test_a_stored_run_keeps_its_grade_and_an_edited_check_makes_no_new_run(project):
    project.case("one", metadata={"makes": "bad"})
    run(project)
    assert run(project).outcomes == {"one[agent]": "failed"}
    project.case(
        "one",
        metadata={"makes": "bad"},
        deterministic_checks=[{"check_id": "other", "declarative": {"kind": "regex_match", "pattern": "^P"}}],
    )
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "failed"}
    assert "hidden tests: no good file" in finished.text
    assert (project.lines("runs.txt"), project.lines("grades.txt")) == (["one"], ["one"])
    assert "never reused" not in finished.text  # the grader is an object whose class is a conftest's


def test_a_changed_identity_of_the_grader_makes_the_run_again(project):
    project.case("one")
    run(project)
    edit_agent(project, "VERSION = 1", "VERSION = 2")
    assert project.spawn("--agentbench-run-profile", "plain").outcomes == {"one[agent]": "passed"}
    assert project.lines("grades.txt") == ["one", "one"]


def test_a_failure_of_the_grading_is_an_error_and_the_next_session_makes_the_run_again(project):
    project.case("one")
    project.write("outage", "")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "the machine is gone" in finished.text
    (project.path / "outage").unlink()
    assert run(project).outcomes == {"one[agent]": "passed"}
    assert project.lines("runs.txt") == ["one", "one"]


def test_a_grader_can_accept_a_run_that_timed_out(project):
    project.profile("plain", sandbox="local", run_timeout_seconds=0.3)
    project.case("accepted", metadata={"hangs": True}, deterministic_checks=[])
    project.case("refused", metadata={"hangs": True, "late": "refused"})
    finished = run(project)
    assert finished.outcomes == {"accepted[agent]": "passed", "refused[agent]": "failed"}
    assert "no answer within run_timeout_seconds" in finished.text
    run(project)
    assert sorted(project.lines("runs.txt")) == ["accepted", "refused", "refused"]


def test_stored_answers_are_skipped_because_they_have_no_sandbox(project):
    project.case("one")
    project.rows("answers.jsonl", {"case_id": "one", "prediction": "Paris"})
    finished = run(project, "--agentbench-predictions", "answers.jsonl", "-rs")
    assert [row["outcome"] for row in finished.report["runs"]] == ["skipped"]
    assert "HiddenTests: grades runs in their sandbox, and stored answers have none" in finished.text
