"""Servers offered to a task of MCP-Bench, by the tools of its agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.mcp_projects import McpBench

if TYPE_CHECKING:
    from support.bench import Finished

SHARED = Path(__file__).parents[4] / "shared" / "data" / "mcp"

AGENT = """
import pytest
from pytest_agentbench import metric

@metric("said_something")
def said_something(ground_truth, prediction):
    return float(bool(prediction))

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case, context):
        return " ".join(dict.fromkeys(tool.name.partition(":")[0] for tool in context.toolbox().tools))
    return agent
"""
FIXTURE = """
@pytest.fixture(scope="session")
def agentbench_mcp_servers():
    return {}
"""
IDLE = [f"Idle{number:02}" for number in range(15)]


@pytest.fixture
def mcp(bench) -> McpBench:
    mcp = McpBench(bench)
    mcp.servers(**{name: mcp.server(name) for name in (*IDLE, "Real", "Clock")})
    mcp.bench.agent(AGENT)
    return mcp


def offered(mcp: McpBench, *tasks: dict[str, Any], **profile: Any) -> list[list[str]]:
    """Return the servers of each task's tools, in order."""
    texts = {"task_description": "Do it", "server_name": "Real"}
    entries = [{"task_id": f"t{number}", **texts, **task} for number, task in enumerate(tasks)]
    mcp.bench.write("cases/tasks.json", json.dumps(entries))
    mcp.bench.profile("here", sandbox="local", **profile)

    options = ("--agentbench-run-profile=here", "--agentbench-metric=said_something>=1", "--agentbench-no-reuse")
    finished = mcp.bench.run(*options, "cases")

    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    artifacts = [mcp.artifact(finished, f"t{number}[agent]") for number in range(len(tasks))]
    return [artifact["trace"][-1]["content"].split() for artifact in artifacts]


@pytest.mark.slow
def test_the_task_s_own_list_comes_first(mcp: McpBench) -> None:
    listed = ["Idle07", "Idle03", "Idle11"]

    [found, fewer] = offered(mcp, {"distraction_servers": listed}, {}, planner={"distraction_servers": 2})

    assert found == ["Idle03", "Idle07", "Real"]
    assert len(fewer) == 3


@pytest.mark.slow
def test_else_a_sample_that_is_the_same_each_time_and_another_one_for_each_task(mcp: McpBench) -> None:
    first, second = offered(mcp, {}, {})
    again, _ = offered(mcp, {}, {})

    assert first == again != second
    assert first == sorted(first)
    assert "Real" in first
    assert len(first) == len(second) == 1 + 10


@pytest.mark.slow
def test_resident_servers_are_offered_to_all(mcp: McpBench) -> None:
    planner = {"distraction_servers": 0, "resident_servers": ["Clock"]}

    assert offered(mcp, {}, planner=planner) == [["Clock", "Real"]]


def test_a_task_gets_no_server_of_the_profile_or_the_fixture_but_by_name(mcp: McpBench) -> None:
    declared = mcp.server("other")
    fixture = FIXTURE.replace("{}", repr({"Real": mcp.server("from-fixture"), "Fixed": declared}))
    mcp.bench.agent(f"{AGENT}\n{fixture}")

    [found] = offered(mcp, {}, mcp_servers={"Profiled": declared}, planner={"distraction_servers": 0})

    assert found == ["Real"]
    assert mcp.names() == ["from-fixture"]


def test_a_distraction_server_that_nobody_declares_is_an_error(mcp: McpBench) -> None:
    task = {"task_id": "t", "task_description": "Do it", "server_name": "Real", "distraction_servers": ["Idle99"]}
    mcp.bench.write("cases/tasks.json", json.dumps([task]))

    finished = mcp.bench.run("--agentbench-metric=said_something>=1", "cases")

    assert "no MCP server 'Idle99' is declared; did you mean 'Idle09'?" in finished.text


def run_with_broken_servers(mcp: McpBench, *options: str, **planner: Any) -> Finished:
    """Run one task with two working and three broken distraction servers."""
    broken = {
        "Keyed": mcp.server("Keyed", env_from=["AGENTBENCH_TEST_NO_SUCH_KEY"]),
        "Gone": {"command": "no-such-program-of-a-server"},
        "Crashing": {"command": "python3", "args": ["-c", "import sys; sys.exit('no licence')"]},
    }
    mcp.servers(**{name: mcp.server(name) for name in ("Idle00", "Idle01", "Real")}, **broken)
    distraction = ["Idle00", "Keyed", "Gone", "Crashing", "Idle01"]
    task = {"task_id": "t", "task_description": "Do it", "server_name": "Real", "distraction_servers": distraction}
    mcp.bench.write("cases/tasks.json", json.dumps([task]))
    mcp.bench.profile("here", sandbox="local", planner=planner)
    return mcp.bench.run("--agentbench-run-profile=here", "--agentbench-metric=said_something>=1", *options, "cases")


@pytest.mark.slow
def test_a_distraction_server_that_cannot_be_had_is_left_out_and_counted(mcp: McpBench) -> None:
    finished = run_with_broken_servers(mcp, "--agentbench-strict")

    assert finished.outcomes == {"t[agent]": "passed"}, finished.text
    artifact = mcp.artifact(finished, "t[agent]")
    assert artifact["trace"][-1]["content"].split() == ["Idle00", "Idle01", "Real"]
    note = artifact["metadata"]["agentbench.servers"]
    assert note["optional"] == 5
    assert sorted(note["left_out"]) == ["Crashing", "Gone", "Keyed"]
    assert "AGENTBENCH_TEST_NO_SUCH_KEY is not set" in note["left_out"]["Keyed"]
    assert "no licence" in note["left_out"]["Crashing"]
    row = finished.runs["t[agent]"]["tool_use"]
    assert (row["distractors"], row["distractors_offered"]) == (5, 2)
    assert "2 of 5 distractors" in finished.text


@pytest.mark.slow
def test_a_profile_may_require_every_distraction_server(mcp: McpBench) -> None:
    finished = run_with_broken_servers(mcp, distractors="required")

    assert finished.outcomes == {"t[agent]": "skipped"}
    said = "MCP server 'Keyed': the variable AGENTBENCH_TEST_NO_SUCH_KEY is not set"
    assert said in finished.runs["t[agent]"]["message"]


def test_a_resident_server_that_cannot_be_had_skips_the_task(mcp: McpBench) -> None:
    finished = run_with_broken_servers(mcp, distraction_servers=0, resident_servers=["Gone"])

    assert finished.outcomes == {"t[agent]": "skipped"}
    said = "MCP server 'Gone': the program no-such-program-of-a-server is not installed"
    assert finished.runs["t[agent]"]["message"] == said


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real task file is not here")
def test_without_any_key_the_real_tasks_run_whose_own_servers_need_none(mcp: McpBench, monkeypatch) -> None:
    commands = json.loads((SHARED / "commands.json").read_text())
    keyed = {name for name, command in commands.items() if command.get("env")}
    for variable in {variable for name in keyed for variable in commands[name]["env"]}:
        monkeypatch.delenv(variable, raising=False)
    tasks = json.loads((SHARED / "mcpbench_tasks_single_runner_format.json").read_text())
    servers = {name: mcp.server(name, env_from=command.get("env") or []) for name, command in commands.items()}
    mcp.servers(**servers)
    mcp.bench.write("cases/tasks.json", json.dumps(tasks))
    mcp.bench.profile("here", sandbox="local")

    finished = mcp.bench.run("--agentbench-run-profile=here", "--agentbench-metric=said_something>=1", "cases")

    groups = tasks["server_tasks"]
    runnable = [task["task_id"] for group in groups if group["server_name"] not in keyed for task in group["tasks"]]
    passed = [name.removesuffix("[agent]") for name, outcome in finished.outcomes.items() if outcome == "passed"]
    assert sorted(passed) == sorted(runnable)
    assert set(finished.outcomes.values()) == {"passed", "skipped"}
    assert "of 10 distractors" in finished.text
