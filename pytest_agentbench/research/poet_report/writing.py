"""The files of the business report, in the seed's names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.config.poet_config import PoetConfig
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.models import Spent
from pytest_agentbench.records import Language
from pytest_agentbench.research.poet_report.aggregates import PoetReport, poet_report
from pytest_agentbench.research.poet_report.page import Scored, page
from pytest_agentbench.research.poet_report.rows import SUMMARY_FIELDS, PoetRow
from pytest_agentbench.research.poet_report.text import report_text
from pytest_agentbench.store import write_atomically

COUNTS = ("n_total", "n_scored", "n_failed", "n_not_reached")
COMPARISON = "poet_comparison"


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

    `model` is a file's stem. `spent` is what judges cost by stage (`Ledger.stages`); `lost` says of each input row that
    gave no PoetRow why; `not_reached` counts those that an interruption left; `race_max` is what RACE was divided by in
    the quality score. `made` is the time on the reports, in UTC (default: now). Raises UnwritableError.
    """
    report = poet_report(
        rows, model, config, spent, lost=lost, not_reached=not_reached, language=language, race_max=race_max
    )
    scored, made = Scored(report, rows), made or datetime.now(UTC)
    return tuple(_write(folder / f"{model}_poet_{name}", text) for name, text in _texts(scored, config, language, made))


def write_comparison(
    models: Mapping[str, Sequence[PoetRow]],
    folder: Path,
    config: PoetConfig,
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
    document = {**counts, "models": [each.report.model_dump(mode="json") for each in scored]}
    text = page(scored, made or datetime.now(UTC), language, charts_shown=charts)
    return (
        _write(folder / f"{COMPARISON}.json", _json(document)),
        _write(folder / f"{COMPARISON}.html", text),
    )


def _texts(scored: Scored, config: PoetConfig, language: Language, made: datetime) -> Iterator[tuple[str, str]]:
    report, reporting = scored.report, config.reporting_settings
    if reporting.generate_detailed_report:
        yield "detailed.json", _json(_detailed(report, scored.rows))
    if reporting.generate_summary_report:
        yield "summary.json", _json(_summary(report, scored.rows))
    yield "report.json", _json({"made": made.isoformat(timespec="seconds"), **report.model_dump(mode="json")})
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


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape.
        write_atomically(str(path.parent), path.name, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path
