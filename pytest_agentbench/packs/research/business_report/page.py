"""The business report as one page without anything from elsewhere: of a model, or of several side by side."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_agentbench.packs.research.business_report import charts
from pytest_agentbench.packs.research.business_report.aggregates import SCORES, Group, PoetReport, Scored, comparison
from pytest_agentbench.packs.research.business_report.figures import (
    COSTS,
    Mean,
    PoetRow,
    classed,
    format_count,
    hours,
    interval,
    line,
    share,
    usd,
)
from pytest_agentbench.packs.research.business_report.text import group_name
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, Language, RowId
from pytest_agentbench.packs.research.wording import read_labels
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment


MOST_TASKS = 10
"""Tasks that a recommendation names on the page."""
MOST_LOWEST = 5
"""Reports with the lowest scores whose evidence the page shows."""
MOST_IN_CHARTS = 8
"""Models: more cannot be told apart."""
EVIDENT = ("unfit", "inaccurate_citations", "weakest_dimension", "weak_domain")
"""Rules about what judges say of reports: the page shows that of the tasks that they name."""
RADAR = ("efficiency_score", "quality_score", "strategic_score", "race_score", *RACE_DIMENSIONS, "fact_accuracy")
COLUMNS = {
    **{name: (name, share) for name in (*SCORES, "automation_rate")},
    "cost_saving_usd": ("saving_usd", usd),
    "ai_cost_usd": ("ai_usd", usd),
    "hours": ("ai_hours", hours),
}
"""Of the table of all reports, after task, domain and complexity level: fields with their labels, and how shown."""


def page(models: Sequence[Scored], made: datetime, language: Language = "en", *, charts_shown: bool = True) -> str:
    """Return the HTML text. One model: with all its reports; several: what they come to, side by side."""
    environment = _environment()
    style, script = (_source(name) for name in ("style.css", "sort.js"))
    return environment.get_template("page.html").render(
        t=read_labels(language),
        language=language,
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        models=models,
        shown=models[:MOST_IN_CHARTS],
        charts_shown=charts_shown,
        style=style,
        script=script,
        policy=_policy(style, script),
        comparison=comparison(models),
        evidence=_evidence(models[0]) if len(models) == 1 else [],
        numbers_of={row.task_id: number for number, row in enumerate(models[0].rows)} if len(models) == 1 else {},
        scatter=_scatter(models[:MOST_IN_CHARTS]),
        bars=_bars(models[:MOST_IN_CHARTS]),
    )


def _policy(style: str, script: str) -> str:
    """Return nothing may be loaded, sent or run but the page's own style and script."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _evidence(model: Scored) -> list[PoetRow]:
    """Of the tasks that recommendations name and of the lowest scores, those that have any."""
    found = (each for each in model.report.recommendations if each.rule in EVIDENT)
    named: list[RowId] = [task for each in found for task in each.task_ids[:MOST_TASKS]]
    lowest = [each.task_id for each in (*model.report.bottom, *reversed(model.report.top))]
    wanted = dict.fromkeys([*named, *lowest[:MOST_LOWEST]])
    rows = {row.task_id: row for row in model.rows}
    return [rows[task] for task in wanted if any(rows[task].evidence.values())]


@dataclass(frozen=True, slots=True)
class Dot:
    """A report in the scatter."""

    at: charts.Point
    title: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Cost against quality: the dots of each model; `n` of `of` reports have both figures."""

    x: tuple[charts.Tick, ...]
    dots: list[list[Dot]]
    n: int
    of: int


def _scatter(models: Sequence[Scored]) -> Scatter:
    pairs = [
        [
            (row.ai_cost_usd, row.quality_score, row)
            for row in each.rows
            if row.ai_cost_usd is not None and row.quality_score is not None
        ]
        for each in models
    ]
    x = charts.ticks(max((cost for found in pairs for cost, _, _ in found), default=0.0), charts.WIDTH)
    dots = [
        [
            Dot(at, f"{each.report.model}, {row.task_id}: {usd(cost)}, {share(quality)}")
            for (cost, quality, row), at in zip(
                found, charts.dots(((cost, quality) for cost, quality, _ in found), x[-1].value), strict=True
            )
        ]
        for each, found in zip(models, pairs, strict=True)
    ]
    return Scatter(x, dots, sum(map(len, dots)), sum(len(each.rows) for each in models))


@dataclass(frozen=True, slots=True)
class Bar:
    """A model's mean in a domain; `low` and `high` are the ends of its interval, None where there is none."""

    model: int
    mean: Mean
    length: float
    low: float | None
    high: float | None
    y: float


@dataclass(frozen=True, slots=True)
class DomainBars:
    """A domain's bars, one for each model that has scored reports there; `y` is where its name stands."""

    name: str
    y: float
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Bars:
    """The domains with most reports; `of` counts all."""

    domains: list[DomainBars]
    of: int
    height: float


def _bars(models: Sequence[Scored]) -> Bars:
    groups = [{group.name: group for group in each.report.by_domain if group.n_scored} for each in models]
    sizes: dict[str | None, int] = {}
    for found in groups:
        for name, group in found.items():
            sizes[name] = sizes.get(name, 0) + group.n_scored
    largest = sorted(sizes, key=lambda name: -sizes[name])[: charts.MOST_DOMAINS]
    shown, y = [], 0.0
    for name in largest:
        bars = [
            _bar(number, found[name], y + at * charts.BAR)
            for at, (number, found) in enumerate((n, f) for n, f in enumerate(groups) if name in f)
        ]
        shown.append(DomainBars(name or "", y + charts.BAR * len(bars) / 2, bars))
        y += charts.BAR * len(bars) + charts.GAP
    return Bars(shown, len(sizes), y)


def _bar(model: int, group: Group, y: float) -> Bar:
    overall = group.scores["overall_poet_score"]
    low, high = overall.ci95 or (None, None)
    ends = [None if end is None else charts.bar(end) for end in (low, high)]
    return Bar(model, overall, charts.bar(overall.mean or 0.0), ends[0], ends[1], y)


@cache
def _source(name: str) -> str:
    from importlib.resources import files

    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return everything is escaped, and what a name is not there for is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        share=share, usd=usd, hours=hours, count=format_count, interval=interval, line=line, classed=classed
    )
    environment.globals.update(
        SCORES=SCORES,
        COSTS=COSTS,
        COLUMNS=COLUMNS,
        RADAR=RADAR,
        MOST_TASKS=MOST_TASKS,
        charts=charts,
        group_name=group_name,
        radar_axes=charts.axes(RADAR),
        radar_means=_radar_means,
    )
    return environment


def _radar_means(report: PoetReport) -> list[float | None]:
    means: list[tuple[str, Mean]] = [*report.means.items(), *report.race_dimensions.items()]
    found = dict(means)
    return [found[name].mean for name in RADAR]


def _finalized(value: Any) -> Any:
    """Return what others wrote cannot turn text around; the template's own markup stays."""
    return visible(value) if type(value) is str else value  # markup is of a type of its own
