"""The stage efficiency: what a report took, and what an expert would have taken."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pytest_agentbench.config.annotations import SAME_DOMAINS, Annotations, DomainExpert, read_annotations
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.arithmetic import EfficiencyWeights, Expert, compat_efficiency, efficiency
from pytest_agentbench.packs.research.commands import (
    Incomplete,
    add,
    add_compat,
    add_config,
    add_results,
    add_rows,
    add_tasks,
    need_annotations,
    outcome_document,
    read_tasks,
    report_of,
    tell_unused,
)
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.records import ExecutionMetrics, NotNegative, Report, Share, TokenUsage
from pytest_agentbench.records.base import Record

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.records import ReportRow
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


@dataclass(frozen=True, slots=True)
class AnnotatedTask:
    """A task's domain and complexity level, its expert (hours with the level's multiplier), its difficulty (0-5)."""

    domain: str
    level: int
    expert: Expert
    difficulty: float


def annotations_of(folder: Path, config: PoetConfig) -> Annotations:
    """Return the annotation files of a folder, with the domains that only the configuration has. Raises ConfigError.

    A domain that the files have by its other name (SAME_DOMAINS) is theirs.
    """
    found = read_annotations(folder)
    own = {
        name: DomainExpert(avg_task_time_hours=hours, avg_hourly_rate_usd=config.domain_expert_rates[name])
        for name, hours in config.domain_expert_times.items()
        if SAME_DOMAINS.get(name) not in found.domains
    }
    return replace(found, domains={**own, **found.domains})


def domain_of(domain: str | None, topic: str | None, domain_map: Mapping[str, str]) -> str:
    """Return what annotations call a row's domain, else its topic. Raises ConfigError where it has neither."""
    name = domain or topic
    if not name:
        raise ConfigError("domain: found neither a domain nor a topic, expected one in the report's row or its query's")
    return domain_map.get(name, name)


def task_of(annotations: Annotations, config: PoetConfig, domain: str, level: int | str | None) -> AnnotatedTask:
    """Return what the annotations say of a domain's task of a level. Raises ConfigError: neither has a default."""
    if level is None:
        raise ConfigError(
            "complexity_level: missing, expected it in the report's row or its query's, such as "
            "selected_queries.jsonl of `agentbench research select-queries --export-selected` has"
        )
    expert = annotations.domain(domain)
    number = annotations.level_number(level, config.task_complexity_mapping)
    known = annotations.level(number)
    return AnnotatedTask(
        domain=domain,
        level=number,
        expert=Expert(expert.avg_task_time_hours * known.expert_time_multiplier, expert.avg_hourly_rate_usd),
        difficulty=float(number if known.difficulty_score is None else known.difficulty_score),
    )


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
        """Return whether it was computed of these metrics."""
        seconds, usage = metrics.total_duration_seconds, metrics.token_usage
        mine = (self.hours, self.automation_rate, self.input_tokens, self.output_tokens)
        hours = None if seconds is None else seconds / _SECONDS
        recorded = self.ai_cost_usd if self.ai_cost == "recorded" else None
        return mine == (hours, metrics.automation_level, usage.input_tokens, usage.output_tokens) and (
            recorded == usage.total_cost_usd
        )

    @property
    def missing(self) -> str | None:
        """Return why there is no score; None where there is one."""
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
    """Return a report against the expert of its domain and complexity level. What was not recorded leaves its part
    None.

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


REPORT = "efficiency_report.json"
_MEANS = (
    "efficiency_score",
    "time_saving",
    "time_saving_hours",
    "cost_saving_usd",
    "automation_rate",
    "resource_efficiency",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "efficiency",
        help="compare the time and cost of reports with an expert's",
        description="Compare the time, cost and automation of reports with what an expert of their domain would have "
        f"taken. Writes {REPORT}; asks no model. Exit status 0: every report is scored; 1: some are not; 2: wrong "
        "usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--input_file", type=Path, required=True, metavar="FILE", help="reports with execution_metrics (JSONL)")
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: <results_dir>/efficiency/<name of the input>)")
    add_tasks(files)
    add_results(files)
    add_config(files)
    add_pricing(parser)
    add_compat(parser)
    add_rows(parser)


def add_pricing(parser: argparse._ActionsContainer) -> None:
    """What tokens cost where reports do not tell their cost."""
    add(
        parser,
        "--model_pricing",
        metavar="NAME",
        help="price tokens as this model's of token_pricing_data.json (default: the name of the input)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    from pytest_agentbench.packs.research.call import Call

    call = Call("efficiency", args)
    tell_unused(call)
    output = args.output_dir or args.results_dir / "efficiency" / args.input_file.stem
    return call.run(lambda: score_efficiency(call, args.input_file, output))


async def score_efficiency(call: Call, file: Path, output: Path) -> None:
    """Scores the reports of a file. Raises ConfigError where it, or an annotation file, cannot be read."""
    from pytest_agentbench.packs.research.commands import input_rows, label, value_of
    from pytest_agentbench.packs.research.records import ReportRow
    from pytest_agentbench.packs.research.results import StageResults
    from pytest_agentbench.store.output_files import write_document

    args, model = call.args, file.stem
    tasks = read_tasks(call)
    annotations, stages = need_annotations(tasks), StageResults(call, args.results_dir, model)
    rows = input_rows(call, file, ReportRow)

    async def score(row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        report = report_of(value_of(row), model)
        domain, level = tasks.placed(value_of(row))
        found = efficiency_of(
            report, annotations, domain, level, call.config, priced_as=args.model_pricing, compat=args.compat
        )
        quality, why = stages.quality(value_of(row), compat=args.compat)
        per_token = resource_efficiency(quality, report.metrics.token_usage)
        value = {
            "id": report.id,
            "prompt": report.prompt,
            **found.model_dump(),
            "resource_efficiency": per_token,
        }
        if per_token is None:
            why = why or "execution_metrics.token_usage has no numbers of tokens"
            value["reasons"] = {**found.reasons, "resource_efficiency": why}
        if found.missing is not None:
            raise Incomplete(found.missing, value)
        return value

    def write(results: Sequence[dict[str, Any] | AgentbenchError | None]) -> tuple[Path, ...]:
        document = outcome_document(model, rows, results, "efficiency_error", _MEANS)
        return (write_document(output / REPORT, document),)

    await call.score("efficiency", rows, score, label=label, write=write)
