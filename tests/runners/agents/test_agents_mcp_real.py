"""Real agents with a case's MCP servers and tools: the sample server, a published one, and a canned tool.

AGENTBENCH_TEST_NPM_AGENTS names a folder in which `npm install` has put the versions of the adapters,
AGENTBENCH_TEST_NPM_SERVERS one with `@modelcontextprotocol/server-everything`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.agents_here import agent_lacks
from support.bench import Bench, check
from support.docker_here import needs_bubblewrap
from support.mcp_projects import McpBench

import pytest_agentbench.runners.agents

NPM = Path(os.environ.get("AGENTBENCH_TEST_NPM_AGENTS", "/nowhere"), "node_modules")
SERVERS = Path(os.environ.get("AGENTBENCH_TEST_NPM_SERVERS", "/nowhere"))
EVERYTHING = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
SAMPLES = Path(__file__).parents[3] / "cases/mcp"
DATA = Path(pytest_agentbench.runners.agents.__file__).with_name("data")
AGENTS = ("cn", "codex", "gemini_cli", "opencode", "qwen_code")
CALLS = {
    "Timetable:find_station": {"name": "Basel"},
    "Every Thing:echo": {"message": "kingfisher"},
    "Every Thing:get-sum": {"a": 2, "b": 3},
    "price": {"bird": "kingfisher"},
}
PRICE = {"name": "price", "parameters": {"bird": "string"}, "returns": [5, 7]}

pytestmark = [
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SERVERS / EVERYTHING).is_file(),
        reason="AGENTBENCH_TEST_NPM_SERVERS names no folder with server-everything",
    ),
]
has_agents = pytest.mark.skipif(
    not NPM.is_dir(), reason="AGENTBENCH_TEST_NPM_AGENTS names no folder with agents of npm"
)


def write_case(bench: Bench, agent: str, sandbox: str) -> None:
    """Write a case in which the model calls each tool, and a profile whose servers run on this machine itself."""
    bench.profile("here", sandbox="local")
    servers = {
        "Timetable": {"command": "python3", "args": ["server.py", "timetable"], "cwd": str(SAMPLES)},
        "Every Thing": {"command": "node", "args": [EVERYTHING], "cwd": str(SERVERS)},
    }
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": servers})
    bench.case(
        "one",
        runner={"type": "agent", "agent": agent, "sandbox": sandbox, "timeout_seconds": 600},
        input={
            "turns": [{"role": "user", "content": "The capital of France?"}],
            "context": {"llm_probe": {"tools": [PRICE]}},
        },
        mcp_servers=["Timetable", "Every Thing"],
        deterministic_checks=[check(f"c{at}", kind="tool_called", name=name) for at, name in enumerate(CALLS)],
    )
    steps: list[dict[str, Any]] = [
        {"tool_calls": [{"portable": {"mcp": name}, "arguments": arguments}]} for name, arguments in CALLS.items()
    ]
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": [*steps, {"content": "Paris"}]}]})


def check_run(bench: Bench, agent: str) -> None:
    """Run the case: each call is in the trace once, made, and without an error for the agent's model."""
    finished = bench.run("--model=demo", "--agentbench-run-profile=here", "cases")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert "servers_not_offered" not in found["provider"]["gateway"], finished.text
    trace = found["trace"]
    calls = [event for event in trace if event["type"] == "tool_call" and event["name"] != "complete"]  # gptme's end
    assert [call["name"] for call in calls] == [*CALLS], agent
    assert all(call["recorded_by"] == "mcp" and "executed" not in call for call in calls), agent
    results = [event for event in trace if event["type"] == "tool_result"]
    expected = ("Basel SBB", "kingfisher", "5", "[5, 7]")
    for result, text in zip(results, expected, strict=True):
        assert text in result["content"]
        assert text in result.get("shown", text), agent  # the model sees it, too


# On a busy machine Codex asks its model before servers on stdin have started
BY_RELAY = [(agent, "local", "stdio") for agent in AGENTS if agent != "codex"]
BY_ADDRESS = [pytest.param(agent, "bubblewrap", "http", marks=needs_bubblewrap) for agent in AGENTS]


@has_agents
@pytest.mark.parametrize(("agent", "sandbox", "transport"), [*BY_RELAY, *BY_ADDRESS])
def test_an_agent_of_this_machine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, agent: str, sandbox: str, transport: str
) -> None:
    # OpenCode downloads ripgrep if it is missing; the package of Codex brings one
    ripgrep = next(NPM.glob("@openai/codex-*/vendor/*/codex-path/rg"))
    folders = [str(NPM / ".bin"), str(ripgrep.parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    write_case(bench, agent, sandbox)
    shutil.copytree(DATA / agent, bench.path / "cases/agents" / agent)
    adapter = bench.path / "cases/agents" / agent / "agent.yaml"
    text = adapter.read_text(encoding="utf-8")
    adapter.write_text(text.replace("\nmcp:\n", f"\nmcp:\n  transport: {transport}\n"), encoding="utf-8")
    check_run(bench, agent)


@pytest.mark.parametrize("agent", [*AGENTS, "gptme"])
def test_an_agent_in_its_image(bench: Bench, agent: str) -> None:
    if (lacks := agent_lacks(agent)) is not None:
        pytest.skip(lacks)
    write_case(bench, agent, "docker")
    check_run(bench, agent)


def test_agents_wait_for_a_slow_tool(bench: Bench) -> None:
    """A call of 75 seconds: agents get its result, or give up, and the run says so."""
    if lacks := "; ".join(each for name in AGENTS if (each := agent_lacks(name)) is not None):
        pytest.skip(lacks)
    project = McpBench(bench)
    project.servers(Birds=project.server("birds", timeout_seconds=120))
    bench.profile("here", sandbox="local", policy={"max_concurrency": 8})
    bench.case("one", runner={"type": "agent", "agent": "codex", "timeout_seconds": 300}, mcp_servers=["Birds"])
    call = {"tool_calls": [{"portable": {"mcp": "Birds:slow"}, "arguments": {"seconds": 75}}]}
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": [call, {"content": "Paris"}]}]})
    chosen = [part for name in AGENTS for part in ("--agentbench-agent", name)]
    finished = bench.run("--model=demo", "--agentbench-run-profile=here", *chosen, "cases")
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    for path in bench.path.glob("outputs/runs/**/run_1.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        name = found["request"]["agent"]
        [made] = [event for event in found["trace"] if event["type"] == "tool_call"]
        results = [event for event in found["trace"] if event["type"] == "tool_result"]
        gave_up = [event for event in found["trace"] if event.get("name") == "agent_gave_up"]
        assert "executed" not in made, name
        assert len(gave_up) == (name == "cn"), name
        if name != "cn":
            assert [each["content"] for each in results] == ["done"], name
