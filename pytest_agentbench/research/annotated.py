"""What annotations say of a task: the expert who would have done it, and how difficult it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_agentbench.config.annotations import SAME_DOMAINS, Annotations, DomainExpert, read_annotations
from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.research.efficiency import Expert


@dataclass(frozen=True, slots=True)
class AnnotatedTask:
    """A task's domain and complexity level, its expert (hours with the level's multiplier), its difficulty (0-5)."""

    domain: str
    level: int
    expert: Expert
    difficulty: float


def annotations_of(folder: Path, config: PoetConfig) -> Annotations:
    """The annotation files of a folder, with the domains that only the configuration has. Raises ConfigError.

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
    """What annotations call a row's domain, else its topic. Raises ConfigError where it has neither."""
    name = domain or topic
    if not name:
        raise ConfigError("domain: found neither a domain nor a topic, expected one in the report's row or its query's")
    return domain_map.get(name, name)


def task_of(annotations: Annotations, config: PoetConfig, domain: str, level: int | str | None) -> AnnotatedTask:
    """What the annotations say of a domain's task of a level. Raises ConfigError: neither has a default."""
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
