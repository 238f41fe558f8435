"""OpenClaw (seed 002): agents, their container, conversation and image.

Others use: nothing
"""

from __future__ import annotations

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import Command

_CONFIG = f"{__name__}.config"
PACK = Pack(
    "openclaw",
    runners={"openclaw": f"{__name__}.runner:RUNNER"},
    run_profile_sections={"openclaw": f"{_CONFIG}:OPENCLAW"},
    suite_sections={"openclaw": f"{_CONFIG}:ASSIGNMENTS"},
    file_kinds={"agents": f"{_CONFIG}:AGENT_KIND"},
    checks={"openclaw_workspace_file_present": f"{__name__}.check:OpenclawWorkspaceFilePresent"},
    images={"openclaw": f"{__name__}.image:describe_building"},
    doctor_needs={"openclaw": f"{__name__}.runs:NEEDS"},
    commands={
        "openclaw": Command("build OpenClaw's image; make an agent from a live workspace", f"{__name__}.commands:GROUP")
    },
)
