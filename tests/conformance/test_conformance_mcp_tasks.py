"""The 56 real tasks of MCP-Bench: all are cases, and all run to the end on servers that replay what was recorded."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import find_cases, index_cases, open_source

DATA = Path(__file__).parents[3] / "shared" / "data" / "mcp"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the conformance data are not here")

REPLAY = Path(__file__).parents[1] / "support" / "mcp_replay_server.py"
TASKS = DATA / "mcpbench_tasks_single_runner_format.json"


def groups() -> list[dict[str, Any]]:
    return json.loads(TASKS.read_text(encoding="utf-8"))["server_tasks"]


def test_of_the_folder_only_the_task_file_holds_cases():
    assert list(find_cases(DATA)) == [TASKS]
    assert len(list(index_cases(ConfigRoot(DATA)))) == 56


def test_every_task_is_a_case_with_all_fields_of_its_file():
    rows = list(open_source(TASKS, SourceRequest(ConfigRoot(DATA))).rows())
    originals = [(group, task) for group in groups() for task in group["tasks"]]
    lines = TASKS.read_text(encoding="utf-8").splitlines()
    assert len(rows) == len(originals) == 56
    for row, (group, task) in zip(rows, originals, strict=True):
        assert isinstance(row, SourceCase)
        case = row.make()
        assert case.case_id == task["task_id"]
        assert task["task_id"] in lines[case.line]  # a task begins a line above its id
        assert case.messages[0].content == case.mcp_task.fuzzy == task["fuzzy_description"]
        assert case.mcp_task.detailed == task["task_description"]
        assert case.mcp_task.dependency_analysis == task["dependency_analysis"]
        assert case.mcp_task.distraction_servers == tuple(task["distraction_servers"])
        assert case.mcp_task.servers == tuple(group["servers"]) == (group["server_name"],)
        assert (case.mcp_task.combination_name, case.mcp_task.combination_type) == (
            group["combination_name"],
            "single_server",
        )
        assert case.tags == tuple(sorted({group["server_name"].lower().replace(" ", "-"), "single_server"}))
        assert case.metadata == {}


def replaying(name: str, *options: str) -> dict[str, Any]:
    catalogue, samples = DATA / "tool_catalogue_live_252.json", DATA / "live_call_samples.jsonl"
    files = ["--catalogue", str(catalogue), "--samples", str(samples)]
    return {
        "command": sys.executable,
        "args": ["-I", str(REPLAY), *files, "--server", name, *options],
        "sandbox": "local",
    }


def recorded_call(server: str) -> dict[str, Any]:
    """A call of one of the server's tools: one that was recorded, if there is one."""
    lines = map(json.loads, (DATA / "live_call_samples.jsonl").read_text(encoding="utf-8").splitlines())
    sample = next((line for line in lines if line["server"] == server and line.get("isError") is False), None)
    if sample is not None:
        return {"tool": f"{server}:{sample['tool']}", "parameters": sample["args"]}
    tools = json.loads((DATA / "tool_catalogue_live_252.json").read_text(encoding="utf-8"))
    tool = next((tool for tool, known in tools.items() if known["server"] == server), f"{server}:lookup")
    return {"tool": tool, "parameters": {}}


def planned(server: str) -> list[dict[str, Any]]:
    """What the planner says: two rounds with the same call, the end, the answer."""
    plan = {"reasoning": "as recorded", "should_continue": True, "planned_tools": [recorded_call(server)]}
    stop = {"reasoning": "enough", "should_continue": False, "planned_tools": []}
    return [
        {"matches": "This is round [12] of", "content": json.dumps(plan)},
        {"matches": "This is round 3 of", "content": json.dumps(stop)},
        {"matches": "Write the final answer", "content": f"Solved with {server}."},
    ]


@pytest.fixture
def campaign(pytester: pytest.Pytester):
    """A session on all tasks with a scripted planner, every server replayed; `options` are those of the servers."""

    def run(*options: str) -> list[dict[str, Any]]:
        cases = pytester.mkdir("cases")
        (cases / "tasks.json").write_bytes(TASKS.read_bytes())
        names = [group["server_name"] for group in groups()]
        servers = {name: replaying(name, *options) for name in names}
        answers = {task["task_id"]: planned(group["server_name"]) for group in groups() for task in group["tasks"]}
        pytester.makeini("[pytest]\n")
        for name, content in {
            "servers.yaml": {"servers": servers},
            "tasks.demo.yaml": {"answers": answers},
            "run_profiles/p.yaml": {
                "run_profile_id": "p",
                "title": "p",
                "execution_policy": {"max_concurrency": 8, "stop_on_runner_error": False},
            },
        }.items():
            path = cases / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.safe_dump({"schema_version": 1, **content}))
        args = ["--model", "demo", "--agentbench-run-profile", "p", "--agentbench-metric", "valid_tool_name_rate>=1"]
        result = pytester.runpytest_subprocess("cases", *args, timeout=300)
        result.assert_outcomes(passed=56)
        report = json.loads((pytester.path / "outputs" / "report.json").read_text(encoding="utf-8"))
        return [json.loads((pytester.path / "outputs" / row["artifact"]).read_text()) for row in report["runs"]]

    return run


def results(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in run["trace"] if event["type"] == "tool_result"]


@pytest.mark.slow
def test_all_tasks_run_to_the_end_on_replayed_servers(campaign):
    runs = campaign()
    assert len({run["case_id"] for run in runs}) == 56
    assert Counter(run["status"] for run in runs) == {"success": 56}
    assert all(len(results(run)) == 2 for run in runs)
    said = {run["case_id"]: results(run)[0]["content"] for run in runs}
    assert said["math_mcp_000"] == "5"
    assert json.loads(said["unit_converter_000"])["converted_value"] == pytest.approx(176.667, abs=0.001)
    assert said["openapi_explorer_001"].startswith("replayed: OpenAPI Explorer has no recorded answer")


@pytest.mark.slow
def test_no_task_is_lost_where_the_server_of_each_dies_in_its_second_call(campaign):
    runs = campaign("--die-after", "1")
    assert Counter(run["status"] for run in runs) == {"success": 56}
    for run in runs:
        first, second = results(run)
        assert first["is_error"] is False
        assert second["is_error"] is True
        assert "ended before it had answered" in second["content"]
        final = next(event["content"] for event in run["trace"] if event["type"] == "final_output")
        assert final.startswith("Solved with ")
