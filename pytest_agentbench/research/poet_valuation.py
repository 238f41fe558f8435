"""The composite of one report: its parts put together, with why one is missing and what each rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.records import RaceDimension
from pytest_agentbench.research.composite import PoetWeights, poet, quality_value
from pytest_agentbench.research.fact.rows import CitedPage
from pytest_agentbench.research.fact.statistics import Counts
from pytest_agentbench.research.poet_report.rows import MOST_LINES, PART_FIELDS, Missing, PoetRow
from pytest_agentbench.research.race import Scored
from pytest_agentbench.research.report import Report
from pytest_agentbench.research.strategic_scores import complexity_adaptability
from pytest_agentbench.research.strategic_valuation import StrategicScore
from pytest_agentbench.research.valuation import EfficiencyScore, resource_efficiency
from pytest_agentbench.sources.research_rows import prompt_key


@dataclass(frozen=True, slots=True)
class RacePart:
    """A report's RACE scores, 0-1, with the lines that `race_evidence` gives."""

    overall: float
    dimensions: Mapping[RaceDimension, float | None]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FactPart:
    """A report's citations by their labels, with the lines that `fact_evidence` gives."""

    counts: Counts
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """What is known of a report. `why` says of each part that is None why it is."""

    race: RacePart | None = None
    fact: FactPart | None = None
    efficiency: EfficiencyScore | None = None
    strategic: StrategicScore | None = None
    why: Mapping[Missing, str] | None = None


def weights_of(config: PoetConfig, *, compat: bool = False) -> PoetWeights:
    """The weights of a configuration. Its top of RACE's scale is the original's, heeded with `compat` only."""
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


def quality_of(parts: Parts, weights: PoetWeights) -> float | None:
    """A report's quality, 0-1; None without RACE or without a citation that could be checked."""
    accuracy = None if parts.fact is None else parts.fact.counts.accuracy
    return quality_value(None if parts.race is None else parts.race.overall, accuracy, weights)


def adaptability_of(quality: float | None, task: EfficiencyScore) -> float | None:
    """A report's adaptability to complexity, 0-1; None for a task of less than half an hour or an unknown quality."""
    return complexity_adaptability(quality, task.difficulty, task.expert_hours)


def poet_of(report: Report, parts: Parts, config: PoetConfig, *, compat: bool = False) -> PoetRow:
    """The report's row in the business report: the composite, 0-1, or None with the parts that it lacks."""
    weights = weights_of(config, compat=compat)
    race, fact, work, strategic = parts.race, parts.fact, parts.efficiency, parts.strategic
    accuracy = None if fact is None else fact.counts.accuracy
    found = poet(
        None if work is None else work.efficiency_score,
        None if race is None else race.overall,
        accuracy,
        None if strategic is None else strategic.strategic_score,
        {},
        weights,
    )
    row: dict[str, object] = {
        "task_id": report.id,
        "model_name": report.model,
        "prompt_key": prompt_key(report.prompt),
        "language": report.language,
        "overall_poet_score": _within(found.score),
        "efficiency_score": found.efficiency,
        "quality_score": _within(found.quality),
        "strategic_score": found.strategic,
        "fact_accuracy": accuracy,
        "input_tokens": report.metrics.token_usage.input_tokens,
        "output_tokens": report.metrics.token_usage.output_tokens,
        "resource_efficiency": resource_efficiency(found.quality, report.metrics.token_usage),
        "evidence": _evidence(parts),
    }
    if race is not None:
        row |= {"race_score": race.overall, "race_dimensions": dict(race.dimensions)}
    if fact is not None:
        counts = fact.counts
        row |= {
            "citations_supported": counts.supported,
            "citations_unsupported": counts.unsupported,
            "citations_unknown": counts.unknown,
            "supported_per_1000_words": counts.per_1000_words,
        }
    if work is not None:
        row |= work.model_dump(include=_SHARED)
        row["complexity_adaptability"] = adaptability_of(found.quality, work)
    if strategic is not None:
        row |= {
            "knowledge_units_created": len(strategic.created),
            "knowledge_units_reused": len(strategic.reused) if strategic.known or strategic.reused else None,
            "knowledge_creation_value": strategic.knowledge_creation_value,
            "strategic_scores": strategic.scores,
        }
    return PoetRow.model_validate({**row, "reasons": _reasons(row, parts)})


_SHARED = set(EfficiencyScore.model_fields) & set(PoetRow.model_fields)


def race_evidence(scored: Mapping[RaceDimension, Sequence[Scored]]) -> tuple[str, ...]:
    """The criteria by which a report has the fewest points, one a line."""
    entries = sorted(
        ((each, name) for name, scores in scored.items() for each in scores), key=lambda entry: entry[0].target
    )
    return tuple(
        f"{name}: {each.criterion}: {each.target:g}"
        f"{'' if each.reference is None else f' (reference: {each.reference:g})'}"
        f"{': ' if each.analysis else ''}{each.analysis}"
        for each, name in entries[:MOST_LINES]
    )


def fact_evidence(pages: Mapping[str, CitedPage]) -> tuple[str, ...]:
    """The statements that their pages do not back, one a line."""
    found = (
        f"{page.facts[verdict.idx]} ({url})"
        for url, page in pages.items()
        for verdict in page.validate_res or ()
        if verdict.result == "unsupported" and 0 <= verdict.idx < len(page.facts)
    )
    return tuple(line for line, _ in zip(found, range(MOST_LINES), strict=False))


def _evidence(parts: Parts) -> dict[str, tuple[str, ...]]:
    found = {
        "race": () if parts.race is None else parts.race.evidence,
        "fact": () if parts.fact is None else parts.fact.evidence,
        "strategic": () if parts.strategic is None else _weakest(parts.strategic),
    }
    return {part: lines for part, lines in found.items() if lines}


def _weakest(strategic: StrategicScore) -> tuple[str, ...]:
    ranked = sorted(strategic.scores.items(), key=lambda entry: entry[1])[:MOST_LINES]
    return tuple(f"{name}: {score:g}: {strategic.score_reasons.get(name, '')}".rstrip(": ") for name, score in ranked)


def _reasons(row: Mapping[str, object], parts: Parts) -> dict[Missing, str]:
    why = dict(parts.why or {})
    if parts.efficiency is not None and parts.efficiency.missing is not None:
        why["efficiency"] = parts.efficiency.missing
    if parts.fact is not None and parts.fact.counts.accuracy is None:
        counts = parts.fact.counts
        why["fact"] = (
            f"none of the report's {counts.total} citations could be checked" if counts.total else "it has no citations"
        )
    missing = [part for part, field in PART_FIELDS.items() if row.get(field) is None]
    return {part: why.get(part, "not scored") for part in missing}


def _within(value: float | None) -> float | None:
    """Without what rounding adds to the top of the scale."""
    return None if value is None else min(1.0, value)
