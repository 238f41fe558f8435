"""Business report as one page without anything from elsewhere: of a model, or of several side by side."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import ceil, cos, floor, log10, pi, sin
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.packs.research.business_report.aggregates import SCORES, Group, PoetReport, Scored, comparison
from pytest_agentbench.packs.research.business_report.figures import (
    COSTS,
    Mean,
    PoetRow,
    format_classed,
    format_count,
    format_hours,
    format_interval,
    format_line,
    format_share,
    format_usd,
    read_labels,
)
from pytest_agentbench.packs.research.business_report.text import group_name
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, Language, RowId
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment


MOST_TASKS = 10
"""Tasks that a recommendation names on the page."""
MOST_LOWEST = 5
"""Reports with the lowest scores whose evidence the page shows."""
MOST_IN_CHARTS = 8
"""Maximum number of models in charts: more cannot be distinguished."""
EVIDENT = ("unfit", "inaccurate_citations", "weakest_dimension", "weak_domain")
"""Rules about judges' scores of reports, for whose tasks the page shows the evidence."""
RADAR = ("efficiency_score", "quality_score", "strategic_score", "race_score", *RACE_DIMENSIONS, "fact_accuracy")
COLUMNS = {
    **{name: (name, format_share) for name in (*SCORES, "automation_rate")},
    "cost_saving_usd": ("saving_usd", format_usd),
    "ai_cost_usd": ("ai_usd", format_usd),
    "hours": ("ai_hours", format_hours),
}
"""Of the table of all reports, after task, domain and complexity level: fields with their labels, and how shown."""


# Positions of marks in charts, in the units of their SVG: templates draw them.

RADIUS = 150.0
WIDTH, HEIGHT = 520.0, 320.0
BAR, GAP, BARS_WIDTH = 18.0, 10.0, 360.0
MOST_DOMAINS = 30
_SMALLEST = 1e-9
"""Of an axis: less is nothing."""
SHAPES = 4
"""Marks differ in shape too, so that nothing hangs on colour alone."""


class Point(NamedTuple):
    """Point in the units of an SVG: x to the right, y down."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a radar: its rim, and its label's position, with SVG's text-anchor."""

    name: str
    rim: Point
    label: Point
    anchor: str


@dataclass(frozen=True, slots=True)
class Web:
    """A model in a radar: the points of its known parts, the lines between neighbours, and whether it closes."""

    points: tuple[Point, ...]
    lines: tuple[tuple[Point, Point], ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """A value of an axis and its position."""

    value: float
    at: float


def place_axes(names: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes around the centre (0, 0), the first at the top, clockwise."""
    return tuple(_axis(name, number, len(names)) for number, name in enumerate(names))


def _axis(name: str, number: int, of: int) -> Axis:
    rim, label = _around(number, of, 1.0), _around(number, of, 1.1)
    if abs(label.x) < 1:
        anchor = "middle"
    elif label.x > 0:
        anchor = "start"
    else:
        anchor = "end"
    return Axis(name, rim, label, anchor)


def place_web(values: Sequence[float | None]) -> Web:
    """Return the web of parts of 0-1 in the order of the axes.

    A part that is None has no point, and no line leads through it.
    """
    n = len(values)
    points = [None if value is None else _around(number, n, value) for number, value in enumerate(values)]
    pairs = [(points[number], points[(number + 1) % n]) for number in range(n)]
    # No line across a missing part, which would draw it as if it were known.
    lines = tuple((one, other) for one, other in pairs if one is not None and other is not None)
    known = tuple(point for point in points if point is not None)
    return Web(known, lines, len(known) == n)


def _around(number: int, of: int, value: float) -> Point:
    angle = 2 * pi * number / of - pi / 2
    # A tenth of a unit: finer digits show nothing and make pages of many models large.
    return Point(round(RADIUS * value * cos(angle), 1), round(RADIUS * value * sin(angle), 1))


def place_ticks(highest: float, length: float, most: int = 5) -> tuple[Tick, ...]:
    """Return values from 0 to at least `highest` in round steps, over `length`."""
    # A fifth of the least float is 0, which has no logarithm.
    if highest < _SMALLEST:
        return (Tick(0.0, 0.0), Tick(1.0, length))
    raw = highest / most
    size = 10.0 ** floor(log10(raw))
    # 1e-9 keeps 0.30000000000000004 from needing the next larger step.
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * (1 - 1e-9))
    count = max(1, ceil(highest / step - 1e-9))
    return tuple(Tick(number * step, round(length * number / count, 1)) for number in range(count + 1))


def place_dots(pairs: Iterable[tuple[float, float]], highest: float) -> list[Point]:
    """Return the points of pairs (x from 0 to `highest`, y from 0 to 1)."""
    return [Point(round(WIDTH * x / highest, 1), round(HEIGHT * (1 - y), 1)) for x, y in pairs]


def measure_bar(value: float) -> float:
    """Return the length of a score's bar; the part of an interval outside 0-1 is cut off."""
    return round(BARS_WIDTH * min(1.0, max(0.0, value)), 1)


def page(models: Sequence[Scored], made: datetime, language: Language = "en", *, charts_shown: bool = True) -> str:
    """Return the HTML text. One model: with all its reports; several: their figures, side by side."""
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
        # Anchors by number: ids are strangers' text, and two of them may make one anchor.
        numbers_of={row.task_id: number for number, row in enumerate(models[0].rows)} if len(models) == 1 else {},
        scatter=_scatter(models[:MOST_IN_CHARTS]),
        bars=_bars(models[:MOST_IN_CHARTS]),
    )


def _policy(style: str, script: str) -> str:
    """Return nothing may be loaded, sent or run but the page's own style and script."""
    return (
        # By hashes and not by nonce: the page is a file, equal for every reader.
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _evidence(model: Scored) -> list[PoetRow]:
    """Return the reports with evidence among those that recommendations name and the lowest scores."""
    found = (each for each in model.report.recommendations if each.rule in EVIDENT)
    named: list[RowId] = [task for each in found for task in each.task_ids[:MOST_TASKS]]
    lowest = [each.task_id for each in (*model.report.bottom, *reversed(model.report.top))]
    wanted = dict.fromkeys([*named, *lowest[:MOST_LOWEST]])
    rows = {row.task_id: row for row in model.rows}
    return [rows[task] for task in wanted if any(rows[task].evidence.values())]


@dataclass(frozen=True, slots=True)
class Dot:
    """A report in the scatter."""

    at: Point
    title: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Cost against quality: the dots of each model; `n` of `of` reports have both figures."""

    x: tuple[Tick, ...]
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
    x = place_ticks(max((cost for found in pairs for cost, _, _ in found), default=0.0), WIDTH)
    dots = [
        [
            Dot(at, f"{each.report.model}, {row.task_id}: {format_usd(cost)}, {format_share(quality)}")
            for (cost, quality, row), at in zip(
                found, place_dots(((cost, quality) for cost, quality, _ in found), x[-1].value), strict=True
            )
        ]
        for each, found in zip(models, pairs, strict=True)
    ]
    return Scatter(x, dots, sum(map(len, dots)), sum(len(each.rows) for each in models))


@dataclass(frozen=True, slots=True)
class Bar:
    """A model's mean in a domain; `low` and `high` are the ends of its interval, or None."""

    model: int
    mean: Mean
    length: float
    low: float | None
    high: float | None
    y: float


@dataclass(frozen=True, slots=True)
class DomainBars:
    """A domain's bars, one for each model with scored reports there; `y` is its name's position."""

    name: str
    y: float
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of the domains with most reports; `of` counts all domains."""

    domains: list[DomainBars]
    of: int
    height: float


def _bars(models: Sequence[Scored]) -> Bars:
    groups = [{group.name: group for group in each.report.by_domain if group.n_scored} for each in models]
    sizes: dict[str | None, int] = {}
    for found in groups:
        for name, group in found.items():
            sizes[name] = sizes.get(name, 0) + group.n_scored
    # By all models together, so that each domain has the bars of all of them.
    largest = sorted(sizes, key=lambda name: -sizes[name])[:MOST_DOMAINS]
    shown, y = [], 0.0
    for name in largest:
        bars = [
            _bar(number, found[name], y + at * BAR)
            for at, (number, found) in enumerate((n, f) for n, f in enumerate(groups) if name in f)
        ]
        shown.append(DomainBars(name or "", y + BAR * len(bars) / 2, bars))
        y += BAR * len(bars) + GAP
    return Bars(shown, len(sizes), y)


def _bar(model: int, group: Group, y: float) -> Bar:
    overall = group.scores["overall_poet_score"]
    low, high = overall.ci95 or (None, None)
    ends = [None if end is None else measure_bar(end) for end in (low, high)]
    return Bar(model, overall, measure_bar(overall.mean or 0.0), ends[0], ends[1], y)


@cache
def _source(name: str) -> str:
    from importlib.resources import files

    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return the template environment: everything is escaped, and an undefined name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        share=format_share,
        usd=format_usd,
        hours=format_hours,
        count=format_count,
        interval=format_interval,
        line=format_line,
        classed=format_classed,
    )
    environment.globals.update(
        SCORES=SCORES,
        COSTS=COSTS,
        COLUMNS=COLUMNS,
        RADAR=RADAR,
        MOST_TASKS=MOST_TASKS,
        SHAPES=SHAPES,
        RADIUS=RADIUS,
        WIDTH=WIDTH,
        HEIGHT=HEIGHT,
        BAR=BAR,
        BARS_WIDTH=BARS_WIDTH,
        place_web=place_web,
        measure_bar=measure_bar,
        group_name=group_name,
        radar_axes=place_axes(RADAR),
        radar_means=_radar_means,
    )
    return environment


def _radar_means(report: PoetReport) -> list[float | None]:
    means: list[tuple[str, Mean]] = [*report.means.items(), *report.race_dimensions.items()]
    found = dict(means)
    return [found[name].mean for name in RADAR]


def _make_visible(value: Any) -> Any:
    """Return a text in which untrusted characters cannot reverse text; the template's own markup stays."""
    return visible(value) if type(value) is str else value  # markup is of a type of its own
