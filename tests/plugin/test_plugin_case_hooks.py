"""`setup` and `teardown` of a case: commands before its agent starts and after its verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import HEAD
from support.docker_here import needs_bubblewrap

AGENT = (
    HEAD
    + """
def agent(case, context):
    note("runs.txt", case.case_id)
    text = context.workspace.read_text("seed.txt")
    if case.metadata.get("crashes"):
        raise RuntimeError("the agent broke")
    context.workspace.write_text("seed.txt", text + "by the agent\\n")
    return "done"
"""
)


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    bench.profile("plain", sandbox="local")
    return bench


def hooked(bench, case_id="one", *, setup="echo seed > seed.txt", **fields):
    checks = [{"check_id": "kept", "declarative": {"kind": "file_contains", "path": "seed.txt", "text": "agent"}}]
    bench.case(case_id, **{"setup": setup, "deterministic_checks": checks, **fields})


def run(bench, *args):
    return bench.run("--agentbench-run-profile", "plain", *args)


def stored_run(bench, row):
    return json.loads((bench.path / "outputs" / row["artifact"]).read_text())


def test_setup_prepares_the_workspace_and_is_no_change_of_the_agent(project):
    hooked(project, setup="echo prepared; echo seed > seed.txt; echo more > other.txt")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed"}
    artifact = stored_run(project, finished.runs["one[agent]"])
    assert [(each["path"], each["change"]) for each in artifact["changes"]] == [("seed.txt", "modified")]
    assert artifact["changes"][0]["diff"] == "@@ -1 +1,2 @@\n seed\n+by the agent\n"
    event = artifact["trace"][0]
    assert (event["name"], event["data"]["exit_code"], event["data"]["output"]) == ("setup", 0, "prepared\n")


def test_a_failed_setup_is_an_error_of_the_case_and_starts_no_agent(project):
    hooked(project, setup="echo no such table >&2; false; echo never")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "test.yaml:1:1: setup: the command ended with exit code 1, expected 0; it printed: no such table" in (
        finished.text
    )
    assert "never" not in finished.text
    assert project.lines("runs.txt") == []


def test_a_slow_setup_is_stopped_at_its_time_limit(project):
    hooked(project, setup={"command": ["sleep", "60"], "timeout_seconds": 0.2})
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "setup: the command had not ended after timeout_seconds (0.2 s)" in finished.text


def test_teardown_runs_after_the_verdict_and_cannot_change_it(project, tmp_path_factory):
    left = tmp_path_factory.mktemp("left") / "seed.txt"
    hooked(project, teardown=f"mv seed.txt {left}; echo could not release it >&2; exit 3")
    finished = run(project)
    assert (finished.exit, finished.outcomes) == (0, {"one[agent]": "passed"})
    assert left.read_text() == "seed\nby the agent\n"
    [warning] = [text for text in finished.report["session"]["warnings"] if "teardown" in text]
    assert "exit code 3, expected 0; it printed: could not release it" in warning


@pytest.mark.slow
def test_teardown_runs_once_for_each_run_that_began(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    hooked(project, "crashed", teardown=f"echo crashed >> {ended}", metadata={"crashes": True})
    hooked(project, "unprepared", setup="exit 1", teardown=f"echo unprepared >> {ended}")
    hooked(project, "whole", teardown=f"echo whole >> {ended}")
    assert run(project).outcomes == {
        "crashed[agent]": "error",
        "unprepared[agent]": "error",
        "whole[agent]": "passed",
    }
    assert sorted(ended.read_text().split()) == ["crashed", "unprepared", "whole"]
    hooked(project, "whole", teardown=f"echo again >> {ended}")
    finished = run(project, "-k", "whole")
    assert finished.runs["whole[agent]"]["reused"]
    assert "again" not in ended.read_text()


@pytest.mark.slow
def test_an_edited_setup_makes_the_run_again(project):
    hooked(project)
    run(project)
    hooked(project, setup={"command": "echo seed > seed.txt", "timeout_seconds": 5})
    assert run(project).runs["one[agent]"]["reused"]
    hooked(project, setup="echo another seed > seed.txt")
    assert not run(project).runs["one[agent]"]["reused"]
    assert project.lines("runs.txt") == ["one", "one"]


def test_mistakes_of_hooks_are_named_with_their_place(project):
    hooked(project, setup=["sort", "raw.csv"], teardown={"comand": "true"})
    text = run(project).text
    assert "setup: found ['sort', 'raw.csv'], expected a mapping" in text
    assert "teardown.comand: unknown field; did you mean 'command'?" in text


def test_predictions_run_no_hooks(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    hooked(
        project,
        setup=f"touch {ended}",
        teardown=f"touch {ended}",
        deterministic_checks=None,
        reference="done",
        metrics=[{"name": "exact_match", "threshold": 1.0}],
    )
    project.write("answers.json", '{"one": "done"}')
    finished = run(project, "--agentbench-predictions", "answers.json")
    assert list(finished.outcomes.values()) == ["passed"]
    assert not ended.exists()


def test_a_case_with_hooks_is_skipped_without_a_sandbox(project):
    project.profile("plain", sandbox={"type": "docker"})
    hooked(project, setup=None, teardown="true")
    finished = run(project, "-rs")
    assert finished.outcomes == {"one[agent]": "skipped"}
    assert "no image is named" in finished.text
    assert project.lines("runs.txt") == []


def test_hooks_of_a_guest_do_not_run_on_this_machine(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    project.write("cases/vendor/models.yaml", {"schema_version": 1})
    hooked(project, "vendor/one", setup=f"touch {ended}")
    Path(project.path / "cases/vendor/one/test.yaml").write_text(
        (project.path / "cases/vendor/one/test.yaml").read_text().replace("vendor/one", "one")
    )
    finished = run(project, "cases")
    assert finished.outcomes == {"one[agent]": "error"}
    assert "found commands of a folder that is not trusted" in finished.text
    assert not ended.exists()


def test_teardown_runs_for_a_run_that_the_session_stops(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    project.agent(
        HEAD
        + """
import asyncio

STARTED = asyncio.Event()

async def agent(case, context):
    if case.case_id == "fails":
        await STARTED.wait()
        return "no file"
    STARTED.set()
    await asyncio.sleep(60)
"""
    )
    project.profile("plain", sandbox="local", policy={"max_concurrency": 2})
    hooked(project, "fails")
    hooked(project, "waits", teardown=f"echo released > {ended}")
    finished = run(project, "-x")
    assert finished.outcomes["fails[agent]"] == "failed"
    assert ended.read_text() == "released\n"


@needs_bubblewrap
@pytest.mark.slow
def test_hooks_see_nothing_but_the_workspace_in_a_sandbox(project, tmp_path_factory):
    left = tmp_path_factory.mktemp("left") / "seed.txt"
    project.profile("plain", sandbox="bubblewrap")
    hooked(project, setup="pwd > seed.txt", teardown=f"touch {left}")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed"}
    diff = stored_run(project, finished.runs["one[agent]"])["changes"][0]["diff"]
    assert "\n /workspace\n+by the agent" in diff
    assert not left.exists()
