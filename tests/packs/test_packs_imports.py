"""What an entry point of a pack loads by itself: a session pays for each that its files name, and for no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
from pytest_agentbench.extensions import find_extension

assert find_extension(sys.argv[1], sys.argv[2]) is not None
pack = sys.argv[3] + "."
ours = {name.removeprefix(pack) for name in sys.modules if name.startswith(pack)}
print(*sorted(ours | {"docker", "openai", "mcp", "starlette", "uvicorn"} & sys.modules.keys()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pack", "seam", "name", "modules"),
    [
        ("mcp_bench", "case_part", "mcp_task", "prompts records"),
        ("mcp_bench", "run_profile", "planner", "prompts records"),
        ("mcp_bench", "evaluation_profile", "mcp_tasks", "prompts records"),
        ("mcp_bench", "grader", "mcp_task", "grader prompts records"),
        ("mcp_bench", "report_section", "tool_use", "prompts records report"),
        ("mcp_bench", "command", "mcp report", ""),
        ("openclaw", "run_profile", "openclaw", "config"),
        ("openclaw", "suite", "openclaw", "config"),
        ("openclaw", "check", "openclaw_workspace_file_present", "check config"),
        ("openclaw", "doctor", "openclaw", "config container program runs"),
        ("openclaw", "command", "openclaw", ""),
        ("openclaw", "image", "openclaw", "image"),
        ("importers", "command", "import", ""),
        ("exporters", "command", "export", ""),
    ],
)
def test_an_entry_point_loads_only_required_modules(pack: str, seam: str, name: str, modules: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, seam, name, f"pytest_agentbench.packs.{pack}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == modules.split()
