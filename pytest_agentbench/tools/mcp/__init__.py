"""MCP servers: started where a run's commands may run, spoken to over stdio or HTTP, their tools offered to agents."""

from pytest_agentbench.tools.mcp.base import CallResult, Listing, ServerTool

__all__ = ["CallResult", "Listing", "ServerTool"]
