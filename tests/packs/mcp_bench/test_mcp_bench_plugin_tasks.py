"""Sessions on task files of MCP-Bench: items, selection, broken tasks next to others, undeclared servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

REPLAY = Path(__file__).parents[2] / "support" / "mcp_replay_server.py"
SAYS = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: f"{case.messages[0].content} with {', '.join(case.mcp_servers)}"
"""
METRICS = """
from pytest_agentbench import metric

@metric("says_maps")
def says_maps(ground_truth, prediction):
    return float("Google Maps" in prediction)
"""


def task(task_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "task_description": f"Detailed {task_id}",
        "fuzzy_description": f"Fuzzy {task_id}",
        **fields,
    }


TASKS = {
    "server_tasks": [
        {"server_name": "Google Maps", "tasks": [task("maps_000"), task("maps_001")]},
        {
            "server_name": "Google Maps+Weather Data",
            "servers": ["Google Maps", "Weather Data"],
            "combination_type": "two_server",
            "task": task("trip_000", tags=["long"]),
        },
    ]
}


@pytest.fixture
def tasks(bench, tmp_path):
    """Return tasks on two servers with one invented tool each, which are declared, but never started."""
    (tmp_path / "catalogue.json").write_text("{}")
    (tmp_path / "samples.jsonl").write_text("")

    def server(name, **fields):
        files = ["--catalogue", str(tmp_path / "catalogue.json"), "--samples", str(tmp_path / "samples.jsonl")]
        return {"command": sys.executable, "args": ["-I", str(REPLAY), *files, "--server", name], **fields}

    declared = {name: server(name, sandbox="local") for name in ("Google Maps", "Weather Data")}
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": declared})
    bench.write("cases/tasks.json", json.dumps(TASKS, indent=1))
    bench.agent(SAYS + METRICS.replace("from pytest_agentbench", "\nfrom pytest_agentbench"))
    return bench


def collected(bench, *args):
    result = bench.run("--collect-only", "-q", *args)
    return [line.rpartition("::")[2] for line in result.result.outlines if "::" in line]


@pytest.mark.slow
def test_a_task_is_an_item_that_tags_and_ids_select(tasks):
    everything = ["maps_000[agent]", "maps_001[agent]", "trip_000[agent]"]
    assert collected(tasks) == collected(tasks, "cases/tasks.json") == everything
    assert collected(tasks, "-k", "weather-data") == everything[2:]
    assert collected(tasks, "-m", "google-maps and single_server") == everything[:2]
    assert collected(tasks, "-m", "multi_server or nothing") == everything[2:]
    assert collected(tasks, "-m", "two_server and long", "--strict-markers") == everything[2:]
    assert collected(tasks, "cases/tasks.json::maps_001[agent]") == everything[1:2]


def test_a_suite_selects_tasks(tasks):
    suite = {"schema_version": 1, "suite_id": "s", "title": "s"}
    tasks.write(
        "cases/suites/by_id.yaml", {**suite, "suite_id": "by_id", "case_selection": {"include_case_ids": ["maps_001"]}}
    )
    tasks.write(
        "cases/suites/by_tag.yaml",
        {**suite, "suite_id": "by_tag", "case_selection": {"include_tags": ["weather-data"]}},
    )
    assert collected(tasks, "--agentbench-suite", "by_id") == ["maps_001[agent]"]
    assert collected(tasks, "--agentbench-suite", "by_tag") == ["trip_000[agent]"]


@pytest.mark.slow
def test_a_metric_of_the_command_line_decides_tasks(tasks):
    finished = tasks.run("--agentbench-metric", "says_maps>=1")
    assert finished.outcomes == dict.fromkeys(["maps_000[agent]", "maps_001[agent]", "trip_000[agent]"], "passed")
    assert {run["metrics"]["says_maps"] for run in finished.runs.values()} == {1.0}


@pytest.mark.slow
def test_the_profile_selects_the_text_for_the_agent(tasks):
    tasks.profile("detailed", task_text="detailed")
    for profile, word in (((), "Fuzzy"), (("--agentbench-run-profile", "detailed"), "Detailed")):
        finished = tasks.run("--agentbench-metric", "says_maps>=1", "-k", "trip_000", *profile)
        (run,) = finished.runs.values()
        stored = json.loads((tasks.path / "outputs" / run["artifact"]).read_text())
        outputs = [event["content"] for event in stored["trace"] if event["type"] == "final_output"]
        assert outputs == [f"{word} trip_000 with Google Maps, Weather Data"]


@pytest.mark.slow
def test_a_broken_task_is_an_error_of_its_own(tasks):
    broken = {
        "server_tasks": [*TASKS["server_tasks"], {"server_name": "Google Maps", "tasks": [{"task_id": "bad"}, 5]}]
    }
    path = tasks.write("cases/tasks.json", json.dumps(broken, indent=1))
    finished = tasks.run("--agentbench-metric", "says_maps>=1", "--continue-on-collection-errors")
    assert list(finished.outcomes.values()).count("passed") == 3
    line = path.read_text().splitlines().index('     "task_id": "bad"')
    assert f"{path}:{line}:5: found neither task_description nor fuzzy_description" in finished.text
    assert "found a number, expected a task" in finished.text
    finished.result.assert_outcomes(passed=3, errors=2)


@pytest.mark.slow
def test_two_files_with_a_task_of_one_id(tasks):
    tasks.write(
        "cases/zz.json", json.dumps([task("maps_000", servers=["Google Maps"]), task("new", servers=["Google Maps"])])
    )
    finished = tasks.run("--agentbench-metric", "says_maps>=1", "--continue-on-collection-errors")
    assert (
        f"zz.json:1:1: task_id: Duplicate case_id 'maps_000'; {tasks.path}/cases/tasks.json has it too" in finished.text
    )
    finished.result.assert_outcomes(passed=4, errors=1)


def test_predictions_answer_tasks(tasks):
    tasks.write("answers.json", json.dumps({"maps_000": "with Google Maps", "maps_001": "no", "trip_000": "no"}))
    finished = tasks.run("--agentbench-predictions", "answers.json", "--agentbench-metric", "says_maps>=1")
    assert [*finished.outcomes.values()] == ["passed", "failed", "failed"]


@pytest.mark.slow
def test_a_server_that_nobody_declares_is_an_error_of_its_tasks(tasks):
    more = [task("other", servers=["Weather Dta"])]
    tasks.write("cases/more.json", json.dumps(more))
    finished = tasks.run("--agentbench-metric", "says_maps>=1")
    others = dict.fromkeys(["maps_000[agent]", "maps_001[agent]", "trip_000[agent]"], "passed")
    assert finished.outcomes == {"other[agent]": "error", **others}
    assert "more.json:1:1: no MCP server 'Weather Dta' is declared; did you mean 'Weather Data'?" in finished.text


def test_a_servers_file_that_is_wrong_is_one_error(tasks):
    path = tasks.write("cases/servers.yaml", "schema_version: 1\nservers: {A: {comand: x}}\n")
    finished = tasks.run("--agentbench-metric", "says_maps>=1")
    assert finished.text.count(f"{path}:2:15: servers.A.comand: unknown field; did you mean 'command'?") == 1
    assert finished.exit != 0
