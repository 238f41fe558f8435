"""The runners that need no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.packs.mcp_bench.planner import mcp_planner
from pytest_agentbench.packs.openclaw.runner import openclaw
from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.chat import llm_probe

BUILTIN_RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {"llm_probe": llm_probe, "mcp_planner": mcp_planner, "openclaw": openclaw}
)
"""`runner.type` of a case -> how it is run."""

RUN_SECONDS: Mapping[str, float] = MappingProxyType({"mcp_planner": 3000.0})
"""`runner.type` -> limit of a whole run where the run profile gives none; without one it is unlimited."""
