"""How an agent worked with the web: efficiency and strategic proxies without a judge (seed 003, Web交互能力).

Every score follows from what was recorded; where a recorded value is missing, what needs it is None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

TOP = 5.0


@dataclass(frozen=True, slots=True)
class Interaction:
    """What was recorded of a task. Rates and coverage are 0-1, satisfaction 1-5. None: not recorded."""

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
        """None where any of the four is."""
        parts = [getattr(self, each.name) for each in fields(self)]
        return None if None in parts else sum(parts) / len(parts)


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
    """`min(1, h_exp / h_AI)`, the share of the expert's cost that is saved, automation, `(1 - errors) sat / 5`."""
    hours, rate = task.expert_time_hours, task.expert_hourly_rate_usd
    expert_cost = _product(hours, rate)
    saving = cost_saving(task)
    return InteractionEfficiency(
        time_efficiency=versus_expert(task),
        cost_efficiency=None if saving is None or not expert_cost else min(1.0, saving / expert_cost),
        automation_efficiency=task.automation_rate,
        quality_efficiency=_product(_rest(task.error_rate), task.user_satisfaction_rating, 1 / TOP),
    )


def versus_expert(task: Interaction) -> float | None:
    """`min(1, h_exp / h_AI)`."""
    hours, seconds = task.expert_time_hours, task.total_duration_seconds
    if hours is None or seconds is None:
        return None
    return min(1.0, hours / (seconds / 3600)) if seconds else 1.0


def time_saving_hours(task: Interaction) -> float | None:
    """At least 0, as the original reports it."""
    if task.expert_time_hours is None or task.total_duration_seconds is None:
        return None
    return max(0.0, task.expert_time_hours - task.total_duration_seconds / 3600)


def cost_saving(task: Interaction) -> float | None:
    """USD, at least 0, as the original reports it."""
    expert_cost = _product(task.expert_time_hours, task.expert_hourly_rate_usd)
    if expert_cost is None or task.estimated_cost_usd is None:
        return None
    return max(0.0, expert_cost - task.estimated_cost_usd)


def interaction_strategy(task: Interaction) -> InteractionStrategy:
    """`tools/5*2 + think_s/60*3`, `sources/10*3 + cit/20*2`, `5 cov`, `auto (1-err) 5`, `queries/2 + toolrate*3`,
    `words/5000*3 + 2 cov`, `cit/15*5`, `sat*cov`."""
    coverage = task.coverage_completeness
    return InteractionStrategy(
        multi_step_reasoning_score=_capped((task.tool_calls_count, 2 / 5), (task.thinking_time_seconds, 3 / 60)),
        domain_expertise_score=_capped((task.sources_used, 3 / 10), (task.citation_count, 2 / 20)),
        synthesis_capability_score=_capped((coverage, TOP)),
        independence_score=_capped((_product(task.automation_rate, _rest(task.error_rate)), TOP)),
        knowledge_extraction_score=_capped((task.search_queries_count, 1 / 2), (task.successful_tool_rate, 3.0)),
        knowledge_organization_score=_capped((task.word_count, 3 / 5000), (coverage, 2.0)),
        knowledge_reuse_potential=_capped((task.citation_count, TOP / 15)),
        knowledge_quality_score=_capped((_product(task.user_satisfaction_rating, coverage), 1.0)),
        created_knowledge_units=_sum(task.sources_used, task.citation_count),
    )


def _capped(*terms: tuple[float | None, float]) -> float | None:
    total = _sum(*(_product(value, factor) for value, factor in terms))
    return None if total is None else min(TOP, total)


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _product(*values: float | None) -> float | None:
    total = 1.0
    for value in values:
        if value is None:
            return None
        total *= value
    return total


def _rest(rate: float | None) -> float | None:
    return None if rate is None else 1 - rate
