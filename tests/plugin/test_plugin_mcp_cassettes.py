"""Cassettes of runs that call MCP servers: replayed without the servers' programs."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import yaml
from support.fault_endpoint import FaultEndpoint
from support.mcp_projects import McpBench

RECORD, REPLAY, AUTO = (f"--agentbench-cassettes={mode}" for mode in ("record", "replay", "auto"))
CALLS = [("Test__add", {"a": 1, "b": 2}), ("Test__fail", {"why": "rain"}), ("Test__no_such", {}), ("Test__die", {})]


def calls(body: dict[str, Any]) -> dict[str, Any]:
    """A model that makes the calls, one a turn, and then tells what the first came to."""
    answers = [message for message in body["messages"] if message["role"] == "tool"]
    if len(answers) == len(CALLS):
        return {"role": "assistant", "content": f"Paris, {answers[0]['content']}"}
    name, arguments = CALLS[len(answers)]
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call-{len(answers)}", "type": "function", "function": function}],
    }


@pytest.fixture
def mcp(bench, monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with FaultEndpoint(answer=calls) as endpoint:
        bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "BENCH_KEY"})
        yield McpBench(bench)


def run(mcp: McpBench, *options: str):
    mcp.bench.profile("here", sandbox="local")
    return mcp.bench.run("--model=gpt", "--agentbench-run-profile=here", *options, "cases")


@pytest.mark.slow
def test_a_replay_needs_no_server(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.bench.case("calls", mcp_servers=["Test"])
    recorded = run(mcp, RECORD)
    assert recorded.outcomes == {"calls[gpt]": "passed"}, recorded.text
    before = mcp.results(recorded, "calls[gpt]")
    assert [failed for _, failed in before] == [False, True, True, True]
    assert mcp.names() == ["one"]
    shutil.rmtree(mcp.path / "outputs")
    mcp.servers(Test={"command": "no-such-program-anywhere"})

    replayed = run(mcp, REPLAY)

    assert replayed.outcomes == {"calls[gpt]": "passed"}, replayed.text
    assert mcp.results(replayed, "calls[gpt]") == before
    assert mcp.artifact(replayed, "calls[gpt]")["cassette"] == "replayed"
    assert mcp.names() == []
    [path] = (mcp.path / "cases").rglob("gpt-r1.yaml")
    asked = [each["asked"] for each in yaml.safe_load(path.read_text())["exchanges"]]
    assert asked.count("mcp:Test") == 1 + len(CALLS) - 1  # the list, and what the toolbox passed on


@pytest.mark.slow
def test_a_call_that_was_not_recorded_is_an_error_of_the_replay(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.bench.case("calls", mcp_servers=["Test"])
    run(mcp, RECORD)
    [path] = (mcp.path / "cases").rglob("gpt-r1.yaml")
    path.write_text(path.read_text().replace("why: rain", "why: snow"))
    shutil.rmtree(mcp.path / "outputs")

    replayed = run(mcp, REPLAY)

    assert replayed.outcomes == {"calls[gpt]": "error"}
    assert "mcp:Test: the cassette" in replayed.text
    assert "does not have this request" in replayed.text
