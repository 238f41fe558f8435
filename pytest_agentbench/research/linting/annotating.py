"""What the annotations say, and whether they have what rows name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_agentbench.config.annotations import Annotations
from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import QueryRow, ReportRow
from pytest_agentbench.research.annotated import annotations_of
from pytest_agentbench.research.linting.finding import Finding, findings_of
from pytest_agentbench.research.linting.tables import Table

Named = Table[QueryRow] | Table[ReportRow]
"""Rows that may name a domain and a level."""

_DOMAINS, _LEVELS, _TYPES = "domain_expert_data.json", "complexity_level_data.json", "task_type_data.json"


def read_linted(folder: Path, config: PoetConfig, findings: list[Finding]) -> Annotations | None:
    """The annotations of a folder, and the config's; None where they cannot be used, and why in `findings`."""
    try:
        return annotations_of(folder, config)
    except ConfigError as error:
        for message in str(error).splitlines():
            findings += findings_of(message, Path(message.split(":", 1)[0]))
        return None


def annotation_findings(annotations: Annotations) -> Iterator[Finding]:
    """Domains whose experts cost nothing, levels that do not rise, types of tasks on no level."""
    path = annotations.folder / _DOMAINS
    for name, expert in annotations.domains.items():
        for field in ("avg_task_time_hours", "avg_hourly_rate_usd"):
            if not getattr(expert, field):
                yield Finding(path, 1, "warning", f"{name}.{field}", "0", "above 0: nothing can be saved otherwise")
    path = annotations.folder / _LEVELS
    levels = [annotations.level(number) for number in sorted(annotations.levels)]
    for field in ("expert_time_multiplier", "difficulty_score"):
        values = [getattr(level, field) for level in levels]
        if values != sorted(values):
            yield Finding(path, 1, "warning", field, str(values), "values that rise with the levels")
    path = annotations.folder / _TYPES
    for name, kind in annotations.task_types.items():
        if kind.complexity_level is not None and kind.complexity_level not in annotations.levels:
            found, expected = str(kind.complexity_level), f"a level of {_LEVELS}"
            yield Finding(path, 1, "error", f"{name}.complexity_level", found, expected)


def unknown_findings(
    table: Named, annotations: Annotations, config: PoetConfig, domain_map: Mapping[str, str]
) -> Iterator[Finding]:
    """Rows whose domain or level the annotations do not have, and topics that are no domain, each topic once."""
    domains = f"one of {', '.join(sorted(annotations.domains))} ({annotations.folder / _DOMAINS})"
    levels = f"one of {', '.join(map(str, sorted(annotations.levels)))} ({annotations.folder / _LEVELS})"
    topics: dict[str, list[int]] = {}
    for row in table.rows:
        value = row.value
        if value.domain and not _is_known(annotations, domain_map.get(value.domain, value.domain)):
            yield Finding(table.path, row.line, "error", "domain", repr(value.domain), domains)
        elif not value.domain and value.topic and not _is_known(annotations, domain_map.get(value.topic, value.topic)):
            topics.setdefault(value.topic, []).append(row.line)
        try:
            if value.complexity_level is not None:
                annotations.level_number(value.complexity_level, config.task_complexity_mapping)
        except ConfigError:
            yield Finding(table.path, row.line, "error", "complexity_level", repr(value.complexity_level), levels)
    for topic, lines in topics.items():
        found = f"{topic!r} in {_rows(len(lines))} without a domain"
        yield Finding(table.path, lines[0], "warning", "topic", found, f"{domains}, or --domain-map '{topic}=DOMAIN'")


def lacking_findings(table: Named) -> Iterator[Finding]:
    """What experts cannot be told without: rows with neither domain nor topic, and rows without a level."""
    lacking = {
        "domain": [row.line for row in table.rows if not (row.value.domain or row.value.topic)],
        "complexity_level": [row.line for row in table.rows if row.value.complexity_level is None],
    }
    for field, lines in lacking.items():
        if lines:
            yield Finding(table.path, lines[0], "warning", field, f"none in {_rows(len(lines))}", "one in each")


def _is_known(annotations: Annotations, domain: str) -> bool:
    try:
        annotations.domain(domain)
    except ConfigError:
        return False
    return True


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
