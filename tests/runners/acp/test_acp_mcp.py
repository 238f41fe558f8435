"""A case's MCP servers, handed over to an ACP agent in its session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import Bench, check
from support.docker_here import needs_bubblewrap
from support.mcp_projects import McpBench

SUPPORT = Path(__file__).parents[2] / "support"
SANDBOXES = ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_session_has_the_servers_and_the_trace_has_one_call(bench: Bench, sandbox: str, transport: str) -> None:
    project = McpBench(bench)
    project.servers(Birds=project.server("birds"))
    bench.case(
        "one",
        runner={
            "type": "acp",
            "command": ["python3", "stub_acp_agent.py", f"mcp {transport}"],
            "sandbox": sandbox,
            "timeout_seconds": 60,
        },
        input={"turns": [{"role": "user", "content": "Ask."}]},
        mcp_servers=["Birds"],
        workspace="ws",
        deterministic_checks=[check("called", kind="tool_called", name="Birds:echo", arguments={"text": "pike"})],
    )
    for name in ("stub_acp_agent.py", "mcp_agent.py"):
        bench.write(f"cases/one/ws/{name}", (SUPPORT / name).read_text(encoding="utf-8"))
    step = {"tool_calls": [{"portable": {"mcp": "Birds:echo"}, "arguments": {"text": "pike"}}]}
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": [step, {"content": "A pike."}]}]})
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    trace = json.loads(path.read_text(encoding="utf-8"))["trace"]
    [call] = [event for event in trace if event["type"] == "tool_call"]
    assert (call["name"], call["agent_name"], call["recorded_by"]) == ("Birds:echo", "mcp__Birds__echo", "mcp")
    assert [event["content"] for event in trace if event["type"] == "final_output"] == ["A pike."]
