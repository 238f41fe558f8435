"""`evaluation_profiles/<id>.yaml`: who judges, how often, and how verdicts combine."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, field_validator, model_validator

from pytest_agentbench.config.base import (
    ConfigFile,
    LocalFile,
    Problems,
    complain,
    duplicates,
    suggest,
    temperature_problems,
    together,
    unique,
)
from pytest_agentbench.config.case_file import Metrics
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records import AtLeastOne, Fraction, Record, Slug, Text


class JudgeConfig(Record):
    """A judge. Other fields are request options as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    judge_id: Slug
    """The name that judge_runs refer to."""
    type: Text
    """The kind of judge, such as llm_probe."""
    model: Text | None = None
    """A model_id of models.yaml, or a model's name."""
    request_options: dict[str, Any] = Field(default_factory=dict)
    """Request options; they win over those given as fields of the judge."""

    @model_validator(mode="after")
    def _sound_temperature(self) -> Self:
        found = [(("request_options", *loc), message) for loc, message in temperature_problems(self.request_options)]
        complain(found + temperature_problems(self.model_extra or {}))
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What goes into each request beside model and messages."""
        return {**(self.model_extra or {}), **self.request_options}


class JudgeRunConfig(Record):
    """How often a judge is asked."""

    judge_run_id: Slug
    """Unique in the profile."""
    judge_id: Slug
    """A judge of the profile."""
    repetitions: AtLeastOne = 1
    """Iterations for each run; an MCP task has 5 where nothing is said."""
    sample_size: AtLeastOne | None = None
    """How many of the iterations are aggregated; all, where nothing is said."""

    @model_validator(mode="after")
    def _sample_of_the_repetitions(self) -> Self:
        if self.sample_size is not None and self.sample_size > self.repetitions:
            message = f"sample_size ({self.sample_size}) must not exceed repetitions ({self.repetitions})"
            raise Problems([(("sample_size",), message)])
        return self


class JudgeAggregation(Record):
    """How the iterations' scores become one."""

    method: Literal["median", "mean", "majority_vote", "all_pass"] = "median"
    """Over the successful iterations; for an MCP task the mean where nothing is said."""
    pass_threshold: Fraction | None = None
    """Fraction of the scale: a score below it fails."""


class Anchor(Record):
    """An example that shows the judge what a score means."""

    anchor_id: Slug
    """Unique in the profile."""
    label: Text
    """Its name in the prompt."""
    text: Text
    """The example."""


class Anchors(Record):
    """Calibration examples in the judge's prompt."""

    enabled: StrictBool = False
    """Whether the prompt shows them."""
    references: Annotated[tuple[Anchor, ...], unique("anchor_id")] = ()
    """The examples."""


class McpJudging(Record):
    """How MCP tasks are judged."""

    shuffle: Literal["axes", "bands", "none"] = "axes"
    """The order of the rubric in each iteration: axes and their dimensions shuffled, their bands too, or as it is."""
    language: Literal["en", "zh"] = "en"
    """The language of the judge's prompt."""


class SecurityPolicy(Record):
    """What evaluation may execute, reach and write."""

    allow_local_python_hooks: StrictBool = False
    """Python hooks of cases may run."""
    network_access: Literal["deny", "allow"] = "deny"
    """Network for hooks."""
    redact_secrets: StrictBool = True
    """Secrets are removed before anything is written or sent."""


def _judge_run_problems(runs: tuple[JudgeRunConfig, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    found = duplicates(runs, "judge_run_id")
    if "judges" in info.data:
        declared = {judge.judge_id for judge in info.data["judges"]}
        found += [
            ((index, "judge_id"), f"unknown judge_id {run.judge_id!r}{suggest(run.judge_id, declared)}")
            for index, run in enumerate(runs)
            if run.judge_id not in declared
        ]
    return found


class EvaluationProfile(ConfigFile):
    """An evaluation profile: judges, aggregation, and what evaluation may do."""

    evaluation_profile_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    judges: Annotated[tuple[JudgeConfig, ...], unique("judge_id")] = ()
    """Who can judge."""
    judge_runs: Annotated[tuple[JudgeRunConfig, ...], together(_judge_run_problems)] = ()
    """Who judges, and how often."""
    aggregation: JudgeAggregation = Field(default_factory=JudgeAggregation)
    """How iterations combine."""
    anchors: Anchors = Field(default_factory=Anchors)
    """Calibration examples."""
    mcp_tasks: McpJudging = Field(default_factory=McpJudging)
    """How MCP tasks are judged."""
    security_policy: SecurityPolicy = Field(default_factory=SecurityPolicy)
    """What evaluation may do."""
    judge_system_prompt_path: LocalFile | None = None
    """A file with the judge's system prompt; relative to this file."""
    judge_system_prompt: Text | None = None
    """The judge's system prompt."""
    metrics: Metrics = ()
    """Metrics of every case that has a reference."""
    compat: Literal["v1"] | None = None
    """Compute metrics as the original benchmark did."""

    @field_validator("judge_system_prompt")
    @classmethod
    def _one_prompt(cls, prompt: str | None, info: ValidationInfo) -> str | None:
        if prompt is not None and info.data.get("judge_system_prompt_path") is not None:
            raise ValueError("Specify only one of 'judge_system_prompt_path' and 'judge_system_prompt'")
        return prompt

    @property
    def system_prompt(self) -> str | None:
        """The judge's system prompt; None where the profile has none of its own. `load` has read it from its file."""
        return self.judge_system_prompt

    def first_judge(self, kind: str) -> JudgeConfig | None:
        """The first judge of the type `kind` that names a model."""
        return next((judge for judge in self.judges if judge.type == kind and judge.model), None)

    @classmethod
    def default(cls) -> EvaluationProfile:
        """What holds where a session names none: no judge."""
        return cls(schema_version=1, evaluation_profile_id="default", title="Default")
