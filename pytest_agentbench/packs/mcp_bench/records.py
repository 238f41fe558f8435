"""What MCP-Bench (seed 004) adds to records: the task of a case, and how a run used its tools."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pytest_agentbench.packs.mcp_bench.planner_settings import PLANNER
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.parts import CasePart

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import RunProfile

MCP_TASK = "mcp_task"
"""The name of the part of a case, and of what grades it."""
TOOL_USE = "tool_use"
"""The name of the part of an evaluation."""

_MEASURE = "The task is done, what the answer says comes from the tools, and tools, arguments and their order fit."

ToolUseDimension = Literal[
    "task_fulfillment",
    "grounding",
    "tool_appropriateness",
    "parameter_accuracy",
    "dependency_awareness",
    "parallelism_and_efficiency",
]
TOOL_USE_DIMENSIONS: tuple[ToolUseDimension, ...] = (
    "task_fulfillment",
    "grounding",
    "tool_appropriateness",
    "parameter_accuracy",
    "dependency_awareness",
    "parallelism_and_efficiency",
)
"""What a judge scores of an MCP task (seed 004, 5.2), two for each axis: completion, selection of tools, planning."""


class McpTask(CasePart):
    """A task of MCP-Bench (seed 004): what the agent, the judge and the tables need of it beside the case's messages.

    `servers` are the task's own, `distraction_servers` those that are offered beside them. `fuzzy` and `detailed` are
    the two texts of the task, at least one given. `dependencies` maps a tool's id, or a tool's name, to those that have
    to succeed before it; None where the task declares none.
    """

    has_own_id: ClassVar[bool] = True

    servers: tuple[str, ...]
    distraction_servers: tuple[str, ...] = ()
    fuzzy: str | None = None
    detailed: str | None = None
    dependency_analysis: str | None = None
    dependencies: dict[str, tuple[str, ...]] | None = None
    combination_name: str | None = None
    combination_type: str | None = None

    @property
    def measure(self) -> tuple[str, str]:
        """Return what the task says of the order of tools, or what every task is measured by."""
        return "How tools should be used", self.dependency_analysis or _MEASURE

    @property
    def asked_texts(self) -> tuple[str, ...]:
        """Return both texts: which one the agent is asked is the run profile's choice."""
        return tuple(text for text in (self.fuzzy, self.detailed) if text)

    @property
    def required_calls(self) -> Mapping[str, Collection[str]] | None:
        """Return the task's graph of dependencies."""
        return self.dependencies

    @property
    def named_servers(self) -> tuple[str, ...]:
        """Return the servers that it lists as distraction."""
        return self.distraction_servers

    def offered_servers(self, case_id: str, profile: RunProfile, declared: Collection[str]) -> set[str]:
        """Return its own servers, the resident ones, and of its list of distraction servers the first.

        Without such a list these are a sample of all that are declared, the same each time.
        """
        settings = profile.section(PLANNER)
        needed = {*self.servers, *settings.resident_servers}
        others = [name for name in dict.fromkeys(self.distraction_servers) if name not in needed]
        if not self.distraction_servers:
            others = distraction_servers(case_id, declared, needed)
        return {*needed, *others[: settings.distraction_servers]}


def distraction_servers(task_id: str, declared: Iterable[str], needed: Iterable[str]) -> list[str]:
    """Return all declared servers but the needed ones, in an order that the task's id draws (seed 004, 3.2).

    The first N are its sample of N: the same for the same names in whatever order.
    """
    others = sorted(set(declared) - set(needed))
    random.Random(task_id).shuffle(others)
    return others


class ToolUse(Record):
    """How a run used its tools, for the tables of MCP-Bench. All scores 0-1, None where there is nothing to measure.

    `servers` counts the task's own servers, `servers_used` those of which a tool was called. `rules` is the mean of the
    rates of valid names, valid arguments and successful calls, as far as there are; the three axes are the judge's;
    `overall` is the mean of these four, of the axes alone where there are no rates, None without a judge. `rounds` is
    how many rounds called tools, None where the runner records none. `completed` says whether the run ended with an
    answer.
    """

    servers: int
    servers_used: int
    cross_server: bool
    rounds: int | None
    calls: int
    completed: bool
    rules: float | None = None
    task_completion: float | None = None
    tool_selection: float | None = None
    planning: float | None = None
    overall: float | None = None
