"""The stage poet: the parts of a report put together (seed 003), and the command that reports on them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.arithmetic import complexity_adaptability
from pytest_agentbench.packs.research.business_report.figures import MOST_LINES, PART_FIELDS, Missing, PoetRow
from pytest_agentbench.packs.research.business_report.writing import Outcome, add_report_language, compare, report_on
from pytest_agentbench.packs.research.commands import (
    RAW_DATA,
    add,
    add_compat,
    add_config,
    add_results,
    add_rows,
    add_tasks,
    read_tasks,
    report_of,
    tell_unused,
)
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.efficiency import EfficiencyScore, add_pricing, resource_efficiency
from pytest_agentbench.packs.research.fact.citations import Counts
from pytest_agentbench.packs.research.fact.rows import CitedPage
from pytest_agentbench.packs.research.race_judging import Scored
from pytest_agentbench.packs.research.records import RaceDimension, Report
from pytest_agentbench.packs.research.rows import prompt_key
from pytest_agentbench.packs.research.strategic import StrategicScore

if TYPE_CHECKING:
    from pytest_agentbench.models.pricing import Spent
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.commands import Tasks
    from pytest_agentbench.packs.research.records import ReportRow
    from pytest_agentbench.packs.research.results import StageResults
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


COMPAT_RACE_MAX = 5.0
"""What the original divides RACE's 0-1 by."""


@dataclass(frozen=True, slots=True)
class PoetWeights:
    """How much each part counts, and the top of RACE's scale."""

    efficiency: float = 0.3
    quality: float = 0.5
    strategic: float = 0.2
    race: float = 0.7
    fact: float = 0.3
    race_max: float = 1.0
    fact_max: float = 1.0


@dataclass(frozen=True, slots=True)
class Poet:
    """The composite and its parts, 0-1. `reasons` says why a None is one: a missing part leaves the others."""

    score: float | None
    efficiency: float | None
    quality: float | None
    strategic: float | None
    reasons: tuple[str, ...] = ()


def quality_value(
    race: float | None,
    fact_accuracy: float | None,
    weights: PoetWeights = PoetWeights(),
) -> float | None:
    """`0.7 RACE / race_max + 0.3 citation accuracy`, each at most 1; None where one is missing."""
    if race is None or fact_accuracy is None:
        return None
    return weights.race * min(1.0, race / weights.race_max) + weights.fact * min(1.0, fact_accuracy / weights.fact_max)


def poet(
    efficiency: float | None,
    race: float | None,
    fact_accuracy: float | None,
    strategic: float | None,
    why: Mapping[str, str],
    weights: PoetWeights = PoetWeights(),
) -> Poet:
    """Put the parts together. `why` says for `efficiency`, `race`, `fact` and `strategic` why they are missing."""
    parts = {"efficiency": efficiency, "race": race, "fact": fact_accuracy, "strategic": strategic}
    missing = [name for name, value in parts.items() if value is None]
    quality = quality_value(race, fact_accuracy, weights)
    score = None
    if efficiency is not None and quality is not None and strategic is not None:
        score = weights.efficiency * efficiency + weights.quality * quality + weights.strategic * strategic
    return Poet(
        score, efficiency, quality, strategic, tuple(f"{name}: {why.get(name, 'not scored')}" for name in missing)
    )


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
    """Return the weights of a configuration. Its top of RACE's scale is the original's, heeded with `compat` only."""
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
    """Return a report's quality, 0-1; None without RACE or without a citation that could be checked."""
    accuracy = None if parts.fact is None else parts.fact.counts.accuracy
    return quality_value(None if parts.race is None else parts.race.overall, accuracy, weights)


def adaptability_of(quality: float | None, task: EfficiencyScore) -> float | None:
    """Return a report's adaptability to complexity, 0-1; None for a task of less than half an hour or an unknown
    quality.
    """
    return complexity_adaptability(quality, task.difficulty, task.expert_hours)


def poet_of(report: Report, parts: Parts, config: PoetConfig, *, compat: bool = False) -> PoetRow:
    """Return the report's row in the business report: the composite, 0-1, or None with the parts that it lacks."""
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
    """Return the criteria by which a report has the fewest points, one a line."""
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
    """Return the statements that their pages do not back, one a line."""
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


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "poet",
        help="put the parts together and write the business report",
        description="Put together what the other stages found out about the reports of a model, or of every model that "
        "has a file, compute efficiency, and write <model>_poet_detailed.json, _poet_summary.json, _poet_report.json, "
        "_poet_report.txt and _poet_report.html. A part that is missing leaves the composite null, with the reason. "
        "With --session the reports are those of a pytest session over reports.yaml. Asks no model. Exit status 0: "
        "every report has a composite; 1: some have none; 2: wrong usage.",
    )
    parser.add_argument("model", nargs="?", help="whose reports (default: of every file in --raw-data-dir)")
    files = parser.add_argument_group("files")
    add(files, "--raw_data_dir", type=Path, default=RAW_DATA, metavar="DIR", help="(default: %(default)s)")
    add(files, "--input_file", type=Path, metavar="FILE", help="reports (default: <raw_data_dir>/<model>.jsonl)")
    add(
        files,
        "--session",
        type=Path,
        metavar="PATH",
        help="the output folder of a pytest session over reports.yaml, or the report.json in it: its scores are taken, "
        "with the configuration that it had",
    )
    add(files, "--output_dir", type=Path, metavar="DIR", help="(default: <results_dir>/poet/<model>)")
    add_results(files)
    add_tasks(files)
    add_config(files)
    add_report_language(files)
    add_pricing(parser)
    add_compat(parser)
    add_rows(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report of one model, or of each."""
    from pytest_agentbench.packs.research.call import Call

    if args.session is not None:
        from pytest_agentbench.packs.research.business_report.writing import report_on_session

        return report_on_session(args)
    call = Call("poet", args)
    tell_unused(call)
    return call.run(lambda: _models(call))


async def _models(call: Call) -> None:
    args = call.args
    if args.model is not None or args.input_file is not None:
        file = args.input_file or args.raw_data_dir / f"{args.model}.jsonl"
        model = args.model or file.stem
        await score_poet(call, model, file, args.output_dir or args.results_dir / "poet" / model)
        return
    files = sorted(args.raw_data_dir.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{args.raw_data_dir}: found no file of reports <model>.jsonl; name one with --input-file")
    output = args.output_dir or args.results_dir / "poet"
    outcomes = {}
    for file in files:
        call.model = file.stem if len(files) > 1 else None
        outcomes[file.stem] = await score_poet(call, file.stem, file, output / file.stem)
    compare(call, outcomes, output)


async def score_poet(
    call: Call, model: str, file: Path, output: Path, spent: Mapping[str, Spent] = MappingProxyType({})
) -> Outcome:
    """Write the business report on the reports of a file. `spent` is what judges cost for them, by stage.

    Raises ConfigError where a file cannot be read.
    """
    from pytest_agentbench.packs.research.commands import input_rows, label, value_of
    from pytest_agentbench.packs.research.records import ReportRow
    from pytest_agentbench.packs.research.results import StageResults

    tasks, stages = read_tasks(call), StageResults(call, call.args.results_dir, model)

    def row_of(row: GoodRow[ReportRow] | LostRow) -> PoetRow:
        value = value_of(row)
        report = report_of(value, model)
        return poet_of(report, _parts(call, tasks, stages, value, report), call.config, compat=call.args.compat)

    return await report_on(call, model, input_rows(call, file, ReportRow), row_of, label, output, spent)


def _parts(call: Call, tasks: Tasks, stages: StageResults, row: ReportRow, report: Report) -> Parts:
    """Return what other stages found out, and the efficiency: computed where there are annotations, else as it is
    stored.
    """
    from pytest_agentbench.packs.research.efficiency import efficiency_of

    found = stages.parts(row, efficiency=tasks.annotations is None)
    if tasks.annotations is None:
        return found
    try:
        domain, level = tasks.placed(row)
        priced_as = call.args.model_pricing
        efficiency = efficiency_of(
            report, tasks.annotations, domain, level, call.config, priced_as=priced_as, compat=call.args.compat
        )
    except AgentbenchError as error:
        return replace(found, why={**(found.why or {}), "efficiency": str(error)})
    return replace(found, efficiency=efficiency)
