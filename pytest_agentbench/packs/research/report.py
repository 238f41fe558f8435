"""Section of report.json on research reports: their rows, the judges' votes, the evidence of failed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args

from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    CriterionScore,
    DefaultField,
    ResearchScores,
    task_of_case,
)
from pytest_agentbench.packs.research.stages import PART_STAGES, PARTS, SCORES
from pytest_agentbench.reports.sections import Kind, ReportSection
from pytest_agentbench.terminal_text import sendable

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.evaluation import Evaluation

_EVEN = 0.5
"""Score of a report that is as good as its reference."""


_COUNT = {"type": "integer", "minimum": 0}
_MODEL_SCHEMA = {
    "type": "object",
    "description": "Of research reports: how many were scored with a default domain or complexity level.",
    "additionalProperties": False,
    "required": ["reports", "defaults"],
    "properties": {
        "reports": _COUNT,
        "defaults": {"type": "object", "properties": dict.fromkeys(get_args(DefaultField), _COUNT)},
    },
}
_ROW_SCHEMA = {
    "type": "object",
    "description": "Of a research report: its id in its file, and the fingerprint of the evaluation with its evidence.",
    "additionalProperties": False,
    "required": ["row_id", "evaluation"],
    "properties": {
        "row_id": {"type": ["integer", "string"]},
        "evaluation": {"type": ["string", "null"]},
        "defaults": {
            "description": "Which of domain and complexity level is a default, as report and query lack it.",
            "type": "array",
            "items": {"enum": [*get_args(DefaultField)]},
        },
    },
}


class ResearchSection(ReportSection):
    """Section `research` of report.json."""

    # Whole numbers in some files and text in others: one kind of column, so that tables of both can be joined
    column_kinds: Mapping[str, Kind] = {"row_id": "text", "evaluation": "text", "defaults": "texts"}

    def page_script(self) -> str:
        """Return the script of the page's section for a report's verdict and the models' means."""
        return files(__package__).joinpath("page.js").read_text(encoding="utf-8")

    def schema(self) -> dict[str, Any]:
        """Return the schema of a run's part."""
        return {"row": _ROW_SCHEMA, "model": _MODEL_SCHEMA}

    def row(self, case: Case, evaluation: Evaluation | None) -> dict[str, Any]:
        """Return the report's id in its file, and the fingerprint of the evaluation with its evidence."""
        row_id, defaults = task_of_case(case).row_id, task_of_case(case).defaults
        # As files have them, ids may hold halves of surrogate pairs, which report.json cannot.
        part: dict[str, Any] = {"row_id": sendable(row_id) if isinstance(row_id, str) else row_id, "evaluation": None}
        if evaluation is not None and evaluation.part(ResearchScores) is not None:
            part["evaluation"] = evaluation.fingerprint
        if defaults:
            part["defaults"] = [*defaults]
        return part

    def model(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return how many of a model's reports were scored with which default; None if none was."""
        told = [row["research"].get("defaults", ()) for row in rows if row.get("research")]
        counts = Counter(name for defaults in told for name in defaults)
        if counts:
            return {"reports": len(told), "defaults": dict(counts)}
        return None

    def summary(
        self, models: Sequence[tuple[str, Mapping[str, Any]]], dash: str
    ) -> tuple[str, Mapping[str, str]] | None:
        """Return for the terminal how many of each model's reports were scored with which default."""
        lines = {}
        for model, part in models:
            parts = (f"{name} of {count} of {part['reports']}" for name, count in sorted(part["defaults"].items()))
            lines[model] = ", ".join(parts)
        return "research reports scored with defaults", lines

    def row_properties(self, entry: Mapping[str, Any]) -> Mapping[str, object]:
        """Return nothing: the row has it."""
        return {}

    def votes(self, case: Case, evaluation: Evaluation) -> Sequence[Mapping[str, Any]]:
        """Return the draws of RACE; `order` is `swapped` if the report and its reference were first alternately."""
        evidence, scoring = evaluation.part(ResearchScores), task_of_case(case).scoring
        draws = next((metric.details.get("draws") for metric in evaluation.metrics if metric.name == "race"), None)
        if evidence is None or evidence.judge_model is None or not draws:
            return ()
        compared = any(criterion.reference is not None for criterion in evidence.criteria)
        votes = {
            "judge": "race",
            "source": "research",
            "model": evidence.judge_model,
            "scripted": evidence.judge_scripted,
            "scores": draws,
            "pass_at": _EVEN if compared else None,
        }
        # Twice as many draws as samples: only then both orders were asked, as a report without a reference has but
        # one.
        if compared and scoring.position_swap and len(draws) == 2 * scoring.samples:
            votes["order"] = "swapped"
        return [votes]

    def evidence(self, evaluation: Evaluation) -> Sequence[str]:
        """Return the evidence of the failed scores, in the original texts."""
        return research_evidence(evaluation)


SECTION = ResearchSection()

_MOST = 3
"""Criteria, citations and judged scores that are named."""
_STANDING = tuple(PART_STAGES[part].main_metric for part in PART_STAGES["poet"].made_of)
"""The scores that POET and quality are made of."""


def research_evidence(evaluation: Evaluation) -> list[str]:
    """Return the lines, [] if no score failed. Control characters in them are not escaped yet."""
    evidence = evaluation.part(ResearchScores)
    failed = {metric.name for metric in evaluation.metrics if metric.passed is False}
    parts = {part for part in PARTS if failed & set(SCORES[part])}
    if evidence is None or not parts:
        return []
    lines = [_made_of(evaluation)] if "poet" in parts else []
    quality = "quality" in failed
    if "race" in parts or quality:
        lines += _weakest_criteria(evidence.criteria, _dimensions(failed))
    if "fact" in parts or quality:
        lines += _citations(evidence)
    if parts & {"efficiency", "interaction"}:
        lines.append(_recorded(evidence))
    if "strategic" in parts:
        lines += _weakest_scores(evidence)
    return lines


def _made_of(evaluation: Evaluation) -> str:
    scores = {metric.name: metric.score for metric in evaluation.metrics}
    parts = (f"{name} {'not known' if scores.get(name) is None else f'{scores[name]:.3f}'}" for name in _STANDING)
    return f"made of: {', '.join(parts)}"


def _dimensions(failed: Collection[str]) -> Collection[str]:
    """Return those that failed, or all where RACE as a whole did."""
    failed_dimensions = [name for name in RACE_DIMENSIONS if f"race_{name}" in failed]
    # Where RACE as a whole failed, each dimension may be why.
    if failed_dimensions and not {"race", "race_weighted_dims", "quality"} & set(failed):
        return failed_dimensions
    return RACE_DIMENSIONS


def _weakest_criteria(criteria: Collection[CriterionScore], dimensions: Collection[str]) -> Iterator[str]:
    """Yield the criteria with the report's largest losses against its reference, or lowest scores without one."""
    candidates = [criterion for criterion in criteria if criterion.dimension in dimensions]
    # The loss against the reference counts, not the score: a weak reference shares the weakness.
    for criterion in sorted(candidates, key=lambda criterion: criterion.target - (criterion.reference or 0))[:_MOST]:
        against = " of 10" if criterion.reference is None else f" against {criterion.reference:g}"
        reason = _in_brackets(criterion.analysis)
        yield f"{criterion.dimension}: {criterion.target:g}{against}: {criterion.criterion}{reason}"


def _citations(evidence: ResearchScores) -> Iterator[str]:
    """Yield the first that a page does not support, before those whose page could not be read."""
    bad = [item for label in ("unsupported", "unknown") for item in evidence.statements if item.label == label]
    for statement in bad[:_MOST]:
        yield f"{statement.label}: {statement.fact} <{statement.url}>"
    if len(bad) > _MOST:
        yield f"... and {len(bad) - _MOST} more of {len(evidence.statements) + evidence.statements_left_out} citations"


def _recorded(evidence: ResearchScores) -> str:
    metrics, usage = evidence.execution_metrics, evidence.execution_metrics.token_usage
    values = {
        "seconds": metrics.total_duration_seconds,
        "USD": usage.total_cost_usd,
        "input tokens": usage.input_tokens,
        "output tokens": usage.output_tokens,
    }
    texts = [f"{value:,g} {name}" for name, value in values.items() if value is not None]
    if metrics.automation_level is not None:
        texts.append(f"automation {metrics.automation_level:g}")
    return f"recorded: {', '.join(texts) or 'nothing'}"


def _weakest_scores(evidence: ResearchScores) -> Iterator[str]:
    for name, (score, reason) in sorted(evidence.strategic.items(), key=lambda entry: entry[1][0])[:_MOST]:
        yield f"{name}: {score:g} of 5{_in_brackets(reason)}"


def _in_brackets(reason: str) -> str:
    return f" ({reason})" if reason.strip() else ""
