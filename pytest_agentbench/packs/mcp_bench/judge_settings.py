"""The section `mcp_tasks` of evaluation profiles: how MCP tasks are judged (seed 004, 5.2)."""

from __future__ import annotations

from typing import Literal

from pytest_agentbench.config.sections import ProfileSection
from pytest_agentbench.records.base import Record


class McpJudging(Record):
    """The order and the language of the prompt of those who judge MCP tasks."""

    shuffle: Literal["axes", "bands", "none"] = "axes"
    """The order of the rubric in each iteration: axes and their dimensions shuffled, their bands too, or as it is."""
    language: Literal["en", "zh"] = "en"
    """The language of the judge's prompt."""


MCP_TASKS = ProfileSection[McpJudging](
    "mcp_tasks",
    "evaluation_profile",
    McpJudging,
    "How MCP tasks are judged.",
    default=McpJudging,
    # What only says the defaults is as good as nothing: what was judged before there was a section keeps its place.
    fingerprint=lambda judging: judging if judging.model_dump(exclude_defaults=True) else None,
    excess=lambda found, most, guest: (),
)
