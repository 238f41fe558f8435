"""The texts of the judge's prompt for MCP tasks, in one language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_agentbench.records.base import ToolUseDimension


@dataclass(frozen=True, slots=True)
class Scale:
    """One dimension of the rubric. Each band is a line: a range of scores, and the share that earns it."""

    name: ToolUseDimension
    title: str
    bands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """Two dimensions that belong together."""

    title: str
    scales: tuple[Scale, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """Every text that the judge reads and that is not of the run. `{...}` are places to fill in.

    `rubric` is in the order of the paper (seed 004, A.4). `labels` are those of blocks.
    """

    role: str
    how_to_read: str
    stance: str
    anchors: str
    task: str
    concrete: str
    concrete_given: str
    concrete_missing: str
    analysis: str
    solution: str
    no_solution: str
    execution: str
    execution_without_rounds: str
    side_by_side: str
    round: str
    no_calls: str
    events_left_out: str
    ended_early: str
    tools: str
    tools_unknown: str
    rubric_title: str
    rubric: tuple[Axis, ...]
    scoring: str
    reply: str
    labels: Mapping[str, str]
