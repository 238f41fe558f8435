"""Sessions with OpenClaw: always its stub, and slow tests with the stub in docker and the real program in docker.

One test covers the behaviour that is the same in all three tiers. The real program runs only if its stub could be
wrong.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from openclaw_sessions import REPORT, Project, events, openclaw_project, shell, steps
from openclaw_tiers import IN_DOCKER, REAL, SLOW_STUB, STUB
from support.bench import LEAN, Bench, Finished, check
from support.docker_here import needs_docker
from support.fault_endpoint import FaultEndpoint, always
from support.openclaw_here import OPENCLAW_IMAGE

from pytest_agentbench.records.base import DIMENSIONS

CASES = Path(__file__).parents[3] / "cases"
KEY = "sk-or-v1-" + "7c1f" * 16


@pytest.fixture(params=[SLOW_STUB, IN_DOCKER, REAL])
def project(request: pytest.FixtureRequest, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    with openclaw_project(request.param, bench, monkeypatch) as project:
        yield project


@pytest.mark.slow
@pytest.mark.parametrize("project", [STUB, IN_DOCKER], indirect=True)
def test_a_turn_that_writes_a_file(project: Project) -> None:
    project.case("one", "Produce report.md.")
    project.script("one", steps(REPORT, says="report.md is written."))
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    artifact = project.artifact("one")
    assert (artifact["status"], artifact["runner_type"]) == ("success", "openclaw")
    assert events(artifact, "final_output")[0]["content"] == "report.md is written."
    assert [(call["name"], call["arguments"]) for call in events(artifact, "tool_call")] == [tuple(REPORT.values())]
    assert len(events(artifact, "tool_result")) == 1
    [change] = artifact["changes"]
    assert (change["path"], change["change"], change["diff"]) == (
        "report.md",
        "added",
        "@@ -0,0 +1,3 @@\n+# Report\n+\n+First.\n",
    )
    [kept] = artifact["output_artifacts"]
    assert (kept["artifact_id"], kept["artifact_type"]) == ("report.md", "workspace_file")
    assert (project.bench.path / "outputs" / kept["uri"]).read_text() == "# Report\n\nFirst.\n"
    with tarfile.open(project.bench.path / "outputs" / artifact["workspace"]) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert {"report.md", "style.txt", "AGENTS.md", "SOUL.md", "USER.md"} <= names
    assert artifact["usage"]["input_tokens"] > 0
    assert project.tier.containers() == []


def test_a_second_turn_revises_the_file_of_the_first(project: Project) -> None:
    revised = {"path": "report.md", "content": "# Report\n\nSecond.\n"}
    project.case("two", "Write report.md.", "Revise it.")
    project.script(
        "two",
        {"when": "Write report.md.", **steps(REPORT, says="Written.")},
        {
            "when": "Revise it.",
            **steps(
                {"name": "read", "arguments": {"path": "report.md"}},
                {"name": "write", "arguments": revised},
                says="Revised.",
            ),
        },
    )
    finished = project.run()
    assert finished.outcomes == {"two[demo]": "passed"}, finished.text
    artifact = project.artifact("two")
    said = [(event["role"], event["content"]) for event in events(artifact, "message") if event["role"] != "system"]
    assert said == [
        ("user", "Write report.md."),
        ("assistant", "Written."),
        ("user", "Revise it."),
        ("assistant", "Revised."),
    ]
    assert [call["name"] for call in events(artifact, "tool_call")] == ["write", "read", "write"]
    assert "First." in events(artifact, "tool_result")[1]["content"]
    assert [(each["path"], each["change"]) for each in artifact["changes"]] == [("report.md", "added")]
    assert "+Second." in artifact["changes"][0]["diff"]


def test_a_turn_that_takes_too_long_ends_with_its_container(project: Project) -> None:
    project.profile(seconds=project.tier.time_out)
    project.case("slow", "Produce report.md.", checks=(check("timed-out", kind="status_is", status="timed_out"),))
    project.script("slow", {"steps": [{"tool_calls": [REPORT]}, {"content": "Late.", "latency_seconds": 600}]})
    finished = project.run()
    assert finished.outcomes == {"slow[demo]": "passed"}, finished.text
    artifact = project.artifact("slow")
    assert "openclaw.timeout_seconds" in artifact["error"]["message"]
    left = [each["path"] for each in artifact["changes"]]
    assert left == ["report.md"] or not events(artifact, "tool_result")  # a busy machine may not get that far
    assert project.tier.time_out <= artifact["duration_seconds"] < project.tier.time_out + 10
    assert project.tier.containers() == []


def test_an_agent_that_crashes_has_failed(project: Project) -> None:
    project.case("crash", "Produce report.md.")
    project.script("crash", steps(REPORT, shell(project.tier.suicide), says="Never said."))
    finished = project.run()
    assert finished.outcomes == {"crash[demo]": "failed"}, finished.text
    artifact = project.artifact("crash")
    assert (artifact["status"], artifact["error"]["code"]) == ("failed", "openclaw_crashed")
    assert [each["path"] for each in artifact["changes"]] == ["report.md"]
    assert project.tier.containers() == []


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_a_link_that_leads_out_is_reported_and_not_followed(project: Project) -> None:
    project.case("link", "Produce report.md.")
    project.script("link", steps(shell("ln -s /etc/passwd report.md"), says="report.md is written."))
    finished = project.run()
    assert finished.outcomes == {"link[demo]": "failed"}, finished.text
    assert [row["outcome"] for row in finished.runs["link[demo]"]["checks"]] == ["failed"]
    artifact = project.artifact("link")
    [change] = artifact["changes"]
    assert (change["after"]["kind"], change["after"]["target"]) == ("link", "/etc/passwd")
    assert artifact["output_artifacts"] == []
    secret = Path("/etc/passwd").read_bytes().splitlines()[0]
    assert [name for name, content in project.stored() if secret in content] == []


@pytest.mark.parametrize("project", [SLOW_STUB], indirect=True)
def test_a_model_unknown_to_the_provider_is_an_error_and_no_failure(project: Project) -> None:
    asks_a_provider_that_refuses(project, "404", requests=1, said="does not exist")


def test_a_request_refused_by_the_provider_is_an_error_and_no_failure(project: Project) -> None:
    asks_a_provider_that_refuses(project, "503", requests=2, said="Overloaded")


def asks_a_provider_that_refuses(project: Project, fault: str, *, requests: int, said: str) -> None:
    project.profile(runner_defaults={"retries": 1})
    project.case("asked", "Produce report.md.")
    with FaultEndpoint(always(fault)) as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = project.run(model="gpt")
        assert len(endpoint.requests) == requests
    row = finished.runs["asked[gpt]"]
    assert (row["outcome"], row["status"]) == ("error", "provider_error"), finished.text
    assert said in row["message"]
    assert project.tier.containers() == []


def test_the_key_stays_with_the_client(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent writes all that it can see of its machine: environment, configuration, process table."""
    monkeypatch.setenv("OUR_MODELS_KEY", KEY)
    processes = "/proc/[0-9]*/environ" if project.tier.isolates else "/proc/self/environ"
    look = f'{{ env; cat "${{OPENCLAW_CONFIG_PATH%/*}}"/*; cat {processes}; }} > report.md 2>/dev/null; echo looked'
    calls = [{"id": "c1", "type": "function", "function": {"name": "exec", "arguments": json.dumps({"command": look})}}]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if any(message["role"] == "tool" for message in body["messages"]):
            return {"role": "assistant", "content": "Looked."}
        return {"role": "assistant", "content": None, "tool_calls": calls}

    project.case(
        "look", "Look around.", checks=(check("looked", kind="file_contains", path="report.md", text="OPENCLAW"),)
    )
    with FaultEndpoint(answer=answer) as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "OUR_MODELS_KEY"})
        finished = project.run("--agentbench-keep-workspaces", model="gpt")
        asked = [request.headers["authorization"] for request in endpoint.requests]
    assert finished.outcomes == {"look[gpt]": "passed"}, finished.text
    assert set(asked) == {f"Bearer {KEY}"}
    assert [name for name, content in project.stored() if KEY.encode() in content] == []
    assert [name for name, content in project.stored() if b"[redacted]" in content and "report.md" in name] == []


@pytest.mark.parametrize("project", [SLOW_STUB], indirect=True)
def test_a_run_that_uses_up_the_budget_by_itself_is_stopped_in_its_course(project: Project) -> None:
    project.case("greedy", "Produce report.md.")
    project.script("greedy", steps(REPORT, REPORT, REPORT))
    finished = project.run("--agentbench-max-tokens=1")
    row = finished.runs["greedy[demo]"]
    assert (row["outcome"], row["status"]) == ("error", "provider_error"), finished.text
    assert "tokens (--agentbench-max-tokens)" in row["message"]
    artifact = project.artifact("greedy")
    assert artifact["error"]["code"] == "over_budget"
    assert len(events(artifact, "tool_call")) == 1


def test_runs_side_by_side_share_nothing(project: Project) -> None:
    """Each run leaves a mark in every writable place, and lists what is there, while the others work."""
    count, places = project.tier.many, '. "$HOME" "$OPENCLAW_STATE_DIR" "$OPENCLAW_STATE_DIR/.."'
    project.profile(policy={"max_concurrency": count})

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if (results := sum(message["role"] == "tool" for message in body["messages"])) == 2:
            return {"role": "assistant", "content": "Marked."}
        [number] = set(re.findall(r"Leave mark (\d)", str(body["messages"])))
        command = f'for place in {places}; do touch "$place/mark-{number}"; done' if not results else f"ls -A {places}"
        function = {"name": "exec", "arguments": json.dumps({"command": command})}
        call = {"id": f"call-{results}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    for number in range(count):
        project.case(f"case-{number}", f"Leave mark {number}.", checks=(check("x", kind="final_response_present"),))
    with FaultEndpoint(answer=answer, latency=0.2) as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = project.run(model="gpt")
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    artifacts = [project.artifact(f"case-{number}") for number in range(count)]
    begun = [datetime.fromisoformat(artifact["started_at"]) for artifact in artifacts]
    durations = [timedelta(seconds=artifact["duration_seconds"]) for artifact in artifacts]
    assert max(begun) < min(start + took for start, took in zip(begun, durations, strict=True))
    for number, artifact in enumerate(artifacts):
        listed = events(artifact, "tool_result")[1]["content"]
        assert set(re.findall(r"mark-\d", listed)) == {f"mark-{number}"}
        assert listed.count(f"mark-{number}") == 4
        assert [change["path"] for change in artifact["changes"]] == [f"mark-{number}"]


@pytest.mark.parametrize("project", [SLOW_STUB], indirect=True)
def test_the_judge_sees_the_turns_the_calls_the_diff_and_the_outputs(project: Project) -> None:
    project.case(
        "judged", "Write report.md.", "Thank you.", expectations={"hard_expectations": [{"text": "Is brief."}]}
    )
    project.script("judged", {"matches": "Write", **steps(REPORT, says="Written.")}, {"content": "Welcome."})
    project.bench.write(
        "cases/evaluation_profiles/judged.yaml",
        {
            "schema_version": 1,
            "evaluation_profile_id": "judged",
            "title": "Judged",
            "judges": [{"judge_id": "main", "type": "llm_probe", "model": "gpt"}],
            "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
            "aggregation": {"method": "median"},
        },
    )
    scored = {"score": 8, "evidence": ["It says so."]}
    verdict = {"summary": "Brief.", "overall": scored, "dimensions": dict.fromkeys(DIMENSIONS, scored)}
    verdict["expectations"] = [{"kind": "hard", "index": 0, "met": 1, "evidence": "x"}]
    said = {"role": "assistant", "content": json.dumps(verdict)}
    with FaultEndpoint(answer=lambda _: said) as endpoint:
        judge = {"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"}
        project.bench.models({"model_id": "scripted", "scripted": True, "judge": "gpt"}, judge)
        finished = project.run("--agentbench-evaluation-profile=judged", model="scripted")
        [asked] = endpoint.requests
    assert finished.outcomes == {"judged[scripted]": "passed"}, finished.text
    prompt = "\n".join(message["content"] for message in asked.body["messages"])
    for shown in (
        "Write report.md.",
        "Thank you.",
        "Written.",
        "Welcome.",
        "write",
        "+# Report",
        "# Report\n\nFirst.\n",
    ):
        assert shown in prompt, shown


@pytest.mark.parametrize("project", [IN_DOCKER], indirect=True)
def test_an_agent_that_takes_all_memory_is_stopped(project: Project) -> None:
    project.profile(sandbox={"type": "auto", "memory_mb": project.tier.memory_mb})
    hog = f"python3 -c 'held = [bytearray(2**20) for _ in range({2 * project.tier.memory_mb})]'"
    project.case("hog", "Produce report.md.")
    project.script("hog", steps(REPORT, shell(hog), says="Never said."))
    finished = project.run()
    assert finished.outcomes == {"hog[demo]": "failed"}, finished.text
    artifact = project.artifact("hog")
    assert (artifact["status"], artifact["error"]["code"]) == ("failed", "sandbox_limit"), artifact["error"]
    assert "memory" in artifact["error"]["message"]
    assert [each["path"] for each in artifact["changes"]] == ["report.md"]
    assert project.tier.containers() == []


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_a_killed_sessions_container_is_removed_by_the_next(project: Project) -> None:
    project.case("waits", "Produce report.md.")
    project.script("waits", {"steps": [{"tool_calls": [REPORT]}, {"content": "Late.", "latency_seconds": 600}]})
    project.case("goes", "Produce report.md.")
    project.script("goes", steps(REPORT))
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "--agentbench-run-profile=contained"]
    with subprocess.Popen(
        [*command, "-k", "waits"], cwd=project.bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as killed:
        report = Path("cases-never-there")
        deadline = time.monotonic() + 120
        while not (report := next(project.tier.below.rglob("report.md"), report)).is_file():
            assert killed.poll() is None, killed.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        killed.kill()
    assert len(project.tier.containers()) == 1
    finished = project.run("-k", "goes")
    assert finished.outcomes == {"goes[demo]": "passed"}, finished.text
    assert project.tier.containers() == []
    assert list((project.tier.below / "t").glob("agentbench-*/*")) == []


@pytest.mark.parametrize("project", [SLOW_STUB, REAL], indirect=True)
def test_a_recorded_run_is_replayed_at_another_time_and_on_another_host(project: Project) -> None:
    """Its requests hold both. The agent runs again, and only its model does not."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if any(message["role"] == "tool" for message in body["messages"]):
            return {"role": "assistant", "content": "report.md is written."}
        function = {"name": "write", "arguments": json.dumps(REPORT["arguments"])}
        call = {"id": "c1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    project.case("one", "Produce report.md.")
    with FaultEndpoint(answer=answer) as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        recorded = project.run("--agentbench-cassettes=record", model="gpt")
        assert recorded.outcomes == {"one[gpt]": "passed"}, recorded.text
        assert len(endpoint.requests) == 2
    before = project.artifact("one")
    shutil.rmtree(project.bench.path / "outputs")

    replayed = project.run("--agentbench-cassettes=replay", model="gpt")

    assert replayed.outcomes == {"one[gpt]": "passed"}, replayed.text
    after = project.artifact("one")
    assert (before["cassette"], after["cassette"]) == ("recorded", "replayed")
    assert after["usage"] == before["usage"]
    for kind in ("tool_call", "tool_result", "final_output"):
        times = dict.fromkeys(("at", "sequence", "duration_seconds"), 0)
        told = [{**event, **times} for event in events(after, kind)]
        assert told == [{**event, **times} for event in events(before, kind)] != []


def example(bench: Bench, image: str = OPENCLAW_IMAGE) -> Finished:
    """Run a session on the project's example cases with this image."""
    shutil.copytree(CASES, bench.path / "cases", ignore=shutil.ignore_patterns("outputs", "__pycache__", "mcp"))
    profile = bench.path / "cases" / "run_profiles" / "standard.yaml"
    profile.write_text(profile.read_text().replace(OPENCLAW_IMAGE, image))
    return bench.run("cases/openclaw", "--model=demo", "--agentbench-profile=standard", "-rs")


SKIPPED = {"release_notes[demo]": "skipped", "revised_notes[demo]": "skipped"}


def test_the_examples_are_skipped_where_no_docker_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.path}/none.sock")
    finished = example(bench)
    assert finished.outcomes == SKIPPED, finished.text
    assert "no docker daemon answers at" in finished.text


@needs_docker
@pytest.mark.slow
def test_the_examples_are_skipped_where_the_image_is_missing(bench: Bench) -> None:
    finished = example(bench, "localhost/no-such-image:1")
    assert finished.outcomes == SKIPPED, finished.text
    assert "build it with `agentbench openclaw image`" in finished.text
