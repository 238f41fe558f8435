"""The runners that need no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.llm_probe import llm_probe
from pytest_agentbench.runners.openclaw.runner import openclaw
from pytest_agentbench.runners.planner import mcp_planner

BUILTIN_RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {"llm_probe": llm_probe, "mcp_planner": mcp_planner, "openclaw": openclaw}
)
"""`runner.type` of a case -> how it is run."""

RUN_SECONDS: Mapping[str, float] = MappingProxyType({"mcp_planner": 3000.0})
"""`runner.type` -> limit of a whole run where the run profile gives none; without one it is unlimited."""
