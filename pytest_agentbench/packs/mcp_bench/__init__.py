"""MCP-Bench (seed 004): tasks for MCP servers, the planner that runs them, how tool use is judged, and its tables.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

REPORT = Command("print the tables of MCP tasks from report.json", "pytest_agentbench.packs.mcp_bench.tables")
ABLATION = Command(
    "judge the same runs with and without shuffled prompts", "pytest_agentbench.packs.mcp_bench.ablation_command"
)
SYNTHESIZE = Command("make a file of MCP tasks for servers", "pytest_agentbench.packs.mcp_bench.synthesis.command")
