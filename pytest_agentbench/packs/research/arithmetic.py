"""Arithmetic of efficiency, web interaction and strategic value (seed 003), and the original's variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import Annotations
from pytest_agentbench.packs.research.config import EfficiencyValueWeights, PoetConfig, StrategicValueWeights


@dataclass(frozen=True, slots=True)
class Expert:
    """Expert who would have done the task: hours that it takes, USD per hour."""

    hours: float
    hourly_rate_usd: float

    @property
    def cost_usd(self) -> float:
        """Return the cost of the expert's work."""
        return self.hours * self.hourly_rate_usd


_EFFICIENCY, _VALUE = EfficiencyValueWeights(), StrategicValueWeights()
"""The seed's weights."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A report's efficiency, 0-1, and its parts. A part that cannot be computed is None; `missing` names the missing
    data.

    `time_saving` is a share of the expert's hours, negative if the agent took longer; `cost_saving_usd` is negative if
    it cost more.
    """

    score: float | None
    time_saving: float | None
    time_saving_hours: float | None
    cost_saving_usd: float | None
    automation: float | None
    missing: tuple[str, ...] = ()


def efficiency(
    expert: Expert,
    *,
    hours: float | None,
    cost_usd: float | None,
    automation: float | None,
    weights: EfficiencyValueWeights = _EFFICIENCY,
) -> Efficiency:
    """Return `clamp(0.4 max(0, time saving) + 0.3 clamp(cost saving / expert's cost) + 0.3 automation)`.

    `hours` and `cost_usd` are the agent's. Of an expert of no hours, or of no cost, there is no share to be saved.
    """
    saved_hours, saved_usd = _difference(expert.hours, hours), _difference(expert.cost_usd, cost_usd)
    time_saving, cost_saving = share_of(saved_hours, expert.hours), share_of(saved_usd, expert.cost_usd)
    needed = {
        "total_duration_seconds": hours,
        "token_usage.total_cost_usd": cost_usd,
        "automation_level": automation,
        # 0 is missing too: nothing can be saved of it. `share_of` gives None for the same reason.
        "expert.hours": expert.hours or None,
        "expert.cost_usd": expert.cost_usd or None,
    }
    missing = tuple(name for name, value in needed.items() if value is None)
    score = None
    if time_saving is not None and cost_saving is not None and automation is not None:
        score = clamped(
            # Taking longer than the expert is not a negative efficiency: it earns nothing, and `time_saving`
            # has the amount.
            weights.time_weight * max(0.0, time_saving)
            + weights.cost_weight * clamped(cost_saving)
            + weights.automation_weight * automation
        )
    return Efficiency(score, time_saving, saved_hours, saved_usd, automation, missing)


def clamped(value: float) -> float:
    """Return the value, limited to 0-1."""
    return min(1.0, max(0.0, value))


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return part / whole; None if one is unknown, or the whole is 0."""
    if part is None or not whole:
        return None
    return part / whole


# How an agent worked with the web: efficiency and strategic proxies without a judge (seed 003, Web交互能力).
# Every score follows from recorded values; if a value is missing, the scores that need it are None.


INTERACTION_TOP = 5.0


@dataclass(frozen=True, slots=True)
class Interaction:
    """Recorded figures of a task. Rates and coverage are 0-1, satisfaction 1-5. None: not recorded."""

    total_duration_seconds: float | None = None
    thinking_time_seconds: float | None = None
    first_response_time_seconds: float | None = None
    total_input_tokens: float | None = None
    total_output_tokens: float | None = None
    model_name: str | None = None
    estimated_cost_usd: float | None = None
    automation_rate: float | None = None
    error_rate: float | None = None
    efficiency_score: float | None = None
    retry_count: float | None = None
    tool_calls_count: float | None = None
    search_queries_count: float | None = None
    successful_tool_rate: float | None = None
    word_count: float | None = None
    citation_count: float | None = None
    sources_used: float | None = None
    coverage_completeness: float | None = None
    user_satisfaction_rating: float | None = None
    user_interruptions: float | None = None
    expert_time_hours: float | None = None
    expert_hourly_rate_usd: float | None = None


@dataclass(frozen=True, slots=True)
class InteractionEfficiency:
    """Each 0-1; `overall` is their mean."""

    time_efficiency: float | None
    cost_efficiency: float | None
    automation_efficiency: float | None
    quality_efficiency: float | None

    @property
    def overall_efficiency(self) -> float | None:
        """Return the mean, or None if any of the four is None."""
        parts: list[float | None] = [getattr(self, field.name) for field in fields(self)]
        # A mean over the known values would reward agents that record less.
        total = _sum(*parts)
        return None if total is None else total / len(parts)


@dataclass(frozen=True, slots=True)
class InteractionStrategy:
    """Proxies of the eight strategic scores, each at most 5, and the knowledge units that sources and citations are."""

    multi_step_reasoning_score: float | None
    domain_expertise_score: float | None
    synthesis_capability_score: float | None
    independence_score: float | None
    knowledge_extraction_score: float | None
    knowledge_organization_score: float | None
    knowledge_reuse_potential: float | None
    knowledge_quality_score: float | None
    created_knowledge_units: float | None


def interaction_efficiency(task: Interaction) -> InteractionEfficiency:
    """Return `min(1, h_exp / h_AI)`, the share of the expert's cost saved, automation, `(1 - errors) sat / 5`."""
    expert_cost = _product(task.expert_time_hours, task.expert_hourly_rate_usd)
    return InteractionEfficiency(
        time_efficiency=versus_expert(task),
        cost_efficiency=_cap(share_of(cost_saving(task), expert_cost), 1.0),
        automation_efficiency=task.automation_rate,
        quality_efficiency=_product(
            _difference(1, task.error_rate), task.user_satisfaction_rating, 1 / INTERACTION_TOP
        ),
    )


def versus_expert(task: Interaction) -> float | None:
    """Return `min(1, h_exp / h_AI)`."""
    hours, seconds = task.expert_time_hours, task.total_duration_seconds
    if hours is None or seconds is None:
        return None
    agent_hours = seconds / 3600  # 0 also of the least of floats
    if agent_hours:
        return min(1.0, hours / agent_hours)
    return 1.0


def time_saving_hours(task: Interaction) -> float | None:
    """Return the hours that are saved, at least 0, as the original reports it."""
    if task.expert_time_hours is None or task.total_duration_seconds is None:
        return None
    return max(0.0, task.expert_time_hours - task.total_duration_seconds / 3600)


def cost_saving(task: Interaction) -> float | None:
    """Return the USD that are saved, at least 0, as the original reports it."""
    expert_cost = _product(task.expert_time_hours, task.expert_hourly_rate_usd)
    saving = _difference(expert_cost, task.estimated_cost_usd)
    return None if saving is None else max(0.0, saving)


def interaction_strategy(task: Interaction) -> InteractionStrategy:
    """Return the proxies.

    `tools/5*2 + think_s/60*3`, `sources/10*3 + cit/20*2`, `5 cov`, `auto (1-err) 5`, `queries/2 + toolrate*3`,
    `words/5000*3 + 2 cov`, `cit/15*5`, `sat*cov`."""
    coverage = task.coverage_completeness
    return InteractionStrategy(
        multi_step_reasoning_score=_capped((task.tool_calls_count, 2 / 5), (task.thinking_time_seconds, 3 / 60)),
        domain_expertise_score=_capped((task.sources_used, 3 / 10), (task.citation_count, 2 / 20)),
        synthesis_capability_score=_capped((coverage, INTERACTION_TOP)),
        independence_score=_capped((_product(task.automation_rate, _difference(1, task.error_rate)), INTERACTION_TOP)),
        knowledge_extraction_score=_capped((task.search_queries_count, 1 / 2), (task.successful_tool_rate, 3.0)),
        knowledge_organization_score=_capped((task.word_count, 3 / 5000), (coverage, 2.0)),
        knowledge_reuse_potential=_capped((task.citation_count, INTERACTION_TOP / 15)),
        knowledge_quality_score=_capped((_product(task.user_satisfaction_rating, coverage), 1.0)),
        # The seed has no judge at this stage: sources and citations replace units of knowledge.
        created_knowledge_units=_sum(task.sources_used, task.citation_count),
    )


def _capped(*terms: tuple[float | None, float]) -> float | None:
    return _cap(_sum(*(_product(value, factor) for value, factor in terms)), INTERACTION_TOP)


def _cap(value: float | None, top: float) -> float | None:
    return None if value is None else min(top, value)


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return sum(known)
    return None


def _product(*values: float | None) -> float | None:
    total = 1.0
    for value in values:
        if value is None:
            return None
        total *= value
    return total


def _difference(value: float | None, other: float | None) -> float | None:
    if value is None or other is None:
        return None
    return value - other


TASK_SCORES = ("multi_step_reasoning", "domain_expertise", "synthesis_capability", "independence")
KNOWLEDGE_SCORES = (
    "knowledge_extraction",
    "knowledge_organization",
    "knowledge_reuse_potential",
    "knowledge_quality",
)
STRATEGIC_SCORES = (*TASK_SCORES, *KNOWLEDGE_SCORES)
STRATEGIC_LOWEST, STRATEGIC_TOP = 1.0, 5.0
SHORTEST_HOURS = 0.5
"""Hours of an expert: a task below that is not complex."""


def strategic_value(scores: Mapping[str, float], weights: StrategicValueWeights = _VALUE) -> float:
    """Return `0.6 sum(task scores) / 20 + 0.4 sum(knowledge scores) / 20`, 0.2-1, of eight scores of 1-5."""
    task = sum(scores[name] for name in TASK_SCORES) / (STRATEGIC_TOP * len(TASK_SCORES))
    knowledge = sum(scores[name] for name in KNOWLEDGE_SCORES) / (STRATEGIC_TOP * len(KNOWLEDGE_SCORES))
    return weights.task_capability * task + weights.knowledge_capability * knowledge


def complexity_adaptability(quality: float | None, difficulty: float, expert_hours: float) -> float | None:
    """Return `quality * difficulty / 5`: task quality 0-1, difficulty 1-5. None for tasks of less than half an hour."""
    if quality is None or expert_hours < SHORTEST_HOURS:
        return None
    return quality * difficulty / STRATEGIC_TOP


def knowledge_creation_value(qualities: list[float]) -> float:
    """Return the units of knowledge times their mean quality (0-1): the sum of their qualities."""
    return sum(qualities)


_TIME_WITHOUT_EXPERT = 0.5

# Separate weights, which sum to 1; not those of `strategic_value`.
_STRATEGIC = MappingProxyType(dict(zip(STRATEGIC_SCORES, (0.25, 0.20, 0.20, 0.15, 0.10, 0.05, 0.05, 0.0), strict=True)))


def compat_efficiency(
    expert: Expert,
    *,
    hours: float,
    cost_saving_usd: float,
    automation: float | None,
    weights: EfficiencyValueWeights = _EFFICIENCY,
) -> float:
    """Return 0-1: an expert of no hours leaves half of the points for time, an unknown automation counts 0."""
    time = max(0.0, (expert.hours - hours) / expert.hours) if expert.hours else _TIME_WITHOUT_EXPERT
    cost = clamped(cost_saving_usd / expert.cost_usd) if expert.cost_usd else 0.0
    return clamped(
        weights.time_weight * time + weights.cost_weight * cost + weights.automation_weight * (automation or 0.0)
    )


def overall_strategic_score(scores: Mapping[str, float]) -> float:
    """Return the original's weighted sum of the eight scores, of 1-5; its weights sum to 1."""
    return sum(scores[name] * weight for name, weight in _STRATEGIC.items())


# The original's values for an unknown domain.
_NO_EXPERT = Expert(2.0, 100.0)


def compat_expert(
    annotations: Annotations | None, domain: str | None, level: int | str | None, task_type: str | None = None
) -> Expert:
    """Return the original's expert: hours by the type of task, else by domain and level; USD per hour by domain.

    A domain counts under its very name. One that is not annotated takes 2 hours at 100 USD.
    """
    if annotations is None:
        return _NO_EXPERT
    # Under its very name: the original does not know that healthcare and medical are one.
    annotated = annotations.domains.get(domain or "")
    expert = _NO_EXPERT if annotated is None else Expert(annotated.avg_task_time_hours, annotated.avg_hourly_rate_usd)
    kind = annotations.task_types.get(task_type or "")
    if kind is not None:
        # Without the level's multiplier: a type of task has its own level.
        return replace(expert, hours=kind.expert_time_hours)
    complexity = annotations.levels.get(level) if isinstance(level, int) else None
    return replace(expert, hours=expert.hours * (1.0 if complexity is None else complexity.expert_time_multiplier))


def compat_success_rate(rates: Sequence[float | None]) -> float | None:
    """Return the original's success rate of tool calls: the plain mean of `rates`, None without any.

    It ignores the number of calls of an entry. An entry without a rate counts as successful.
    """
    if rates:
        return sum(1.0 if rate is None else rate for rate in rates) / len(rates)
    return None


def compat_interaction(task: Interaction, prompt: str, article: str, *, measured: bool) -> Interaction:
    """Return the task with the original's estimates in place of unrecorded values.

    If no interaction was `measured`, time, tokens and cost follow from the number of words; the other estimates are
    constants (row 0 of golden_examples/web_interaction.jsonl).
    """
    estimates = _DEFAULTS if measured else _estimates(task, prompt, article)
    absent = [field.name for field in fields(task) if getattr(task, field.name) is None]
    return replace(task, **{name: estimates[name] for name in absent if name in estimates})


_DEFAULTS: dict[str, Any] = {"first_response_time_seconds": 0.0, "successful_tool_rate": 1.0}
_LEAST_SECONDS, _SECONDS_PER_WORD = 60.0, 0.5
"""Estimated seconds of a report: at least, and per word."""
_THINKING_SHARE, _MOST_THINKING_SECONDS = 0.1, 30.0


def _estimates(task: Interaction, prompt: str, article: str) -> dict[str, Any]:
    # The original splits at blanks, so that a Chinese article has a handful of words.
    words = len(article.split())
    seconds = task.total_duration_seconds
    if seconds is None:
        seconds = max(_LEAST_SECONDS, _SECONDS_PER_WORD * words)
    input_tokens, output_tokens = int(1.3 * len(prompt.split())), int(1.3 * words)
    return {
        "total_duration_seconds": seconds,
        "thinking_time_seconds": min(_THINKING_SHARE * seconds, _MOST_THINKING_SECONDS),
        "first_response_time_seconds": 5.0,
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "model_name": "estimated-model",
        "estimated_cost_usd": (0.003 * input_tokens + 0.015 * output_tokens) / 1000,
        "automation_rate": 0.8,
        "error_rate": 0.05,
        "efficiency_score": 0.7,
        "retry_count": 0,
        "tool_calls_count": 5,
        "search_queries_count": 3,
        "successful_tool_rate": 0.9,
        "word_count": words,
        # By the bracket and the scheme alone: `count_article` reads markers such as [3].
        "citation_count": article.count("["),
        "sources_used": max(1, article.count("http")),
        "coverage_completeness": 0.75,
        "user_satisfaction_rating": 3.5,
        "user_interruptions": 0,
    }


@dataclass(frozen=True, slots=True)
class AnnotatedTask:
    """A task's domain and complexity level, its expert (hours with the level's multiplier), its difficulty (0-5)."""

    domain: str
    level: int
    expert: Expert
    difficulty: float


def task_of(annotations: Annotations, config: PoetConfig, domain: str, level: int | str | None) -> AnnotatedTask:
    """Return the annotations of a domain's task of a level. Raises ConfigError: neither has a default."""
    if level is None:
        raise ConfigError(
            "complexity_level: missing, expected it in the report's row or its query's, such as "
            "selected_queries.jsonl of `agentbench research select-queries --export-selected` has"
        )
    expert = annotations.domain(domain)
    number = annotations.level_number(level, config.task_complexity_mapping)
    complexity = annotations.level(number)
    return AnnotatedTask(
        domain=domain,
        level=number,
        # `h_exp` of seed 003: all savings of time and cost are shares of it.
        expert=Expert(expert.avg_task_time_hours * complexity.expert_time_multiplier, expert.avg_hourly_rate_usd),
        difficulty=float(number if complexity.difficulty_score is None else complexity.difficulty_score),
    )


COMPAT_RACE_MAX = 5.0
"""The original's divisor of RACE's 0-1."""


@dataclass(frozen=True, slots=True)
class PoetWeights:
    """Weights of the composite and of quality, and the tops of the scales of RACE and citations."""

    efficiency: float = 0.3
    quality: float = 0.5
    strategic: float = 0.2
    race: float = 0.7
    fact: float = 0.3
    race_max: float = 1.0
    fact_max: float = 1.0


def quality_value(
    race: float | None,
    fact_accuracy: float | None,
    weights: PoetWeights = PoetWeights(),
) -> float | None:
    """Return `0.7 RACE / race_max + 0.3 citation accuracy`, each at most 1; None if one is missing."""
    if race is None or fact_accuracy is None:
        return None
    # In compat mode RACE, which is 0-1, is divided by 5.0, so that the original's quality counts a fifth of it.
    return weights.race * min(1.0, race / weights.race_max) + weights.fact * min(1.0, fact_accuracy / weights.fact_max)


def composite_value(
    efficiency: float | None,
    quality: float | None,
    strategic: float | None,
    weights: PoetWeights = PoetWeights(),
) -> float | None:
    """Return `0.3 efficiency + 0.5 quality + 0.2 strategic`, 0-1; None if one is missing."""
    # A missing part is no 0 and no mean of the others: it leaves the composite open.
    if efficiency is None or quality is None or strategic is None:
        return None
    return weights.efficiency * efficiency + weights.quality * quality + weights.strategic * strategic


def weights_of(config: PoetConfig, *, compat: bool = False) -> PoetWeights:
    """Return the weights of a configuration. Its divisor of RACE is used with `compat` only."""
    own, quality, tops = config.poet_weights, config.quality_value_weights, config.evaluation_parameters
    return PoetWeights(
        efficiency=own.efficiency_value,
        quality=own.quality_value,
        strategic=own.strategic_value,
        race=quality.race_score,
        fact=quality.fact_score,
        race_max=tops.race_score_max if compat else 1.0,
        fact_max=tops.fact_accuracy_max,
    )
