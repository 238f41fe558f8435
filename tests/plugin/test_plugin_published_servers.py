"""Published servers in sessions of pytest, beside others that are offered and never started."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import mcp_server
from support.bench import Bench, Finished
from support.docker_here import needs_bubblewrap
from support.published_servers import PUBLISHED, needs_published_servers, repository

from pytest_agentbench.cli import main

pytestmark = [pytest.mark.full, needs_bubblewrap, needs_published_servers]

DISTRACTING = [f"Distraction {number}" for number in range(10)]
TOKYO = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}
NOTE = "/workspace/note.txt"
ADA = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}]}


def planned(*calls: tuple[str, dict[str, Any]]) -> str:
    tools = [{"tool": name, "parameters": given} for name, given in calls]
    return json.dumps({"reasoning": "So.", "should_continue": bool(calls), "planned_tools": tools})


@pytest.fixture
def project(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Published servers, and ten that note their starts; all are known from `agentbench mcp tools`."""
    monkeypatch.setenv("PATH", f"{os.environ['AGENTBENCH_TEST_PYTHON_SERVERS']}/bin", prepend=os.pathsep)
    log = bench.path / "starts.log"
    servers = {each.name: each.server("/workspace").model_dump(exclude_defaults=True) for each in PUBLISHED}
    folder = Path(mcp_server.__file__).parent
    for name in DISTRACTING:
        args = ["-I", "mcp_server.py", "--name", name.replace(" ", "-"), "--log", str(log)]
        servers[name] = {"command": "python3", "args": args, "cwd": str(folder), "sandbox": "local"}
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": servers})
    bench.profile("isolated", sandbox="bubblewrap")
    told = main(["mcp", "tools", str(bench.path / "cases/servers.yaml"), "--profile", "isolated"])
    assert told == 0
    assert len(log.read_text().split("start ")) == 11
    log.unlink()
    return bench


def run(project: Bench) -> Finished:
    return project.run("--model=demo", "--agentbench-run-profile=isolated", "cases")


def trace(project: Bench, finished: Finished) -> list[dict[str, Any]]:
    [row] = finished.runs.values()
    return json.loads((project.path / "outputs" / row["artifact"]).read_text())["trace"]


def test_a_scripted_planner_uses_three_servers_beside_ten_that_are_never_started(project: Bench) -> None:
    shutil.copytree(repository(), project.path / "cases/three/repository")
    servers = ["time", "git", "filesystem", *DISTRACTING]
    project.case("three", runner={"type": "mcp_planner"}, mcp_servers=servers, workspace="repository")
    first = [
        ("time:convert_time", TOKYO),
        ("git:git_log", {"repo_path": "/workspace"}),
        ("filesystem:write_file", {"path": NOTE, "content": "The first commit"}),
    ]
    replies = [
        {"matches": "This is round 1 of", "content": planned(*first)},
        {"matches": "This is round 2 of", "content": planned(("filesystem:read_text_file", {"path": NOTE}))},
        {"matches": "This is round 3 of", "content": planned()},
        {"matches": "Write the final answer", "content": "Paris"},
    ]
    project.write("cases/three/demo.yaml", {"schema_version": 1, "replies": replies})

    finished = run(project)

    assert finished.outcomes == {"three[demo]": "passed"}, finished.text
    results = {event["name"]: event["content"] for event in trace(project, finished) if event["type"] == "tool_result"}
    assert "08:30" in results["time:convert_time"]
    assert "The first commit" in results["git:git_log"]
    assert "The first commit" in results["filesystem:read_text_file"]
    assert not (project.path / "starts.log").exists()


def test_two_servers_are_driven_beside_one_that_is_never_started(project: Bench) -> None:
    project.case("two", mcp_servers=["everything", "memory", DISTRACTING[0]])
    steps = [
        {"tool_calls": [{"name": "everything:get-sum", "arguments": {"a": 2, "b": 40}}]},
        {"tool_calls": [{"name": "memory:create_entities", "arguments": ADA}]},
        {"tool_calls": [{"name": "memory:search_nodes", "arguments": {"query": "Ada"}}]},
        {"content": "Paris"},
    ]
    project.write("cases/two/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})

    finished = run(project)

    assert finished.outcomes == {"two[demo]": "passed"}, finished.text
    added, _, found = [event for event in trace(project, finished) if event["type"] == "tool_result"]
    assert "42" in added["content"]
    assert "wrote notes" in found["content"]
    assert not (project.path / "starts.log").exists()
