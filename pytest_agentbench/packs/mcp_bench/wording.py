"""Texts for models in two languages, from `texts/`, a file for each purpose and language.

A text is read with the first request that needs it. Lines that end in a backslash continue in the next one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from pytest_agentbench.config.prompt_files import PromptTexts
from pytest_agentbench.judging.prompt import HOW_TO_READ
from pytest_agentbench.packs.mcp_bench.prompts import SYNTHESIS_PROMPTS
from pytest_agentbench.packs.mcp_bench.records import ToolUseDimension


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
class JudgeWording:
    """Texts for the judge that do not come from the run. `{...}` are placeholders.

    `rubric` is in the order of the paper (seed 004, A.4). `labels` are titles of blocks.
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


@dataclass(frozen=True, slots=True)
class PlannerWording:
    """Texts of `mcp_planner` for its model (seed 004, A.2), in one language.

    Names in braces are placeholders: `boundary` is the code of blocks, numbers are whole. Texts without placeholders
    are used unchanged, including braces.
    """

    how_to_read: str
    """`{boundary}`. Explains how to distinguish data from instructions; follows the system message of each request."""
    planning: str
    """The system message of a request for a plan, with its form."""
    tools: str
    task: str
    tools_label: str
    task_label: str
    round: str
    """`{round}`, `{max_rounds}`."""
    last_round: str
    information: str
    nothing_known: str
    round_heading: str
    """`{round}`."""
    reasoning_label: str
    result_label: str
    """`{number}`, `{round}`."""
    succeeded: str
    failed: str
    compressed: str
    compressed_label: str
    ask_plan: str
    invalid_plan: str
    """`{problems}`."""
    native_calls: str
    """One more problem of a reply that calls tools natively."""
    cut_plan: str
    """`{tokens}`. One more problem of a reply that was cut off."""
    answering: str
    """The system message of the request for the final answer."""
    executed: str
    """`{calls}`, `{servers}`."""
    ask_answer: str
    summarising: str
    """The system message of a request for a summary."""
    ask_summary: str
    """`{tokens}`."""
    content_label: str
    ask_compression: str
    """`{tokens}`."""
    left_out: str
    """`{tokens}`. Marks the place where a text was cut."""


@dataclass(frozen=True, slots=True)
class SynthesisWording:
    """Texts of synthesis in one language. A line `{name}` is a slot of a template.

    `system` is every request's system message, with `{boundary}`. `several_servers`, `scenario`, `ordinal` and
    `count` are formatted first.
    """

    system: str
    generation: str
    """Slots: tools, several_servers, scenario, ordinal, others, problems."""
    several_servers: str
    scenario: str
    ordinal: str
    others: str
    problems: str
    fuzzing: str
    """Slots: task, count, exactness, problems."""
    count: str
    exact: str
    fuzzing_problems: str
    quality: str
    """Slots: task, fuzzy, tools."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Prompts of files in place of generation, fuzzing and quality, by these names."""


@cache
def read_judge_wording(language: str) -> JudgeWording:
    """Return the texts of the judge's prompt."""
    texts = _read("judge", language)
    rubric = tuple(
        Axis(axis["title"], tuple(Scale(s["name"], s["title"], tuple(s["bands"])) for s in axis["scales"]))
        for axis in texts.pop("rubric")
    )
    # A language may have its own `how_to_read`; otherwise the text for all judges is used.
    return JudgeWording(**{"how_to_read": HOW_TO_READ, **texts}, rubric=rubric)


@cache
def read_planner_wording(language: str) -> PlannerWording:
    """Return the texts of the planner."""
    return PlannerWording(**_read("planner", language))


@cache
def read_synthesis_wording(language: str) -> SynthesisWording:
    """Return the texts of task synthesis."""
    return SynthesisWording(**_read("synthesis", language))


def replace_prompts(wording: SynthesisWording, prompts: PromptTexts | None, language: str) -> SynthesisWording:
    """Return the texts with the prompts of files in place of theirs."""
    if prompts is None:
        return wording
    texts = {name: text for name in SYNTHESIS_PROMPTS if (text := prompts.find(name, language)) is not None}
    return replace(wording, replaced=texts)


def _read(purpose: str, language: str) -> dict[str, Any]:
    # TOML has unescaped texts of many lines with quotes and braces, and Python's library reads it.
    return tomllib.loads((files(__package__) / "texts" / f"{purpose}.{language}.toml").read_text("utf-8"))
