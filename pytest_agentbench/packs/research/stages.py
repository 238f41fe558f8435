"""Table of stages: their inputs, questions to a judge, scores and files. Items and commands both follow from it.

A new stage is a row here (one that scores reports also a name of `Part`) and the module that the row names.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal, get_args

# Lowest of the pack: every module may import the table, which imports no module itself before `load`.
Part = Literal["race", "fact", "efficiency", "strategic", "interaction", "poet"]
"""A stage that scores reports, as `parts` of a reports.yaml has it: spelled out for schemas and type checkers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage: a command of `agentbench research`, a step of its `run` and, if it scores reports, a part of items.

    Its `module` has the command's `add_parser` and `run`. The module of a stage of queries has
    `prepare_queries(call)`, a step of the whole pipeline. The module of a part has:

    - `async score_reports(call, file, output)`, the step on a file of reports, which writes to the folder `output`;
    - `async grade_report(grading)`, which gives the score of one item (grading.py), or raises AgentbenchError;
    - `list_metrics(grading)`, which yields the metrics of that score as (name, score, details);
    - `keep_evidence(score)`, which gives fields of ResearchScores that the score rests on.
    """

    name: str
    summary: str
    """Help text of its command in `agentbench research`."""
    module: str
    """Below this package; imported when the stage is first used."""
    command: str = ""
    """The name of its command, where that is not the stage's own."""
    asks: tuple[str, ...] = ()
    """Its questions to a judge, under the names of scripts and of costs. A new PROMPT_VERSION scores them again."""
    inputs: tuple[str, ...] = ()
    """Fields of reports.yaml that it cannot do without."""
    made_of: tuple[Part, ...] = ()
    """Parts whose scores it puts together; graded after these, and always: their metrics show its row too."""
    prepares: Part | None = None
    """For a stage of queries: the only part that uses its results."""
    metrics: tuple[str, ...] = ()
    main_metric: str = ""
    """The metric that gets the part's error if it failed, and its judge's usage."""
    unbounded: frozenset[str] = frozenset()
    """Metrics with other units; all others are 0-1."""
    lower_is_better: frozenset[str] = frozenset()
    """Metrics that no threshold can be set for: thresholds are least values."""
    folder: str = ""
    """Below the folder of results, with a folder for each model in it."""
    rows: str = ""
    """The file in that folder with a row for each report, from which later stages take its scores."""

    def load(self) -> ModuleType:
        """Return its module."""
        return import_module(f"{__package__}.{self.module}")


STAGES = (
    Stage(
        name="select",
        summary="score queries by seven dimensions and keep the valuable ones",
        module="select_queries",
        command="select-queries",
        asks=("select",),
    ),
    Stage(
        name="criteria",
        summary="make RACE's criteria for queries",
        module="criteria",
        asks=("weights", "criteria"),
        prepares="race",
    ),
    Stage(
        name="race",
        summary="judge the quality of reports, against references or alone",
        module="race",
        asks=("clean", "race"),
        inputs=("criteria",),
        metrics=(
            "race",
            "race_comprehensiveness",
            "race_insight",
            "race_instruction_following",
            "race_readability",
            "race_weighted_dims",
            "race_sd",
        ),
        main_metric="race",
        lower_is_better=frozenset({"race_sd"}),
        folder="race",
        rows="raw_results.jsonl",
    ),
    Stage(
        name="fact",
        summary="check the citations of reports: extract, deduplicate, scrape, validate, stat",
        module="fact.command",
        asks=("extract", "deduplicate", "validate"),
        metrics=("fact_accuracy", "fact_citations", "fact_valid_citations", "fact_supported_per_1000_words"),
        main_metric="fact_accuracy",
        unbounded=frozenset({"fact_citations", "fact_valid_citations", "fact_supported_per_1000_words"}),
        folder="fact",
        rows="validated.jsonl",
    ),
    Stage(
        name="efficiency",
        summary="compare the time and cost of reports with an expert's",
        module="efficiency",
        inputs=("annotations",),
        metrics=("efficiency", "time_saving", "cost_saving_usd", "automation", "resource_efficiency"),
        main_metric="efficiency",
        unbounded=frozenset({"time_saving", "cost_saving_usd", "resource_efficiency"}),
        folder="efficiency",
        rows="efficiency_report.json",
    ),
    Stage(
        name="strategic",
        summary="judge the value of reports beyond their task",
        module="strategic",
        asks=("strategic", "knowledge", "reuse"),
        inputs=("annotations",),
        metrics=("strategic", "complexity_adaptability", "knowledge_units", "knowledge_creation_value"),
        main_metric="strategic",
        unbounded=frozenset({"knowledge_units", "knowledge_creation_value"}),
        folder="strategic",
        rows="strategic_report.json",
    ),
    Stage(
        name="interaction",
        summary="score the use of the web by the agent",
        module="interaction",
        inputs=("annotations",),
        metrics=("interaction_efficiency",),
        main_metric="interaction_efficiency",
        folder="web_interaction",
        rows="web_interaction_report.json",
    ),
    Stage(
        name="poet",
        summary="put the parts together and write the business report",
        module="poet",
        inputs=("annotations",),
        made_of=("race", "fact", "efficiency", "strategic"),
        metrics=("quality", "poet"),
        main_metric="poet",
        folder="poet",
    ),
)
"""All stages, in the order of the pipeline."""

# From the type, so that a part without a row ends the first import.
PARTS: tuple[Part, ...] = get_args(Part)
"""The stages that score reports, in that order."""

PART_STAGES: dict[Part, Stage] = {part: next(stage for stage in STAGES if stage.name == part) for part in PARTS}

QUESTIONS = tuple(question for stage in STAGES for question in stage.asks)
"""All questions to judges, in the order of the pipeline."""

SCORES: dict[Part, tuple[str, ...]] = {part: stage.metrics for part, stage in PART_STAGES.items()}
"""The scores of each part, as metrics have them."""

UNBOUNDED = frozenset[str]().union(*(stage.unbounded for stage in STAGES))
"""All scores with other units than 0-1."""

ANNOTATED = tuple(part for part, stage in PART_STAGES.items() if "annotations" in stage.inputs)
"""The parts that compare with an expert, so that they need annotations."""

JUDGED = tuple(
    part for part, stage in PART_STAGES.items() if stage.asks or any(PART_STAGES[other].asks for other in stage.made_of)
)
"""The parts that ask a judge, directly or through their inputs."""
