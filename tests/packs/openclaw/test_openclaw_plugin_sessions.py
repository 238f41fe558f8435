"""Whole sessions of OpenClaw cases on the stubs: concurrency, workers, early ends, and reports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from openclaw_project import SAYS, Project, of_agent, shell, write
from openclaw_tiers import Tier, put_on_path, stub
from support.bench import LEAN, Bench, check
from support.docker_here import needs_bubblewrap
from support.fault_endpoint import FaultEndpoint, always

pytestmark = pytest.mark.slow


@pytest.fixture
def tier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tier]:
    """Yield a tier whose folder has its sessions' files and identifies its containers; see test_openclaw_plugin.py."""
    with tempfile.TemporaryDirectory(prefix="oc-") as folder:
        (sessions := Path(folder, "t")).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(sessions))
        monkeypatch.setenv("TMPDIR", str(sessions))
        put_on_path(monkeypatch, Path(folder, "engine"))
        yield stub(Path(folder))


@pytest.fixture
def project(bench: Bench, tier: Tier) -> Project:
    return Project(bench, {**tier.settings})


def models(project: Project, **endpoints: FaultEndpoint) -> None:
    project.bench.models(
        *({"model_id": name, "base_url": each.base_url, "api_key_env": "none"} for name, each in endpoints.items())
    )


def test_workers_run_cases_with_the_agents_of_the_suite(project: Project) -> None:
    project.agent("other")
    for number in range(4):
        agent = "other" if number % 2 else "writer"
        project.case(f"case{number}", checks=(of_agent("its", agent),), tags=["odd"] if number % 2 else [])
    project.suite({"agent_id": "other", "case_selection": {"include_tags": ["odd"]}})
    options = ("--model=demo", "--agentbench-run-profile=claw", "--agentbench-suite=s")
    finished = project.bench.spawn("-p", "xdist", "-n2", *options)
    assert finished.outcomes == {f"case{number}[demo]": "passed" for number in range(4)}, finished.text
    some = project.run("--agentbench-suite=s", "-k", "case1")
    assert (some.outcomes, some.runs["case1[demo]"]["reused"]) == ({"case1[demo]": "passed"}, True)


def test_rows_of_a_dataset_are_runs_of_openclaw(project: Project) -> None:
    project.bench.rows("cases/q/rows.jsonl", {"id": "one", "question": "The capital of France?", "answer": "Paris"})
    described = {"schema_version": 1, "runner": {"type": "openclaw"}, "files": ["rows.jsonl"]}
    project.bench.write("cases/q/dataset.yaml", described)
    script = {"schema_version": 1, "answers": {"one": "Paris"}}
    project.bench.write("cases/q/rows.demo.yaml", script)
    finished = project.run()
    assert finished.outcomes == {"q/rows.one[demo]": "passed"}, finished.text
    assert project.artifact("*rows.one*")["runner_type"] == "openclaw"


def test_a_model_that_fails_leaves_the_others_runs_alone(project: Project) -> None:
    project.case("one")
    with FaultEndpoint() as good, FaultEndpoint(always("404")) as bad:
        models(project, good=good, bad=bad)
        finished = project.run("--model=bad", "--agentbench-repetitions=2", model="good")
    assert finished.outcomes == {
        "one[good]": "passed",
        "one[good-r2]": "passed",
        "one[bad]": "error",
        "one[bad-r2]": "error",
    }


def test_a_run_is_found_again_wherever_its_files_lie(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine: another folder of cases, another engine, another place for workspaces."""
    project.case("one")
    with FaultEndpoint() as endpoint:
        models(project, gpt=endpoint)
        assert project.run(model="gpt").outcomes == {"one[gpt]": "passed"}
        asked = len(endpoint.requests)
        moved = project.bench.path / "else/where/cases"
        shutil.copytree(project.bench.path / "cases", moved)
        shutil.rmtree(project.bench.path / "cases")
        for name in ("second", "tmp"):
            (tmp_path / name).mkdir()
        block = {"agent_id": "../agents/writer", "timeout_seconds": 50, **stub(tmp_path / "second").settings}
        put_on_path(monkeypatch, tmp_path / "second/engine")
        path = moved / "run_profiles/claw.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "openclaw": block}))
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        finished = project.run(model="gpt")
        assert (finished.outcomes, len(endpoint.requests)) == ({"one[gpt]": "passed"}, asked), finished.text
    assert finished.runs["one[gpt]"]["reused"]


def test_no_more_runs_at_once_than_the_profile_allows(project: Project) -> None:
    for number in range(5):
        project.case(f"case{number}")
    project.profile(policy={"max_concurrency": 2})
    with FaultEndpoint(latency=0.5) as endpoint:
        models(project, gpt=endpoint)
        assert set(project.run(model="gpt").outcomes.values()) == {"passed"}
    begun = [each.at for each in endpoint.requests]
    assert all(later - earlier >= 0.5 for earlier, later in zip(begun, begun[2:], strict=False))


def test_x_ends_the_runs_that_are_still_going(project: Project, tier: Tier) -> None:
    project.case("a", "Fail.", checks=(check("no", kind="regex_match", pattern="never said"),))
    project.case("b", "Take forever.")
    with FaultEndpoint(lambda message, _: "hang" if "forever" in message else "ok") as endpoint:
        models(project, gpt=endpoint)
        finished = project.run("-x", model="gpt")
    assert finished.outcomes == {"a[gpt]": "failed"}, finished.text
    assert tier.containers() == []


def test_an_interrupt_keeps_finished_runs_and_ends_the_containers(project: Project, tier: Tier) -> None:
    project.case("a")
    project.case("b", "Take forever.")
    hanging = threading.Event()

    def choose(message: str, _: int) -> str:
        if "forever" not in message:
            return "ok"
        hanging.set()
        return "hang"

    with FaultEndpoint(choose) as endpoint:
        models(project, gpt=endpoint)
        options = ("-v", "--model=gpt", "--agentbench-run-profile=claw", "--agentbench-concurrency=1")
        options += ("--agentbench-grace=0",)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *LEAN, *options],
            cwd=project.bench.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        said = ""
        while "PASSED" not in said:
            said += process.stdout.readline()
        assert hanging.wait(60), said
        assert len(tier.containers()) == 1
        os.kill(process.pid, signal.SIGINT)
        said += process.communicate(timeout=30)[0]
        assert process.returncode == pytest.ExitCode.INTERRUPTED, said
        assert tier.containers() == []
        endpoint.choose = lambda message, nth: "ok"
        finished = project.run(model="gpt")
    assert finished.outcomes == {"a[gpt]": "passed", "b[gpt]": "passed"}, finished.text
    assert [finished.runs[name]["reused"] for name in ("a[gpt]", "b[gpt]")] == [True, False]


def test_a_time_out_that_a_case_expects_is_a_result_to_reuse(project: Project) -> None:
    late = (check("late", kind="status_is", status="timed_out"), *SAYS)
    project.profile(openclaw={"timeout_seconds": 2})
    project.case("one", checks=late[:1])
    project.case("two")
    forever = {"schema_version": 1, "replies": [{"steps": [{"content": "Late.", "latency_seconds": 600}]}]}
    for case_id in ("one", "two"):
        project.bench.write(f"cases/{case_id}/demo.yaml", forever)
    expected = {"one[demo]": "passed", "two[demo]": "failed"}
    assert project.run().outcomes == expected
    again = project.run()
    assert again.outcomes == expected
    assert [again.runs[name]["reused"] for name in expected] == [True, False]


@needs_bubblewrap
def test_verifiers_hooks_and_all_checks_look_at_what_openclaw_left(project: Project) -> None:
    project.bench.write("cases/one/verify/look.sh", 'test "$(cat out/report.md)" = "# Report"\n')
    project.bench.write(
        "cases/one/hook.py",
        "def seen(artifact):\n    return [(each.path, each.change) for each in artifact.changes] == "
        "[('AGENTS.md', 'modified'), ('out/report.md', 'added')]\n",
    )
    hooks = {
        "schema_version": 1,
        "evaluation_profile_id": "hooks",
        "title": "H",
        "security_policy": {"allow_local_python_hooks": True},
    }
    project.bench.write("cases/evaluation_profiles/hooks.yaml", hooks)
    checks: list[dict[str, Any]] = [
        {"check_id": "hook", "python_hook": {"path": "hook.py", "callable_name": "seen"}},
        check("file", kind="file_exists", path="out/report.md"),
        check("folder", kind="path_exists", path="out"),
        check("text", kind="file_contains", path="out/report.md", text="# Report"),
        check("own", kind="openclaw_workspace_file_present", relative_path="AGENTS.md", contains_all=["MORE"]),
        check("status", kind="status_is", status="success"),
        check("kept", kind="output_artifact_present", artifact_id="out/report.md", artifact_type="workspace_file"),
        check("calls", kind="tool_call_count", count=2),
        *SAYS,
    ]
    verify = {"files": {"look.sh": "verify/look.sh"}, "command": ["sh", "look.sh"]}
    project.case("one", checks=checks, verify=verify)
    project.script("one", write("out/report.md", "# Report\n"), shell("echo more >> AGENTS.md"))
    options = ("--agentbench-evaluation-profile=hooks", "--junit-xml=junit.xml")
    first = project.run(*options)
    outcomes = {each["check_id"]: each["outcome"] for each in first.runs["one[demo]"]["checks"]}
    assert set(outcomes.values()) == {"passed"}, first.text
    assert len(outcomes) == len(checks) + 1

    [case] = ElementTree.parse(project.bench.path / "junit.xml").iter("testcase")
    told = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
    assert told["agentbench.status"] == "success"
    assert told["agentbench.check.own"] == "passed"
    assert int(told["agentbench.tokens.input"]) > 0
    assert max(map(len, told.values())) < 200

    [kept, _] = project.artifact("one")["output_artifacts"]
    checks[5:6] = [check("uri", kind="output_artifact_present", uri=kept["uri"])]
    project.case("one", checks=checks, verify=verify)
    project.script("one", write("out/report.md", "# Report\n"), shell("echo more >> AGENTS.md"))
    again = project.run(*options)
    assert (again.outcomes, again.runs["one[demo]"]["reused"]) == ({"one[demo]": "passed"}, True), again.text


def test_the_expected_file_counts_among_more_changes_than_are_listed(project: Project) -> None:
    project.case(
        "one",
        checks=(check("report", kind="openclaw_workspace_file_present", relative_path="zz/report.md", contains="#"),),
        asked={"context": {"openclaw": {"expected_artifact": "zz/report.md"}}},
    )
    many = shell("for n in $(seq 1100); do : > file-$n; done")
    project.script("one", many, write("zz/report.md", "# Report\n"))
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    artifact = project.artifact("one")
    assert len(artifact["changes"]) == 1000
    assert artifact["output_artifacts"][0]["artifact_id"] == "zz/report.md"


def test_a_session_leaves_no_folder_behind(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    for case_id in ("one", "two"):
        project.bench.write(f"cases/{case_id}/files/data.txt", "1\n")
        project.case(case_id, workspace="files")
    assert set(project.bench.spawn("--model=demo", "--agentbench-run-profile=claw").outcomes.values()) == {"passed"}
    assert list((tmp_path / "t").iterdir()) == []
