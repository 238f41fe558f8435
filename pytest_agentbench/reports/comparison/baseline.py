"""A report.json on disk as one side of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_agentbench.reports.comparison.campaigns import Campaign, campaign
from pytest_agentbench.reports.reading import read_report


def named_report(text: str) -> tuple[Path, str | None]:
    """The file and the model of `REPORT.json` or `REPORT.json#MODEL`; a file of the whole name comes first."""
    path, mark, model = text.rpartition("#")
    return (Path(path), model) if mark and path and model and not Path(text).exists() else (Path(text), None)


def read_campaign(text: str, here: Path) -> tuple[Campaign, dict[str, Any]]:
    """A side and its whole report. It is named as seen from `here`, where it lies below.

    Raises ConfigError for a file that is no report.json, and for a model without a run in it.
    """
    path, model = named_report(text)
    report = read_report(path)
    whole, here = path.resolve(), here.resolve()
    name = whole.relative_to(here) if whole.is_relative_to(here) else path
    return campaign(report, name.as_posix(), model), report
