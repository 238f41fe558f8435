"""Sessions with `mcp_planner`: settings of the run profile, and the runs that a change makes again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import mcp_server
from support.bench import Bench, Finished
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.engine.running import run_limit
from pytest_agentbench.packs.mcp_bench.planner import RUNNER
from pytest_agentbench.runners.probe import llm_probe


def planned(*tools: tuple[str, dict[str, Any]]) -> str:
    calls = [{"tool": name, "parameters": given} for name, given in tools]
    return json.dumps({"reasoning": "So.", "should_continue": bool(calls), "planned_tools": calls})


SCRIPT = {
    "schema_version": 1,
    "replies": [
        {"matches": "This is round 1 of", "content": planned(("write_file", {"path": "a.txt", "content": "Paris"}))},
        {"matches": "This is round 2 of", "content": planned(("read_file", {"path": "a.txt"}))},
        {"matches": "This is round", "content": planned()},
        {"matches": "Write the final answer", "content": "Paris"},
        {"content": "Paris"},
    ],
}
TOOLS = {"llm_probe": {"tools": ["write_file", "read_file"]}}


@pytest.fixture
def project(bench: Bench) -> Bench:
    """Return a project with the same case twice: for the planner, and for llm_probe."""
    for name in ("mcp_planner", "llm_probe"):
        messages = [{"role": "user", "content": "The capital of France?"}]
        bench.case(name, runner={"type": name}, input={"messages": messages, "context": TOOLS})
        bench.write(f"cases/{name}/demo.yaml", SCRIPT)
    return bench


def session(bench: Bench, **planner: Any) -> Finished:
    bench.profile("here", planner=planner)
    return bench.run("--model=demo", "--agentbench-run-profile=here", "cases")


def fingerprints(finished: Finished) -> dict[str, str]:
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    return {row["case_id"]: row["fingerprint"] for row in finished.runs.values()}


@pytest.mark.slow
def test_the_planner_runs_a_case_and_its_runs_are_reused(project: Bench) -> None:
    finished = session(project)
    [row] = [row for row in finished.runs.values() if row["case_id"] == "mcp_planner"]
    artifact = json.loads((project.path / "outputs" / row["artifact"]).read_text())
    calls = [event["name"] for event in artifact["trace"] if event["type"] == "tool_call"]
    assert (artifact["runner_type"], calls) == ("mcp_planner", ["write_file", "read_file"])
    assert fingerprints(session(project)) == fingerprints(finished)
    assert all(row["reused"] for row in session(project).runs.values())


@pytest.mark.slow
def test_settings_of_the_planner_are_part_of_its_own_runs_alone(project: Bench) -> None:
    before, after = fingerprints(session(project)), fingerprints(session(project, max_rounds=1))
    assert before["llm_probe"] == after["llm_probe"]
    assert before["mcp_planner"] != after["mcp_planner"]
    assert fingerprints(session(project, max_rounds=1, distraction_servers=3)) == after


def test_a_wrong_setting_is_an_error_of_its_file(project: Bench) -> None:
    finished = session(project, max_rounds=0, language="fr")
    assert finished.exit != 0
    assert "max_rounds" in finished.text
    assert "language" in finished.text
    assert "here.yaml:" in finished.text


def test_runs_of_the_planner_have_a_limit_of_their_own_where_the_profile_has_none() -> None:
    profile = RunProfile.default()
    assert run_limit(profile, RUNNER) == 3000
    assert run_limit(profile, llm_probe) is None
    shorter = profile.model_copy(update={"run_timeout_seconds": 5.0})
    assert (run_limit(shorter, RUNNER), run_limit(shorter, llm_probe)) == (5, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("cassettes", "tokenizer"), [("off", "o200k_base"), ("record", None)])
def test_requests_of_a_cassette_do_not_depend_on_an_installed_tokenizer(
    project: Bench, monkeypatch: pytest.MonkeyPatch, cassettes: str, tokenizer: str | None
) -> None:
    pytest.importorskip("bpe_openai")
    monkeypatch.setenv("BENCH_KEY", "a-key")
    with FaultEndpoint(answer=lambda _: {"role": "assistant", "content": planned()}) as endpoint:
        project.models({"model_id": "gpt-4o", "base_url": endpoint.base_url, "api_key_env": "BENCH_KEY"})
        options = ("--model=gpt-4o", f"--agentbench-cassettes={cassettes}", "cases/mcp_planner")
        [row] = project.run(*options).runs.values()
    artifact = json.loads((project.path / "outputs" / row["artifact"]).read_text())
    assert artifact["request"]["tokenizer"] == tokenizer


@pytest.mark.slow
def test_three_servers_are_driven_and_ten_that_distract_are_not_started(bench: Bench) -> None:
    log, names = bench.path / "starts.log", [*"ABC", *(f"Idle{n}" for n in range(10))]
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": {name: _server(name, log) for name in names}})
    bench.case("three", runner={"type": "mcp_planner"}, mcp_servers=names)
    sums = [(f"{name}:add", {"a": at, "b": 1}) for at, name in enumerate("ABC")]
    wrong = [("A:unheard_of", {}), ("B:die", {}), ("C:add", {"a": "x"})]
    replies = [
        {"matches": "This is round 1 of", "content": planned(*sums)},
        {"matches": "This is round 2 of", "content": planned(*wrong)},
        {"matches": "This is round 3 of", "content": planned(("B:echo", {"text": "still here"}))},
        {"matches": "This is round 4 of", "content": planned()},
        {"matches": "Write the final answer", "content": "Paris"},
    ]
    bench.write("cases/three/demo.yaml", {"schema_version": 1, "replies": replies})
    bench.profile("here", sandbox="local")
    options = ("--model=demo", "--agentbench-run-profile=here", "cases")
    assert set(bench.run(*options).outcomes.values()) == {"passed"}
    log.unlink()

    finished = bench.run("--agentbench-no-reuse", *options)

    [row] = finished.runs.values()
    artifact = json.loads((bench.path / "outputs" / row["artifact"]).read_text())
    results = [event for event in artifact["trace"] if event["type"] == "tool_result"]
    assert [each["content"] for each in results[:3]] == ["1", "2", "3"]
    assert [each["is_error"] for each in results[3:]] == [True, True, True, False]
    assert results[-1]["content"] == "still here"
    starts = [line.split()[1] for line in log.read_text().splitlines() if line.startswith("start ")]
    assert sorted(starts) == ["A", "B", "B", "C"]  # the one that died was started again
    assert (row["metrics"]["valid_tool_name_rate"], row["metrics"]["planning_json_compliance"]) == (6 / 7, 1)


def _server(name: str, log: Path) -> dict[str, Any]:
    script = Path(mcp_server.__file__)
    args = ["-I", script.name, "--name", name, "--log", str(log), "--tools", "9"]
    return {"command": "python3", "args": args, "cwd": str(script.parent)}
