"""Stage poet: the parts of a report put together (seed 003), and the command that reports on them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.packs.research.arithmetic import complexity_adaptability, weights_of
from pytest_agentbench.packs.research.business_report.figures import (
    MOST_LINES,
    PART_FIELDS,
    EvidencePart,
    Missing,
    PoetRow,
)
from pytest_agentbench.packs.research.business_report.writing import (
    Outcome,
    add_report_language,
    write_model_report,
    write_models_comparison,
)
from pytest_agentbench.packs.research.call import Call
from pytest_agentbench.packs.research.commands import (
    RAW_DATA,
    add,
    add_compat,
    add_config,
    add_results,
    add_rows,
    add_tasks,
)
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.efficiency import add_pricing, efficiency_of, resource_efficiency
from pytest_agentbench.packs.research.inputs import (
    input_rows,
    make_report,
    name_row,
    read_tasks,
    require_value,
    warn_of_defaults,
    warn_of_unused,
)
from pytest_agentbench.packs.research.records import Report, ReportRow
from pytest_agentbench.packs.research.results import StageResults
from pytest_agentbench.packs.research.rows import prompt_key
from pytest_agentbench.packs.research.scores import (
    NO_POINTS,
    NO_QUALITY,
    EfficiencyScore,
    FactPart,
    Parts,
    RacePart,
    StrategicScore,
    describe_score,
    fact_lines,
    race_lines,
)
from pytest_agentbench.packs.research.stages import PART_STAGES

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.grading import Grading, Metrics
    from pytest_agentbench.packs.research.inputs import Tasks
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


def poet_of(report: Report, parts: Parts, config: PoetConfig, *, compat: bool = False) -> PoetRow:
    """Return the report's row in the business report: the composite, 0-1, or None with the parts that it lacks."""
    weights = weights_of(config, compat=compat)
    race, fact, work, strategic = parts.race, parts.fact, parts.efficiency, parts.strategic
    quality = parts.quality(weights)
    usage = report.metrics.token_usage
    row: dict[str, object] = {
        "task_id": report.id,
        "model_name": report.model,
        "prompt_key": prompt_key(report.prompt),
        "language": report.language,
        "overall_poet_score": _cap_at_one(parts.composite(weights)),
        "quality_score": _cap_at_one(quality),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "resource_efficiency": resource_efficiency(quality, usage),
        "evidence": _evidence(parts),
    }
    if race is not None:
        row |= race.shares
    if fact is not None:
        counts = fact.counts
        row |= {
            "fact_accuracy": counts.accuracy,
            "citations_supported": counts.supported,
            "citations_unsupported": counts.unsupported,
            "citations_unknown": counts.unknown,
            "supported_per_1000_words": counts.per_1000_words,
        }
    if work is not None:
        row |= work.model_dump(include=_SHARED)
        row["complexity_adaptability"] = complexity_adaptability(quality, work.difficulty, work.expert_hours)
    if strategic is not None:
        row |= {
            "strategic_score": strategic.strategic_score,
            "knowledge_units_created": len(strategic.created),
            # Without known units nothing can be reused: 0 would look like a failure.
            "knowledge_units_reused": len(strategic.reused) if strategic.known or strategic.reused else None,
            "knowledge_creation_value": strategic.knowledge_creation_value,
            "strategic_scores": strategic.scores,
        }
    return PoetRow.model_validate({**row, "reasons": _reasons(row, parts)})


# Fields that have the same name in both are the same figures; a new one of the score needs its field in the row
# alone.
_SHARED = set(EfficiencyScore.model_fields) & set(PoetRow.model_fields)


def _evidence(parts: Parts) -> dict[str, tuple[str, ...]]:
    lines_by_part: dict[str, tuple[str, ...]] = {}
    if parts.race is not None:
        lines_by_part["race"] = parts.race.evidence
    if parts.fact is not None:
        lines_by_part["fact"] = parts.fact.evidence
    if parts.strategic is not None:
        lines_by_part["strategic"] = _weakest_scores(parts.strategic)
    return {part: lines for part, lines in lines_by_part.items() if lines}


def _weakest_scores(strategic: StrategicScore) -> tuple[str, ...]:
    ranked = sorted(strategic.scores.items(), key=lambda entry: entry[1])[:MOST_LINES]
    return tuple(f"{name}: {score:g}: {strategic.score_reasons.get(name, '')}".rstrip(": ") for name, score in ranked)


def _reasons(row: Mapping[str, object], parts: Parts) -> dict[Missing, str]:
    why = dict(parts.why or {})
    if parts.efficiency is not None and parts.efficiency.missing is not None:
        why["efficiency"] = parts.efficiency.missing
    if parts.fact is not None and parts.fact.counts.accuracy is None:
        counts = parts.fact.counts
        if counts.total:
            why["fact"] = f"0 of the report's {counts.total} citations could be checked"
        else:
            why["fact"] = "it has no citations"
    missing = [part for part, field in PART_FIELDS.items() if row.get(field) is None]
    return {part: why.get(part, "not scored") for part in missing}


def _cap_at_one(value: float | None) -> float | None:
    """Return the value without rounding errors above the top of the scale."""
    # Weights that sum to 1 within 1e-6 give composites up to 1.000001, which rows refuse.
    if value is None:
        return None
    return min(1.0, value)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "poet",
        description="Combine the results of the other stages on the reports of a model, or of every model that "
        "has a file, compute efficiency, and write <model>_poet_detailed.json, _poet_summary.json, _poet_report.json "
        "and _poet_report.txt. A part that is missing leaves the composite null, with the reason. "
        "With --session the reports are from a pytest session with a reports.yaml. Asks no model. Exit status 0: "
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
        help="the output folder of a pytest session over reports.yaml, or the report.json in it: its scores and "
        "configuration are used",
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
    if args.session is not None:
        from pytest_agentbench.packs.research.business_report.writing import report_on_session

        return report_on_session(args)
    call = Call("poet", args)
    warn_of_unused(call)
    return call.run(lambda: _models(call))


async def _models(call: Call) -> None:
    args = call.args
    results: Path = args.results_dir / PART_STAGES["poet"].folder
    if args.model is not None or args.input_file is not None:
        file = args.input_file or args.raw_data_dir / f"{args.model}.jsonl"
        model = args.model or file.stem
        await score_reports(call, file, args.output_dir or results / model, model)
        return
    files = sorted(args.raw_data_dir.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{args.raw_data_dir}: found no file of reports <model>.jsonl; name one with --input-file")
    output = args.output_dir or results
    outcomes = {}
    for file in files:
        call.begin_model(file.stem, models=len(files))
        outcomes[file.stem] = await score_reports(call, file, output / file.stem)
    write_models_comparison(call, outcomes, output)


async def score_reports(call: Call, file: Path, output: Path, model: str | None = None) -> Outcome:
    """Write the business report on the reports of a file, of `model` (default: the file's stem).

    Raises ConfigError if a file cannot be read.
    """
    model = model or file.stem
    tasks, stages = read_tasks(call), StageResults(call, call.args.results_dir, model)

    def row_of(row: GoodRow[ReportRow] | LostRow) -> PoetRow:
        value = require_value(row)
        report = make_report(value, model)
        return poet_of(report, _parts(call, tasks, stages, value, report), call.config, compat=call.args.compat)

    outcome = await write_model_report(
        call, model, input_rows(call, file, ReportRow), row_of, name_row, output, call.spent
    )
    warn_of_defaults(call, file, (row.defaults for row in outcome.rows))
    return outcome


def _parts(call: Call, tasks: Tasks, stages: StageResults, row: ReportRow, report: Report) -> Parts:
    """Return the results of other stages, and the efficiency: computed if there are annotations, else the stored
    one.
    """
    # Computed again if possible: a stored efficiency may use earlier annotations.
    stored_parts = stages.parts(row, efficiency=tasks.annotations is None)
    if tasks.annotations is None:
        return stored_parts
    try:
        domain, level, defaults = tasks.place(row)
        efficiency = efficiency_of(
            report,
            tasks.annotations,
            domain,
            level,
            call.config,
            priced_as=call.args.model_pricing,
            compat=call.args.compat,
            defaults=defaults,
        )
    except AgentbenchError as error:
        return replace(stored_parts, why={**(stored_parts.why or {}), "efficiency": str(error)})
    return replace(stored_parts, efficiency=efficiency)


async def grade_report(grading: Grading) -> PoetRow:
    """Return one item's row in a business report, from the results of its parts."""
    race, fact = grading.score("race"), grading.score("fact")
    shared = race is not None and race.overall is not None
    names: tuple[EvidencePart, ...] = ("race", "fact", "efficiency", "strategic")
    why: dict[Missing, str] = {name: reason for name in names if (reason := grading.why(name)) is not None}
    # RACE has a result without an overall score if report and reference have no points at all.
    if race is not None and race.overall is None:
        why["race"] = NO_POINTS
    parts = Parts(
        race=RacePart(race.overall, race.dimensions, race_lines(race.scored[0])) if shared else None,
        fact=None if fact is None else FactPart(fact.counts, fact_lines(fact.pages)),
        efficiency=grading.score("efficiency"),
        strategic=grading.score("strategic"),
        why=why,
    )
    return poet_of(grading.report, parts, grading.config, compat=grading.scoring.compat)


def list_metrics(grading: Grading) -> Metrics:
    """Yield the quality and the composite."""
    row = grading.score("poet")
    why = [(part, f"{part}: {reason}") for part, reason in row.reasons.items()]
    of_quality = "; ".join(reason for part, reason in why if part in ("race", "fact"))
    of_all = "; ".join(reason for _, reason in why)
    quality, score = row.quality_score, row.overall_poet_score
    yield "quality", quality, describe_score(quality, of_quality or NO_QUALITY)
    yield "poet", score, describe_score(score, of_all or NO_QUALITY)


def keep_evidence(score: PoetRow) -> Mapping[str, Any]:
    """Return the row, from which `agentbench research poet --session` makes a business report."""
    return {"summary": score.model_dump(mode="json")}
