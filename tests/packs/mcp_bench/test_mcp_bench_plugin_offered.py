"""Which servers a task of MCP-Bench is offered, told by an agent that looks at its tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.mcp_projects import McpBench

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
    """The servers of each task's tools, in their order."""
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
