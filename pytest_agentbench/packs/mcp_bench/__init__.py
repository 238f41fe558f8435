"""MCP-Bench (seed 004): tasks for MCP servers, the planner that runs them, how tool use is judged, and its tables.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import Command, SourceFiles

_RECORDS = f"{__name__}.records"
PACK = Pack(
    "mcp_bench",
    case_sources={
        "mcp_tasks": SourceFiles(
            f"{__name__}.tasks:TASKS", ["*.json"], ['"server_tasks"', '"fuzzy_description"', '"task_description"']
        )
    },
    case_parts={"mcp_task": f"{_RECORDS}:McpTask"},
    runners={"mcp_planner": f"{__name__}.planner:RUNNER"},
    run_profile_sections={"planner": f"{_RECORDS}:PLANNER", "task_text": f"{_RECORDS}:TASK_TEXT"},
    evaluation_profile_sections={"mcp_tasks": f"{_RECORDS}:MCP_TASKS"},
    graders={"mcp_task": f"{__name__}.grader:GRADER"},
    evaluation_parts={"tool_use": f"{_RECORDS}:ToolUse"},
    scripted_verdicts={"tool_use_verdict": f"{__name__}.judge:SCRIPTED_VERDICT"},
    report_sections={"tool_use": f"{__name__}.report:SECTION"},
    commands={
        "mcp report": Command("print the tables of MCP tasks from report.json", f"{__name__}.tables"),
        "mcp ablation": Command(
            "judge the same runs with and without shuffled prompts", f"{__name__}.ablation_command"
        ),
        "mcp synthesize": Command("make a file of MCP tasks for servers", f"{__name__}.synthesis.command"),
    },
)
