"""The runner `mcp_planner`: Algorithm 1 of the paper behind MCP-Bench (seed 004, 3.1 and A.2)."""

from pytest_agentbench.runners.planner.loop import mcp_planner

__all__ = ["mcp_planner"]
