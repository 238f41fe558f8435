"""Tools of MCP servers that no run is offered."""

from __future__ import annotations

from typing import Any

import pytest
from support.bench import Finished
from support.mcp_projects import McpBench

AGENT = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case, context):
        return " ".join(tool.name for tool in context.toolbox().tools) + " Paris"
    return agent
"""


@pytest.fixture
def mcp(bench) -> McpBench:
    mcp = McpBench(bench)
    mcp.bench.agent(AGENT)
    return mcp


def run(mcp: McpBench, excluded: list[str], **profile: Any) -> Finished:
    """Run a case with a server that excludes tools."""
    mcp.servers(Real=mcp.server("Real", **({"exclude_tools": excluded} if excluded else {})))
    mcp.bench.case("one", mcp_servers=["Real"])
    mcp.bench.profile("here", sandbox="local", **profile)
    return mcp.bench.run("--agentbench-run-profile=here", "cases")


def offered(mcp: McpBench, finished: Finished) -> list[str]:
    content: str = mcp.artifact(finished, "one[agent]")["trace"][-1]["content"]
    return sorted(content.removesuffix(" Paris").split())


def test_a_server_and_a_profile_exclude_tools_and_such_a_run_is_another_one(mcp: McpBench) -> None:
    everything = run(mcp, [])
    names = offered(mcp, everything)
    assert {"Real:echo", "Real:add"} <= set(names)

    by_server = run(mcp, ["echo"])
    assert offered(mcp, by_server) == [name for name in names if name != "Real:echo"]

    by_both = run(mcp, ["echo"], exclude_tools={"Real": ["add"]})
    assert offered(mcp, by_both) == [name for name in names if name not in ("Real:echo", "Real:add")]
    fingerprints = {each.runs["one[agent]"]["fingerprint"] for each in (everything, by_server, by_both)}
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    ("excluded", "profile", "said"),
    [
        (["ecko"], {}, "MCP server 'Real': exclude_tools: found 'ecko', expected names of its tools: "),
        ([], {"exclude_tools": {"Reel": ["echo"]}}, "exclude_tools: Reel: no MCP server of that name is declared; did"),
    ],
)
def test_a_name_that_excludes_nothing_is_an_error(mcp: McpBench, excluded, profile, said) -> None:
    finished = run(mcp, excluded, **profile)

    assert finished.outcomes == {"one[agent]": "error"}
    assert said in finished.text
