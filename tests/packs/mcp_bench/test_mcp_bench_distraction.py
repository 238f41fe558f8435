"""Servers that are offered in addition to those of an MCP task."""

from __future__ import annotations

from pytest_agentbench.packs.mcp_bench.records import distraction_servers

DECLARED = [f"Server {number:02}" for number in range(28)]


def test_the_task_draws_them_from_the_names_alone() -> None:
    drawn = distraction_servers("time_000", DECLARED, ["Server 03"])
    assert sorted(drawn) == [name for name in DECLARED if name != "Server 03"]
    assert distraction_servers("time_000", reversed(DECLARED), ["Server 03", "not declared"]) == drawn
    assert distraction_servers("time_001", DECLARED, ["Server 03"])[:10] != drawn[:10]
    assert drawn[:10] != sorted(drawn[:10])


def test_none_where_all_are_needed() -> None:
    assert distraction_servers("time_000", ["Time"], ["Time"]) == []
