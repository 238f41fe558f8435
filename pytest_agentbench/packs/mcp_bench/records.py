"""Additions of MCP-Bench (seed 004) to files and records: settings of profiles, a case's task, a run's use of tools.

A session loads this module as soon as a profile or a case has one of these: it imports neither planner nor judge.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, StrictInt, model_validator

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.prompt_files import is_none
from pytest_agentbench.config.sections import Excess, ProfileSection
from pytest_agentbench.packs.mcp_bench.prompts import JudgePrompts, PlannerPrompts
from pytest_agentbench.records.base import AtLeastOne, CasePart, Record, Seconds, Text

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import RunProfile

R = TypeVar("R", bound=Record)

MCP_TASK = "mcp_task"
"""Name of the part of a case, and of its grader."""
TOOL_USE = "tool_use"
"""Name of the part of an evaluation."""

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
"""A judge's scores of an MCP task (seed 004, 5.2), two for each axis: completion, selection of tools, planning."""


_MAPS = (
    *("search_nearby", "get_place_details", "maps_geocode", "maps_reverse_geocode"),
    *("maps_distance_matrix", "maps_directions", "maps_elevation"),
)
PUBLISHED_PLANNER: Mapping[str, Any] = {
    "resident_servers": ["Time MCP"],
    "sequential_only_tools": [f"Google Maps:{name}" for name in _MAPS],
}
"""Settings of the published runs that are not our defaults, by the original's benchmark_config.yaml."""
PUBLISHED_EXCLUSIONS: Mapping[str, tuple[str, ...]] = {
    "Paper Search": (
        *("search_semantic", "download_semantic", "read_semantic_paper"),
        *("search_iacr", "read_iacr_paper", "download_iacr"),
    ),
    "OSINT Intelligence": ("osint_overview",),
    "BioMCP": ("alphagenome_predictor",),
}
"""Tools that were not offered in the published runs, by server: `problematic_tools` of that file."""
PUBLISHED_JUDGING: Mapping[str, Any] = {"shuffle": "bands"}
"""Settings of the judge in the published runs that are not our defaults."""


def _with_published(data: Any, settings: Mapping[str, Any]) -> Any:
    """Return a section with the settings of the published runs if its `compat` is `mcp_bench`."""
    if isinstance(data, Mapping) and data.get("compat") == "mcp_bench":
        return {**settings, **data}
    return data


class PlannerSettings(Record):
    """Settings of `mcp_planner`, and of the servers offered to MCP tasks with any runner."""

    # The numbers are the original's, so that a profile without the section repeats the paper (seed 004, 3.1).

    max_rounds: Annotated[StrictInt, Field(ge=1, le=1000)] = 20
    """Maximum rounds of planning; 1 is the paper's one-shot global planning."""
    plan_tokens: AtLeastOne = 12_000
    """Maximum tokens of a plan."""
    answer_tokens: AtLeastOne = 12_000
    """Maximum tokens of the final answer."""
    summary_tokens: AtLeastOne = 10_000
    """Maximum tokens of the model's replies with summaries and compressions."""
    summarise_over_tokens: AtLeastOne = 1_000
    """Tokens above which the model summarises a result. The summary is cut to this length."""
    information_tokens: Annotated[StrictInt, Field(ge=100)] = 20_000
    """Maximum tokens of the results of all rounds. Beyond it the model compresses them to half of it."""
    parallel_calls_per_server: AtLeastOne = 20
    """Calls of one server in flight."""
    sequential_only_tools: tuple[Text, ...] = ()
    """Ids of tools whose calls run before a round's others, one by one."""
    call_timeout_seconds: Seconds = 300
    """Seconds of one call; the `timeout_seconds` of a server may end it sooner."""
    language: Literal["en", "zh"] = "en"
    """Language of the prompts: English or Chinese."""
    distraction_servers: Annotated[StrictInt, Field(ge=0)] = 10
    """Number of distraction servers offered to an MCP task: the first of its list, else a sample seeded by its id."""
    distractors: Literal["optional", "required"] = "optional"
    """Whether a task runs without a distraction server that is missing or does not start, or is skipped."""
    resident_servers: tuple[Text, ...] = ()
    """Servers offered to every MCP task."""
    prompts: PlannerPrompts = Field(default=None, exclude_if=is_none)
    """A folder of prompts in place of ours: `<prompt>.<language>.txt`, such as `plan.en.txt`."""
    compat: Literal["mcp_bench"] | None = Field(default=None, exclude=True)
    """Settings of MCP-Bench's published runs, unless they are given: resident server, sequential and excluded tools."""

    @model_validator(mode="before")
    @classmethod
    def _set_what_compat_names(cls, data: Any) -> Any:
        return _with_published(data, PUBLISHED_PLANNER)

    @property
    def of_a_run(self) -> dict[str, Any]:
        """Return the settings that `mcp_planner` itself reads, JSON-like: all except those on the offered servers."""
        return self.model_dump(mode="json", exclude={"distraction_servers", "distractors", "resident_servers"})


LIMITED = (
    "max_rounds",
    "plan_tokens",
    "answer_tokens",
    "summary_tokens",
    "parallel_calls_per_server",
    "call_timeout_seconds",
    "distraction_servers",
)
"""Settings that a guest may only lower."""


def _find_excess(settings: PlannerSettings, most: PlannerSettings, guest: Guest) -> Excess:
    for name in LIMITED:
        if getattr(settings, name) > getattr(most, name):
            yield (name,), getattr(settings, name), getattr(most, name)


def _unless_default(section: R) -> R | None:
    """Return the section, or None if all its values are defaults.

    A section of defaults has the identity of no section, so that runs without one are found.
    """
    if section.model_dump(exclude_defaults=True):
        return section
    return None


PLANNER = ProfileSection[PlannerSettings](
    "planner",
    "run_profile",
    PlannerSettings,
    "Planning by mcp_planner, and the servers offered to MCP tasks.",
    default=PlannerSettings,
    fingerprint=_unless_default,
    excess=_find_excess,
)
TASK_TEXT = ProfileSection[Literal["fuzzy", "detailed"]](
    "task_text",
    "run_profile",
    Literal["fuzzy", "detailed"],
    "Which text of an MCP task the agent sees.",
    # The paper's agents see only the fuzzy text; the detailed one is the judge's reference (seed 004, 5.2).
    default=lambda: "fuzzy",
    excess=lambda text, most, guest: (),
)


class McpJudging(Record):
    """Order and language of the prompt for judges of MCP tasks."""

    shuffle: Literal["axes", "bands", "none"] = "axes"
    """Order of the rubric in each iteration: axes and their dimensions shuffled, their bands too, or not shuffled."""
    language: Literal["en", "zh"] = "en"
    """The language of the judge's prompt."""
    prompts: JudgePrompts = Field(default=None, exclude_if=is_none)
    """A folder of prompts in place of ours: `judge.<language>.txt`."""
    compat: Literal["mcp_bench"] | None = Field(default=None, exclude=True)
    """Settings of MCP-Bench's published runs, unless they are given: `shuffle: bands`."""

    @model_validator(mode="before")
    @classmethod
    def _set_what_compat_names(cls, data: Any) -> Any:
        return _with_published(data, PUBLISHED_JUDGING)


MCP_TASKS = ProfileSection[McpJudging](
    "mcp_tasks",
    "evaluation_profile",
    McpJudging,
    "How MCP tasks are judged.",
    default=McpJudging,
    fingerprint=_unless_default,
    excess=lambda judging, most, guest: (),
)


class McpTask(CasePart):
    """A task of MCP-Bench (seed 004): the data for agent, judge and tables in addition to the case's messages.

    `servers` are the task's own, `distraction_servers` are offered in addition. `fuzzy` and `detailed` are
    the two texts of the task, at least one is set. `dependencies` maps a tool's id, or a tool's name, to the tools that
    have to succeed before it; None if the task declares none.
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

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return nothing: the run's fingerprint has the messages and the servers, and the rest is for judges."""
        return {}

    @property
    def measure(self) -> tuple[str, str]:
        """Return title and text of the rubric: the task's own on dependencies, or the general one."""
        return "How tools should be used", self.dependency_analysis or _MEASURE

    @property
    def asked_texts(self) -> tuple[str, ...]:
        """Return both texts; the run profile chooses the one for the agent."""
        return tuple(text for text in (self.fuzzy, self.detailed) if text)

    @property
    def required_calls(self) -> Mapping[str, Collection[str]] | None:
        """Return the task's graph of dependencies."""
        return self.dependencies

    @property
    def named_servers(self) -> tuple[str, ...]:
        """Return the servers that it lists as distraction."""
        return self.distraction_servers

    def offered_servers(self, case_id: str, profile: "RunProfile", declared: Collection[str]) -> set[str]:
        """Return its own servers, the resident ones, and of its list of distraction servers the first.

        Without such a list these are a sample of all that are declared, the same each time.
        """
        settings = profile.section(PLANNER)
        return {*self.servers, *settings.resident_servers, *self._distractors(case_id, settings, declared)}

    def optional_servers(self, case_id: str, profile: "RunProfile", declared: Collection[str]) -> Collection[str]:
        """Return the servers that only distract, unless the profile requires them."""
        settings = profile.section(PLANNER)
        if settings.distractors == "required":
            return ()
        return self._distractors(case_id, settings, declared)

    def excluded_tools(self, profile: "RunProfile") -> Mapping[str, tuple[str, ...]]:
        """Return the tools that the published runs were not offered, if the planner's `compat` excludes them."""
        if profile.section(PLANNER).compat == "mcp_bench":
            return PUBLISHED_EXCLUSIONS
        return {}

    def _distractors(self, case_id: str, settings: PlannerSettings, declared: Collection[str]) -> list[str]:
        needed = {*self.servers, *settings.resident_servers}
        # In the list's order, not a set's: if the settings allow fewer than the task lists, the first ones
        # stay.
        others = [name for name in dict.fromkeys(self.distraction_servers) if name not in needed]
        if not self.distraction_servers:
            others = distraction_servers(case_id, declared, needed)
        return others[: settings.distraction_servers]


def distraction_servers(task_id: str, declared: Iterable[str], needed: Iterable[str]) -> list[str]:
    """Return all declared servers except the task's own, in an order drawn by the task's id (seed 004, 3.2).

    The first N are its sample of N: equal for equal names in any order.
    """
    # Sorted, because a set of texts has another order in every process. With a separate generator, because
    # the state of the process's generator depends on earlier calls.
    others = sorted(set(declared) - set(needed))
    random.Random(task_id).shuffle(others)
    return others


class ToolUse(Record):
    """Use of tools in a run, for the tables of MCP-Bench. All scores 0-1, None if there is nothing to measure.

    `servers` counts the task's own servers, `servers_used` those with a called tool. `rules` is the mean of the
    existing rates of valid names, valid arguments and successful calls; the three axes are the judge's; `overall` is
    the mean of these four, of the axes alone without rates, None without a judge. `rounds` is the number of rounds that
    called tools, None if the runner records none. `completed` is whether the run ended with an answer. `distractors`
    counts the distraction servers of the task, `distractors_offered` the offered ones among them: the others were
    missing or did not start. Both are None if the run required all of them.
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
    distractors: int | None = None
    distractors_offered: int | None = None

    @property
    def parts_line(self) -> str:
        """Return the four parts of the overall score, as people read them."""
        parts = {
            "rules": self.rules,
            "task completion": self.task_completion,
            "tool selection": self.tool_selection,
            "planning": self.planning,
        }
        return ", ".join(f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in parts.items())
