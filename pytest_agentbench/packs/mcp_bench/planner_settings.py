"""Settings of the runner `mcp_planner` and of MCP tasks (seed 004; the numbers are the original's)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.sections import Excess, ProfileSection
from pytest_agentbench.records.base import AtLeastOne, Record, Seconds
from pytest_agentbench.records.check_specs import Text


class PlannerSettings(Record):
    """How `mcp_planner` plans, and what MCP tasks are offered whatever runs them."""

    max_rounds: Annotated[StrictInt, Field(ge=1, le=1000)] = 20
    """Most rounds of planning; 1 is the paper's one-shot global planning."""
    plan_tokens: AtLeastOne = 12_000
    """Most tokens of a plan."""
    answer_tokens: AtLeastOne = 12_000
    """Most tokens of the final answer."""
    summary_tokens: AtLeastOne = 10_000
    """Most tokens of what the model writes when it summarises or compresses."""
    summarise_over_tokens: AtLeastOne = 1_000
    """A longer result is summarised by the model to this length, and then cut there."""
    information_tokens: Annotated[StrictInt, Field(ge=100)] = 20_000
    """How long the results of all rounds may get; beyond it the model compresses them to half of it."""
    parallel_calls_per_server: AtLeastOne = 20
    """Calls of one server in flight."""
    sequential_only_tools: tuple[Text, ...] = ()
    """Ids of tools whose calls run before a round's others, one by one."""
    call_timeout_seconds: Seconds = 300
    """Limit of one call; the `timeout_seconds` of a server may end it sooner."""
    language: Literal["en", "zh"] = "en"
    """Language of the prompts: English or Chinese."""
    distraction_servers: Annotated[StrictInt, Field(ge=0)] = 10
    """How many servers an MCP task is offered beside its own: its list's first, else a sample seeded by its id."""
    resident_servers: tuple[Text, ...] = ()
    """Servers that every MCP task is offered."""

    @property
    def of_a_run(self) -> dict[str, Any]:
        """Return what `mcp_planner` itself reads, JSON-like: all but what says which servers a task is offered."""
        return self.model_dump(mode="json", exclude={"distraction_servers", "resident_servers"})


LIMITED = (
    "max_rounds",
    "plan_tokens",
    "answer_tokens",
    "summary_tokens",
    "parallel_calls_per_server",
    "call_timeout_seconds",
    "distraction_servers",
)
"""What a guest may not say more of than the user."""


def _more(found: PlannerSettings, most: PlannerSettings, guest: Guest) -> Excess:
    for name in LIMITED:
        if getattr(found, name) > getattr(most, name):
            yield (name,), getattr(found, name), getattr(most, name)


PLANNER = ProfileSection[PlannerSettings](
    "planner",
    "run_profile",
    PlannerSettings,
    "How mcp_planner plans, and what MCP tasks are offered.",
    default=PlannerSettings,
    # What only says the defaults is as good as nothing: what ran before there was such a section keeps its place.
    fingerprint=lambda settings: settings if settings.model_dump(exclude_defaults=True) else None,
    excess=_more,
)
TASK_TEXT = ProfileSection[Literal["fuzzy", "detailed"]](
    "task_text",
    "run_profile",
    Literal["fuzzy", "detailed"],
    "Which text of an MCP task the agent sees.",
    default=lambda: "fuzzy",
    excess=lambda found, most, guest: (),
)
