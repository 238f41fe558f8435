"""The efficiency of one report: what it took, what an expert would have taken, and what nobody can tell."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_agentbench.config.annotations import Annotations
from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.records import ExecutionMetrics, Record, TokenUsage
from pytest_agentbench.records.research import NotNegative, Share
from pytest_agentbench.research.annotated import task_of
from pytest_agentbench.research.compat import compat_efficiency
from pytest_agentbench.research.efficiency import EfficiencyWeights, Expert, efficiency
from pytest_agentbench.research.report import Report

_SECONDS = 3600.0


class EfficiencyScore(Record):
    """A report's efficiency, 0-1, its parts and what they rest on. `reasons` says of each None what it lacks.

    `time_saving` is a share of the expert's hours, negative where the agent took longer, as `cost_saving_usd` is where
    it cost more. `ai_cost` says where the agent's cost comes from. `difficulty` is that of the complexity level, 0-5.
    """

    efficiency_score: Share | None
    time_saving: float | None
    time_saving_hours: float | None
    cost_saving_usd: float | None
    automation_rate: Share | None
    domain: str
    complexity_level: int
    difficulty: float
    expert_hours: NotNegative
    expert_cost_usd: NotNegative
    hours: NotNegative | None
    ai_cost_usd: NotNegative | None
    ai_cost: Literal["recorded", "priced"] | None
    input_tokens: NotNegative | None
    output_tokens: NotNegative | None
    reasons: dict[str, str] = Field(default_factory=dict)

    def rests_on(self, metrics: ExecutionMetrics) -> bool:
        """Whether it was computed of these metrics."""
        seconds, usage = metrics.total_duration_seconds, metrics.token_usage
        mine = (self.hours, self.automation_rate, self.input_tokens, self.output_tokens)
        hours = None if seconds is None else seconds / _SECONDS
        recorded = self.ai_cost_usd if self.ai_cost == "recorded" else None
        return mine == (hours, metrics.automation_level, usage.input_tokens, usage.output_tokens) and (
            recorded == usage.total_cost_usd
        )

    @property
    def missing(self) -> str | None:
        """Why there is no score; None where there is one."""
        if self.efficiency_score is not None:
            return None
        return self.reasons["efficiency_score"]


def efficiency_of(
    report: Report,
    annotations: Annotations,
    domain: str,
    level: int | str | None,
    config: PoetConfig,
    *,
    priced_as: str | None = None,
    compat: bool = False,
) -> EfficiencyScore:
    """A report against the expert of its domain and complexity level. What was not recorded leaves its part None.

    A report that tells its tokens and no cost is priced as `priced_as`, else as its own model. Raises ConfigError for a
    domain, level or model that the annotations do not have. `compat` scores as the original, which takes an automation
    that is not recorded for 0.
    """
    task = task_of(annotations, config, domain, level)
    metrics, weights = report.metrics, config.efficiency_weights
    cost, source = ai_cost(metrics.token_usage, annotations, priced_as or report.model)
    seconds, automation = metrics.total_duration_seconds, metrics.automation_level
    hours = None if seconds is None else seconds / _SECONDS
    parts = EfficiencyWeights(weights.time_weight, weights.cost_weight, weights.automation_weight)
    found = efficiency(task.expert, hours=hours, cost_usd=cost, automation=automation, weights=parts)
    score = found.score
    if compat and hours is not None and found.cost_saving_usd is not None:
        score = compat_efficiency(
            task.expert, hours=hours, cost_saving_usd=found.cost_saving_usd, automation=automation, weights=parts
        )
    return EfficiencyScore(
        efficiency_score=score,
        time_saving=found.time_saving,
        time_saving_hours=found.time_saving_hours,
        cost_saving_usd=found.cost_saving_usd,
        automation_rate=automation,
        domain=task.domain,
        complexity_level=task.level,
        difficulty=task.difficulty,
        expert_hours=task.expert.hours,
        expert_cost_usd=task.expert.cost_usd,
        hours=hours,
        ai_cost_usd=cost,
        ai_cost=source,
        input_tokens=metrics.token_usage.input_tokens,
        output_tokens=metrics.token_usage.output_tokens,
        reasons=_reasons(metrics, task.expert, cost, scored=score is not None),
    )


def ai_cost(
    usage: TokenUsage, annotations: Annotations, model: str
) -> tuple[float | None, Literal["recorded", "priced"] | None]:
    """USD that an agent cost, and where that comes from: what was recorded, else its tokens at the model's price.

    None where neither cost nor both numbers of tokens were recorded. Raises ConfigError for a model without a price.
    """
    if usage.total_cost_usd is not None:
        return usage.total_cost_usd, "recorded"
    if usage.input_tokens is None or usage.output_tokens is None:
        return None, None
    price = annotations.price(model)
    return (
        usage.input_tokens * price.input_price_per_1k + usage.output_tokens * price.output_price_per_1k
    ) / 1000, "priced"


def resource_efficiency(quality: float | None, usage: TokenUsage) -> float | None:
    """Quality (0-1) for 1,000 tokens; None where the quality or a number of tokens is not known, or there are none."""
    if quality is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    tokens = usage.input_tokens + usage.output_tokens
    return 1000 * quality / tokens if tokens else None


def _reasons(metrics: ExecutionMetrics, expert: Expert, cost: float | None, *, scored: bool) -> dict[str, str]:
    found = {}
    if metrics.total_duration_seconds is None:
        found["time_saving"] = "execution_metrics.total_duration_seconds is missing"
    elif not expert.hours:
        found["time_saving"] = "the annotations' expert takes 0 h, of which nothing can be saved"
    if cost is None:
        usage = metrics.token_usage
        tokens = [name for name in ("input_tokens", "output_tokens") if getattr(usage, name) is None]
        found["cost_saving_usd"] = f"execution_metrics.token_usage has no total_cost_usd and no {' or '.join(tokens)}"
    if metrics.automation_level is None:
        found["automation_rate"] = "execution_metrics.automation_level is missing"
    if not scored:
        free = [] if expert.cost_usd else ["the annotations' expert costs 0 USD, of which nothing can be saved"]
        found["efficiency_score"] = "; ".join([*found.values(), *free])
    return found
