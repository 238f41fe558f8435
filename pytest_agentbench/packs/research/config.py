"""`poet_algorithm_config.json` of seed 003: the weights of every part, and how it is evaluated."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, model_validator

from pytest_agentbench.config.base import Scope, complain, validate
from pytest_agentbench.config.documents import read_document
from pytest_agentbench.packs.research.annotations import SAME_DOMAINS, Annotations, DomainExpert, read_annotations
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, RaceDimension
from pytest_agentbench.records.base import AtLeastOne, Record

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_SUM_ERROR = 1e-6
_THRESHOLDS = ("excellent_poet_score", "good_poet_score", "acceptable_poet_score", "poor_poet_score")


class _Section(Record):
    """A section of the file. Its `description` is for readers."""

    description: str | None = None


class _Weights(_Section):
    @model_validator(mode="after")
    def _sum_is_one(self) -> Self:
        total = sum(value for name, value in self if name != "description" and isinstance(value, float))
        # Not put right here: a sum of 0.95 is a mistake in a file, and each score would hide it.
        if abs(total - 1) > _SUM_ERROR:
            raise ValueError(f"found weights that sum to {total:g}, expected 1")
        return self


class PoetValueWeights(_Weights):
    """Weights of the composite."""

    efficiency_value: Weight = 0.3
    quality_value: Weight = 0.5
    strategic_value: Weight = 0.2


class QualityWeights(_Weights):
    """Weights of the quality value."""

    race_score: Weight = 0.7
    fact_score: Weight = 0.3


class EfficiencyValueWeights(_Weights):
    """Weights of the efficiency value."""

    time_weight: Weight = 0.4
    cost_weight: Weight = 0.3
    automation_weight: Weight = 0.3


class StrategicValueWeights(_Weights):
    """Weights of the strategic value."""

    task_capability: Weight = 0.6
    knowledge_capability: Weight = 0.4


class RaceWeights(_Weights):
    """Weights of RACE's dimensions, where these are not weighted for each query."""

    comprehensiveness: Weight = 0.25
    insight: Weight = 0.35
    instruction_following: Weight = 0.25
    readability: Weight = 0.15

    @property
    def by_dimension(self) -> dict[RaceDimension, float]:
        """Return as criteria have them."""
        return {name: getattr(self, name) for name in RACE_DIMENSIONS}


class QuerySelection(_Section):
    """Selection of queries: from which score they are kept, and whether each weighs RACE's dimensions its own way."""

    threshold: Annotated[float, Field(ge=1, le=5)] = 4.0
    enable_dynamic_weighting: StrictBool = True


class EvaluationSettings(_Section):
    """Rows at once, and their languages."""

    max_workers: AtLeastOne = 10
    enable_parallel_processing: StrictBool = True
    language_support: tuple[Literal["zh", "en"], ...] = ("zh", "en")

    @property
    def workers(self) -> int:
        """Return one where rows are not to be processed side by side."""
        # Two settings of the original for one thing; the switch wins.
        if self.enable_parallel_processing:
            return self.max_workers
        return 1


# Tops that the formulas have built in: a file that sets another one means other formulas, and is refused.
def _only(top: float, scores: str) -> AfterValidator:
    def checked(value: float) -> float:
        if value != top:
            raise ValueError(f"found {value:g}, expected {top:g}: {scores}")
        return value

    return AfterValidator(checked)


class EvaluationParameters(_Section):
    """Tops of the scales. RACE's is honoured in compat mode only: its scores are 0-1."""

    race_score_max: Positive = 5.0
    fact_accuracy_max: Positive = 1.0
    strategic_score_max: Annotated[float, _only(5, "judges score 1-5")] = 5.0
    efficiency_score_max: Annotated[float, _only(1, "the efficiency value is a share")] = 1.0


class PerformanceThresholds(_Section):
    """Least composites of the performance classes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    excellent_threshold: Share = Field(0.8)
    good_threshold: Share = Field(0.6)
    acceptable_threshold: Share = Field(0.4)
    poor_threshold: Share = Field(0.2)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        values = [self.poor_threshold, self.acceptable_threshold, self.good_threshold, self.excellent_threshold]
        # In any other order a class could not be reached, and its name would never be seen.
        if sorted(values) != values:
            complain([((), f"found {values}, expected poor <= acceptable <= good <= excellent")])
        return self


class SystemSettings(_Section):
    """Place of the knowledge base, and the time that a request may take."""

    knowledge_base_path: str | None = None
    max_retries: AtLeastOne = 3
    timeout_seconds: Annotated[float, Field(gt=0)] = 300
    default_batch_size: AtLeastOne = 10


class KnowledgeBaseSettings(_Section):
    """Rules by which knowledge units are taken over."""

    max_knowledge_units_per_task: AtLeastOne = 10
    min_knowledge_quality_threshold: Share = 0.3
    knowledge_similarity_threshold: Share = 0.7
    knowledge_retention_days: AtLeastOne = 365


class ReportingSettings(_Section):
    """Reports that are written."""

    generate_detailed_report: StrictBool = True
    generate_summary_report: StrictBool = True
    generate_text_report: StrictBool = True
    include_charts: StrictBool = True
    top_tasks_count: AtLeastOne = 10
    bottom_tasks_count: AtLeastOne = 5


class PoetConfig(_Section):
    """Whole file. A section that it leaves out has the seed's values; `version` and the like are for readers."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    version: str | None = None
    last_updated: str | None = None
    poet_weights: PoetValueWeights = Field(default_factory=PoetValueWeights)
    quality_value_weights: QualityWeights = Field(default_factory=QualityWeights)
    efficiency_weights: EfficiencyValueWeights = Field(default_factory=EfficiencyValueWeights)
    strategic_weights: StrategicValueWeights = Field(default_factory=StrategicValueWeights)
    race_weights: RaceWeights = Field(default_factory=RaceWeights)
    query_selection: QuerySelection = Field(default_factory=QuerySelection)
    evaluation_settings: EvaluationSettings = Field(default_factory=EvaluationSettings)
    evaluation_parameters: EvaluationParameters = Field(default_factory=EvaluationParameters)
    performance_thresholds: PerformanceThresholds = Field(default_factory=PerformanceThresholds)
    system_settings: SystemSettings = Field(default_factory=SystemSettings)
    knowledge_base_settings: KnowledgeBaseSettings = Field(default_factory=KnowledgeBaseSettings)
    reporting_settings: ReportingSettings = Field(default_factory=ReportingSettings)
    knowledge_base_path: str | None = None
    task_complexity_mapping: dict[str, int] = Field(default_factory=dict)
    domain_expert_rates: dict[str, Weight] = Field(default_factory=dict)
    domain_expert_times: dict[str, Weight] = Field(default_factory=dict)
    token_pricing: dict[str, Weight] = Field(default_factory=dict)
    evaluation_thresholds: dict[str, Share] = Field(default_factory=dict)
    default_expert_time: Weight | None = None
    default_expert_rate: Weight | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        # The two files of the original have it in two places, and both load.
        paths = {self.knowledge_base_path, self.system_settings.knowledge_base_path} - {None}
        if len(paths) > 1:
            complain([(("knowledge_base_path",), f"found {sorted(map(str, paths))} in two places, expected one path")])
        if unknown := self.evaluation_thresholds.keys() - _THRESHOLDS:
            names = ", ".join(sorted(unknown))
            complain([(("evaluation_thresholds",), f"found {names}, expected {', '.join(_THRESHOLDS)}")])
        # Half of an expert would give a cost without hours, or the reverse.
        if self.domain_expert_times.keys() != self.domain_expert_rates.keys():
            alone = sorted(self.domain_expert_times.keys() ^ self.domain_expert_rates.keys())
            complain(
                [
                    (
                        ("domain_expert_times",),
                        f"{', '.join(alone)}: found hours or a rate, expected both for each domain",
                    )
                ]
            )
        return self

    @property
    def knowledge_base(self) -> str | None:
        """Return where knowledge is kept; the seed's two files have it in two places."""
        return self.knowledge_base_path or self.system_settings.knowledge_base_path

    def unused(self, *, compat: bool) -> list[str]:
        """Return the file's settings without effect, each with the reason."""
        settings = [
            f"{name}: an unknown domain or model is an error, never a default"
            for name in ("default_expert_time", "default_expert_rate", "token_pricing")
            if name in self.model_fields_set
        ]
        settings += [
            f"system_settings.{name}: the judge's model has its own (models.yaml)"
            for name in ("max_retries", "default_batch_size")
            if name in self.system_settings.model_fields_set
        ]
        if "include_charts" in self.reporting_settings.model_fields_set:
            settings.append("reporting_settings.include_charts: the business report is JSON and text, without charts")
        if not compat and "race_score_max" in self.evaluation_parameters.model_fields_set:
            settings.append("evaluation_parameters.race_score_max: RACE's scores are 0-1 (only --compat divides by it)")
        return settings


def read_poet_config(path: Path | None) -> PoetConfig:
    """Return the configuration of a file, the seed's without one. Raises ConfigError with all problems of the file."""
    if path is None:
        return PoetConfig()
    return validate(read_document(path), PoetConfig, Scope(str(path.parent)))


def annotations_of(folder: Path, config: PoetConfig) -> Annotations:
    """Return the annotation files of a folder, with the domains that only the configuration has. Raises ConfigError.

    A domain that the files have by its other name (SAME_DOMAINS) is theirs.
    """
    annotations = read_annotations(folder)
    own = {
        # Domains that only the configuration has: where annotations know one, under either name, theirs count.
        name: DomainExpert(avg_task_time_hours=hours, avg_hourly_rate_usd=config.domain_expert_rates[name])
        for name, hours in config.domain_expert_times.items()
        if SAME_DOMAINS.get(name) not in annotations.domains
    }
    return replace(annotations, domains={**own, **annotations.domains})
