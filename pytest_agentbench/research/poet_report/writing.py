"""The files of the business report, in the seed's names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.models import Spent
from pytest_agentbench.records import Language
from pytest_agentbench.research.files import document_text, write_text
from pytest_agentbench.research.poet_report.aggregates import PoetReport, poet_report
from pytest_agentbench.research.poet_report.comparing import Scored, comparison
from pytest_agentbench.research.poet_report.page import page
from pytest_agentbench.research.poet_report.rows import SUMMARY_FIELDS, PoetRow
from pytest_agentbench.research.poet_report.text import report_text
from pytest_agentbench.store import slug

COUNTS = ("n_total", "n_scored", "n_failed", "n_not_reached")
COMPARISON = "poet_comparison"
LONGEST_STEM = 200
"""Bytes of a file's name, of which file systems bear 255, for the model."""


def write_poet_files(
    rows: Sequence[PoetRow],
    folder: Path,
    model: str,
    config: PoetConfig,
    spent: Mapping[str, Spent] | None = None,
    *,
    lost: Sequence[str] = (),
    not_reached: int = 0,
    language: Language = "en",
    race_max: float = 1.0,
    made: datetime | None = None,
) -> tuple[Path, ...]:
    """Writes what `reporting_settings` ask for of `{model}_poet_{detailed,summary,report}.json`, text and page.

    `model` is in the files' names as far as file systems bear it. `spent` is what judges cost for these reports by
    stage; `lost` says of each input row that gave no PoetRow why; `not_reached` counts those that an interruption
    left; `race_max` is what RACE was divided by in the quality score. `made` is the time on the reports, in UTC
    (default: now). Raises UnwritableError.
    """
    report = poet_report(
        rows, model, config, spent, lost=lost, not_reached=not_reached, language=language, race_max=race_max
    )
    scored, made = Scored(report, rows), made or datetime.now(UTC)
    return tuple(
        write_text(folder / f"{file_stem(model)}_poet_{name}", text)
        for name, text in _texts(scored, config, language, made)
    )


def write_comparison(
    models: Mapping[str, Sequence[PoetRow]],
    folder: Path,
    config: PoetConfig,
    spent: Mapping[str, Mapping[str, Spent]] | None = None,
    *,
    lost: Mapping[str, Sequence[str]] | None = None,
    not_reached: Mapping[str, int] | None = None,
    language: Language = "en",
    race_max: float = 1.0,
    made: datetime | None = None,
) -> tuple[Path, ...]:
    """Writes `poet_comparison.{json,html}`: several models side by side, each as `write_poet_files` has it."""
    scored = [
        Scored(
            poet_report(
                rows,
                model,
                config,
                (spent or {}).get(model),
                lost=(lost or {}).get(model, ()),
                not_reached=(not_reached or {}).get(model, 0),
                language=language,
                race_max=race_max,
            ),
            rows,
        )
        for model, rows in models.items()
    ]
    charts = config.reporting_settings.include_charts
    counts = {name: sum(getattr(each.report, name) for each in scored) for name in COUNTS}
    made = made or datetime.now(UTC)
    compared = comparison(scored)
    document = {
        "made": made.isoformat(timespec="seconds"),
        **counts,
        "comparison": None if compared is None else compared.model_dump(mode="json"),
        "models": [each.report.model_dump(mode="json") for each in scored],
    }
    text = page(scored, made, language, charts_shown=charts)
    return (
        write_text(folder / f"{COMPARISON}.json", document_text(document)),
        write_text(folder / f"{COMPARISON}.html", text),
    )


def file_stem(model: str) -> str:
    """A model's name as the beginning of a file's, which cannot lead to another folder."""
    bad = set(model) & {"/", "\\"} or model.startswith(".") or not model.isprintable()
    return slug(model) if bad or len(os.fsencode(model)) > LONGEST_STEM else model


def _texts(scored: Scored, config: PoetConfig, language: Language, made: datetime) -> Iterator[tuple[str, str]]:
    report, reporting = scored.report, config.reporting_settings
    if reporting.generate_detailed_report:
        yield "detailed.json", document_text(_detailed(report, scored.rows))
    if reporting.generate_summary_report:
        yield "summary.json", document_text(_summary(report, scored.rows))
    yield "report.json", document_text({"made": made.isoformat(timespec="seconds"), **report.model_dump(mode="json")})
    if reporting.generate_text_report:
        yield "report.txt", report_text(report, made, language)
    yield "report.html", page([scored], made, language, charts_shown=reporting.include_charts)


def _summary(report: PoetReport, rows: Sequence[PoetRow]) -> dict[str, Any]:
    return {**_counts(report), "results": [row.model_dump(mode="json", include=set(SUMMARY_FIELDS)) for row in rows]}


def _detailed(report: PoetReport, rows: Sequence[PoetRow]) -> dict[str, Any]:
    shown = [row.model_dump(mode="json") for row in rows]
    return {**_counts(report), "weights": report.weights, "lost": list(report.lost), "results": shown}


def _counts(report: PoetReport) -> dict[str, Any]:
    return {"model": report.model, **{name: getattr(report, name) for name in COUNTS}}
