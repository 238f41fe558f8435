"""The agent of an OpenClaw case, reasons to run again, and other runners, on the stubs in every session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from openclaw_project import SAYS, Project, of_agent, shell, write
from openclaw_tiers import put_on_path, stub
from support.bench import ECHO, Bench, check
from support.fault_endpoint import FaultEndpoint

DIMENSIONS = ("task", "process", "autonomy", "closeness", "efficiency", "spark")


@pytest.fixture
def project(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    put_on_path(monkeypatch, tmp_path / "engine", tmp_path / "engine-of-two")
    return Project(bench, {**stub(tmp_path).settings})


def test_a_profile_without_openclaw_skips_the_case_and_names_the_missing_block(project: Project) -> None:
    project.case("one")
    project.bench.profile("plain")
    finished = project.run(profile="plain")
    assert finished.outcomes == {"one[demo]": "skipped"}
    said = finished.runs["one[demo]"]["message"]
    assert "the run profile 'plain' has neither; add `openclaw: {agent_id: ..., image: name:tag" in said
    assert finished.exit == 0
    assert project.run("--agentbench-strict", profile="plain").outcomes == {"one[demo]": "error"}


def test_an_engine_that_is_not_there_skips_the_case(project: Project) -> None:
    project.case("one")
    project.profile(openclaw={"docker_cli": "no-such-engine"})
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "no program 'no-such-engine'" in finished.runs["one[demo]"]["message"]


@pytest.mark.slow
def test_a_case_runs_with_the_agent_that_the_suite_assigns_to_it(project: Project) -> None:
    project.agent("by_id")
    project.agent("by_tag")
    for case_id, agent, tags in (("a", "by_id", []), ("b", "by_tag", ["long"]), ("c", "writer", [])):
        project.case(case_id, checks=(of_agent(case_id, agent),), tags=tags)
    project.suite(
        {"agent_id": "by_id", "case_selection": {"include_case_ids": ["a"]}},
        {"agent_id": "../agents/by_tag", "case_selection": {"include_tags": ["long"]}},
    )
    finished = project.run("--agentbench-suite=s")
    assert finished.outcomes == {"a[demo]": "passed", "b[demo]": "passed", "c[demo]": "passed"}, finished.text
    without = project.run()
    assert without.outcomes == {"a[demo]": "failed", "b[demo]": "failed", "c[demo]": "passed"}, without.text


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            {"agent_id": "other", "case_selection": {"include_tags": ["long"]}},
            "case 'a' is assigned to 'writer' already",
        ),
        ({"agent_id": "nobody", "case_selection": {"include_case_ids": ["b"]}}, "there is no agent 'nobody'"),
        ({"agent_id": "other", "case_selection": {"include_case_ids": ["x"]}}, "no case has the id 'x'; there is a, b"),
    ],
)
def test_invalid_assignments_are_usage_errors_before_any_run(
    project: Project, assignment: dict[str, Any], said: str
) -> None:
    project.agent("other")
    project.case("a", tags=["long"])
    project.case("b")
    project.suite({"agent_id": "writer", "case_selection": {"include_case_ids": ["a"]}}, assignment)
    with FaultEndpoint() as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = project.run("--agentbench-suite=s", model="gpt")
        assert endpoint.requests == []
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert said in finished.text
    assert "suites/s.yaml:" in finished.text


def test_an_agent_that_is_wrong_is_an_error_of_its_cases_alone(project: Project) -> None:
    project.agent("writer", openclaw={"agents_defaults": {"subagents": {"model": "gpt-9"}}})
    project.case("one")
    project.case("two", runner={"type": "llm_probe"})
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "error", "two[demo]": "passed"}, finished.text
    said = finished.runs["one[demo]"]["message"]
    assert "agents/writer/agent.yaml:" in said
    assert "openclaw.agents_defaults.subagents.model: an agent cannot set the model" in said


def _edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


EDITS: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "a byte": (True, lambda agent: (agent / "workspace/AGENTS.md").write_text("# Writer\n")),
    "a mode": (True, lambda agent: (agent / "workspace/AGENTS.md").chmod(0o700)),
    "a file": (True, lambda agent: (agent / "workspace/more.md").touch()),
    "a fragment": (True, lambda agent: _edit(agent / "agent.yaml", "You write", "You draw")),
    "the image": (True, lambda agent: _edit(agent.parents[1] / "run_profiles/claw.yaml", "stub:1", "stub:2")),
    "the title": (False, lambda agent: _edit(agent / "agent.yaml", "title: writer", "title: The writer")),
    "the tags": (False, lambda agent: _edit(agent / "agent.yaml", "tags: []", "tags: [a, b]")),
    "the description": (False, lambda agent: _edit(agent / "agent.yaml", "description: x", "description: y")),
    "the identity": (False, lambda agent: _edit(agent / "agent.yaml", "name: Ann", "name: Bob")),
    "the time limit": (False, lambda agent: _edit(agent.parents[1] / "run_profiles/claw.yaml", ": 60", ": 61")),
}


@pytest.mark.slow
def test_only_changes_that_affect_a_run_make_it_run_again(project: Project, tmp_path: Path) -> None:
    openclaw = {"identity": {"name": "Ann"}, "agent": {"prompt": "You write."}}
    project.agent("writer", openclaw=openclaw, tags=[], description="x")
    project.case("one")
    project.profile(openclaw={**stub_with_two_images(tmp_path)})
    with FaultEndpoint() as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        assert project.run(model="gpt").outcomes == {"one[gpt]": "passed"}
        for what, (runs_again, edit) in EDITS.items():
            before = len(endpoint.requests)
            edit(project.bench.path / "cases/agents/writer")
            finished = project.run(model="gpt")
            assert finished.outcomes == {"one[gpt]": "passed"}, (what, finished.text)
            assert (len(endpoint.requests) > before) is runs_again, what
            assert finished.runs["one[gpt]"]["reused"] is not runs_again, what


def stub_with_two_images(folder: Path) -> dict[str, Any]:
    from support import stub_engine

    programs = folder / "programs"
    images = {"localhost/stub:1": programs, "localhost/stub:2": programs}
    return {"image": "localhost/stub:1", "docker_cli": stub_engine.installed(folder / "engine-of-two", images)}


def test_an_own_agent_runs_openclaw_cases_in_its_place(project: Project) -> None:
    project.bench.agent(ECHO)
    project.bench.profile("plain")
    turns = [{"role": "user", "content": "And now?"}]
    project.case("one", asked={"turns": turns, "context": {"openclaw": {"expected_artifact": "report.md"}}})
    finished = project.run(profile="plain")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert project.artifact("one")["runner_type"] == "callable"


def test_predictions_replace_it_too(project: Project) -> None:
    project.bench.rows("answers.jsonl", {"id": "one", "prediction": "Paris"})
    project.bench.profile("plain")
    project.case("one")
    finished = project.bench.run("--agentbench-predictions=answers.jsonl", "--agentbench-run-profile=plain")
    assert list(finished.outcomes.values()) == ["passed"], finished.text


@pytest.mark.slow
def test_mcp_servers_of_the_run_profile_are_not_its(project: Project) -> None:
    project.profile(mcp_servers={"gone": {"command": "no-such-server"}})
    project.case("one")
    assert project.run().outcomes == {"one[demo]": "passed"}
    project.case("two", runner={"type": "llm_probe"})
    assert project.run("-k", "two").outcomes == {"two[demo]": "skipped"}


def test_a_dry_run_needs_no_engine(project: Project) -> None:
    project.profile(openclaw={"docker_cli": "no-such-engine"})
    project.case("one")
    finished = project.run("--agentbench-dry-run")
    assert "1 of 1 runs are of cases that never ran on this model" in " ".join(finished.text.split())
    assert finished.exit == 0


@pytest.mark.slow
def test_the_expected_file_is_the_first_that_is_kept(project: Project) -> None:
    project.case("one", asked={"context": {"openclaw": {"expected_artifact": "./out/report.md"}}})
    project.script("one", write("a.md", "a"), write("out/report.md", "# Report"), write("z.md", "z"))
    assert project.run().outcomes == {"one[demo]": "passed"}
    kept = [each["artifact_id"] for each in project.artifact("one")["output_artifacts"]]
    assert kept == ["out/report.md", "a.md", "z.md"]


@pytest.mark.slow
def test_the_checks_of_what_a_run_left_hold_on_its_run(project: Project) -> None:
    checks = (
        check("file", kind="openclaw_workspace_file_present", relative_path="report.md", contains_any=["RÉSUMÉ"]),
        check("kept", kind="output_artifact_present", artifact_id="report.md", artifact_type="workspace_file"),
        check("calls", kind="tool_call_count", count=1),
        *SAYS,
    )
    project.case("one", checks=checks)
    project.script("one", write("report.md", "A re\u0301sume\u0301.\n"))
    assert project.run().outcomes == {"one[demo]": "passed"}
    project.case("two", checks=(check("old", kind="openclaw_workspace_file_present", relative_path="AGENTS.md"),))
    assert project.run("-k", "two").outcomes == {"two[demo]": "failed"}, "it was there before the agent came"


@pytest.mark.slow
def test_a_file_is_an_answer_also_when_a_stored_run_is_looked_at_again(project: Project) -> None:
    project.case("one")
    quiet = [{"steps": [write("report.md", "# Report"), {"content": ""}]}]
    project.bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": quiet})
    assert project.run().outcomes == {"one[demo]": "passed"}
    assert not (project.artifact("one")["trace"][-1].get("content") or "").strip()
    path = project.bench.path / "cases/one/test.yaml"
    _edit(path, "check_id: says", "check_id: still_says")
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert finished.runs["one[demo]"]["reused"]


@pytest.mark.slow
def test_a_change_of_what_was_there_is_shown_against_what_that_was(project: Project) -> None:
    """The agent's own files, the added standard files, and AGENTS.md with the prompt at its head."""
    project.agent("writer", openclaw={"agent": {"prompt": "You write."}})
    project.bench.write("cases/one/files/data.txt", "one\ntwo\n")
    project.case("one", workspace="files")
    project.script("one", shell("echo more | tee -a AGENTS.md SOUL.md data.txt"))
    assert project.run().outcomes == {"one[demo]": "passed"}
    changes = {each["path"]: each for each in project.artifact("one")["changes"]}
    assert {path: each["change"] for path, each in changes.items()} == dict.fromkeys(
        ("AGENTS.md", "SOUL.md", "data.txt"), "modified"
    )
    assert all("+more\n" in each["diff"] for each in changes.values())
    assert "-" not in "".join(changes["data.txt"]["diff"].splitlines()[1:])


@pytest.mark.slow
def test_the_judge_reads_the_expected_file_in_whole(project: Project) -> None:
    """Also if the agent changed only one line of it, or neither made nor changed it."""
    template = "".join(f"line {number}\n" for number in range(100))
    project.bench.write("cases/one/files/report.md", template)
    hints = {"context": {"openclaw": {"expected_artifact": "report.md"}}}
    expectations = {"hard_expectations": [{"text": "Is whole."}]}
    project.case("one", workspace="files", asked=hints, expectations=expectations)
    project.case("two", asked=hints, expectations=expectations)
    project.script("one", shell("echo the end >> report.md"))
    project.script("two", shell("printf '\\377' > binary.md"))
    project.bench.write("cases/evaluation_profiles/judged.yaml", JUDGED)
    with FaultEndpoint(answer=lambda _: {"role": "assistant", "content": json.dumps(VERDICT)}) as endpoint:
        project.bench.models(
            {"model_id": "scripted", "scripted": True, "judge": "gpt"},
            {"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"},
        )
        finished = project.run("--agentbench-evaluation-profile=judged", model="scripted")
        prompts = ["".join(message["content"] for message in each.body["messages"]) for each in endpoint.requests]
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    [one], [two] = ([each for each in prompts if text in each] for text in ("line 50", "binary.md"))
    assert f"path: report.md\n\n{template}the end\n" in one
    assert "neither created nor changed the file that the case expects" in two
    assert "path: binary.md\n\n[not text]" in two


SCORED = {"score": 8, "evidence": ["It says so."]}
VERDICT = {
    "summary": "Whole.",
    "overall": SCORED,
    "dimensions": dict.fromkeys(DIMENSIONS, SCORED),
    "expectations": [{"kind": "hard", "index": 0, "met": 1, "evidence": "x"}],
}
JUDGED = yaml.safe_dump(
    {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "Judged",
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "gpt"}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
        "aggregation": {"method": "median"},
    }
)
