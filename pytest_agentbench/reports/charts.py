"""Charts of a report as Vega-Lite specs: the page draws them, and `--agentbench-chart` makes a picture of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from pytest_agentbench.records.case import name_column
from pytest_agentbench.reports.gate import CaseKey, case_key, has_verdict, judged_cases
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.statistics.estimates import FEWEST_JUDGED, mean_of, pair, pass_rate_interval
from pytest_agentbench.terminal_text import visible

Spec = dict[str, Any]
Values = list[dict[str, Any]]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
COLOURS = ("#0b62c4", "#b3450b", "#12753f", "#8a2aa8", "#9a6700", "#b0174f", "#0b7285", "#4b5563")
"""Of models, in their order, on a light ground; the page has its own for a dark one."""
SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-right", "triangle-down")
"""One fewer than colours, so that only the 57th model looks like the first one."""
MOST_TAGS = 20
_FAR_APART = 100
"""Ratio of largest to smallest value above which an axis is logarithmic: otherwise most models are at its left end."""
LONGEST_NAME = 120
_NAMES = {"labelLimit": 180}
_BY_MODEL = {"field": "model", "type": "nominal", "sort": None}
_RATE = {"field": "pass_rate", "type": "quantitative", "title": "Pass rate", "axis": {"format": "%", "tickCount": 5}}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `note` describes its content and omissions in sentences; its table is `spec.data.values`."""

    id: str
    title: str
    note: str
    spec: Spec


def charts(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the page's charts as JSON values, without those that would be empty."""
    candidates = [pass_rates(report), score_against(report, "cost"), score_against(report, "time"), by_tag(report)]
    return [asdict(chart) for chart in candidates if chart.spec["data"]["values"]]


@cache
def chart_library() -> str | None:
    """Return the script that draws specs in a page (Vega with Vega-Embed), None without the extra `charts`."""
    try:
        import vl_convert
    except ImportError:
        return None
    # The library is embedded: the page is opened from disks and as an artifact of CI, without network.
    script: str = vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;")
    return script


def size_spec(spec: Spec, width: int) -> Spec:
    """Return the spec as a picture by itself: `width` pixels of plot, on white."""
    return {**spec, "width": width, "background": "white", "padding": 16}


def pass_rates(report: Mapping[str, Any]) -> Chart:
    """Return the pass rate of each model with its 95 % interval."""
    values = [
        {
            "model": name,
            "pass_rate": model["pass_rate"],
            **_interval_ends(model["pass_rate_ci95"]),
            "runs": model["passed"] + model["failed"],
        }
        for name, model in _name_models(report)
        if model["pass_rate"] is not None
    ]
    spec = {
        **_spec("Pass rate of each model", values),
        "height": 30 * len(values),
        "encoding": {"y": {"field": "model", "type": "nominal", "title": None, "sort": None, "axis": _NAMES}},
        "layer": [
            *_whiskers("x", {**_RATE, "scale": {"domain": [0, 1]}}, values),
            _points({"x": _RATE, "tooltip": _tooltip("model", "pass_rate", "low", "high", "runs")}, legend=False),
        ],
    }
    note = "Share of passed runs among those that passed or failed, with the 95 % interval over cases."
    return Chart("pass-rate", "Pass rate", note, spec)


def score_against(report: Mapping[str, Any], against: str) -> Chart:
    """Return a chart of each model's mean score against its mean `cost` (USD) or `time` (seconds) of a run.

    Means are over the runs whose figure is known. If no model has a score, the pass rate replaces it. The note names
    the models with an unknown figure and those with too few judged cases for a mean.
    """
    scored = any(model["mean_score"] is not None for model in report["models"])
    if scored:
        y, interval, figure = "mean_score", "score_ci95", "Mean score"
        vertical = {"field": y, "type": "quantitative", "title": "Mean score, 0 to 10", "scale": {"domain": [0, 10]}}
    else:
        y, interval, figure = "pass_rate", "pass_rate_ci95", "Pass rate"
        vertical = {**_RATE, "scale": {"domain": [0, 1]}}
    x, title = {"cost": ("cost_usd", "Mean cost of a run, USD"), "time": ("seconds", "Mean time of a run, s")}[against]
    # Not the model's total by its runs: one run of unknown cost would leave the model without a place
    costs = _run_costs(report)
    values, lacking, few = [], [], []
    for name, model in _name_models(report):
        at = costs.get(column_of(model)) if against == "cost" else model["duration_seconds"]["mean"]
        if at is None or model[y] is None:
            lacking.append(name)
        elif scored and judged_cases(report, column_of(model)) < FEWEST_JUDGED:
            few.append(name)
        else:
            values.append({"model": name, x: at, y: model[y], **_interval_ends(model[interval]), "runs": model["runs"]})
    horizontal = {"field": x, "type": "quantitative", "axis": {"tickCount": 6}, **_scale_axis(title, values, x)}
    spec = {
        **_spec(f"{figure} against {against}", values),
        "height": 280,
        "encoding": {"x": horizontal},
        "layer": [
            *_whiskers("y", vertical, values),
            _points({"y": vertical, "tooltip": _tooltip("model", x, y, "low", "high", "runs")}),
        ],
    }
    note = "Best is top left. Vertical lines are 95 % intervals over cases."
    if hidden := _list_overlapping(values, x, y):
        note += f" At one point: {'; '.join(hidden)}."
    if few:
        note += f" Not drawn, for fewer than {FEWEST_JUDGED} of its cases were judged: {', '.join(few)}."
    if lacking:
        note += f" Not drawn, for its {against} or its {figure.lower()} is unknown: {', '.join(lacking)}."
    return Chart(f"score-{against}", f"{figure} against {against}", note, spec)


def _scale_axis(title: str, values: Values, field: str) -> dict[str, Any]:
    """Return the title of an axis, which is logarithmic where its figures are far apart."""
    numbers = [value[field] for value in values]
    # A logarithmic axis has no place for zero: models that cost nothing keep the linear one
    if not numbers or min(numbers) <= 0 or max(numbers) < _FAR_APART * min(numbers):
        return {"title": title}
    return {"title": f"{title}, logarithmic", "scale": {"type": "log"}}


def _list_overlapping(values: Values, x: str, y: str) -> list[str]:
    """Return the names of models whose marks overlap, by their common point."""
    at: dict[tuple[float, float], list[str]] = defaultdict(list)
    for value in values:
        at[value[x], value[y]].append(value["model"])
    return [", ".join(names) for names in at.values() if len(names) > 1]


def by_tag(report: Mapping[str, Any]) -> Chart:
    """Return the pass rate by tag and model, for the tags with most judged runs. A tag of all runs is left out."""
    judged = [row for row in report["runs"] if has_verdict(row)]
    frequent = Counter(tag for row in judged for tag in dict.fromkeys(row["tags"]))
    # A tag of all runs would repeat the chart of models
    telling = {tag: n for tag, n in frequent.items() if n < len(judged)}
    tags_shown = sorted(telling, key=lambda tag: (-telling[tag], tag))[:MOST_TAGS]
    rate = {**_RATE, "scale": {"domain": [0, 1]}}
    values = list(_tag_values(report, judged, tags_shown))
    spec = {
        **_spec("Pass rate by tag", values),
        "height": len(tags_shown) * max(26, 10 * len(report["models"])),
        "encoding": {
            "y": {"field": "tag", "type": "nominal", "title": None, "sort": None, "axis": _NAMES},
            "yOffset": {"field": "model", "type": "nominal", "sort": None},
        },
        "layer": [
            *_whiskers("x", rate, values),
            _points({"x": rate, "tooltip": _tooltip("tag", "model", "pass_rate", "low", "high", "cases", "runs")}),
        ],
    }
    note = "Share of passed runs with the 95 % interval over cases. A case may have several tags."
    if len(telling) > len(tags_shown):
        note += f" The {len(tags_shown)} most frequent of {len(telling)} tags."
    return Chart("tags", "Pass rate by tag", note, spec)


def _tag_values(report: Mapping[str, Any], judged: list[Row], tags: list[str]) -> Iterator[dict[str, Any]]:
    """Return figures by tag and model, in the order of both, where any run was judged."""
    verdicts: dict[tuple[str, str], dict[CaseKey, list[bool]]] = defaultdict(lambda: defaultdict(list))
    tag_names = set(tags)
    for row in judged:
        for tag in tag_names.intersection(row["tags"]):
            verdicts[tag, column_of(row)][case_key(row)].append(row["outcome"] == "passed")
    for tag in tags:
        for name, model in _name_models(report):
            if cases := verdicts.get((tag, column_of(model))):
                counts = [(sum(outcomes), len(outcomes)) for outcomes in cases.values()]
                passed, runs = (sum(column) for column in zip(*counts, strict=True))
                yield {
                    "tag": _shorten_name(tag),
                    "model": name,
                    "pass_rate": passed / runs,
                    **_interval_ends(pair(pass_rate_interval(counts))),
                    "cases": len(counts),
                    "runs": runs,
                }


def _name_models(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return models by the name that people read; one that several have is followed by the id."""
    names = [_shorten_name(_read_name(model)) for model in report["models"]]
    counts = Counter(names)
    for name, model in zip(names, report["models"], strict=True):
        yield name if counts[name] == 1 else f"{name} ({_shorten_name(column_of(model))})", model


def _read_name(model: Mapping[str, Any]) -> str:
    """Return a model's label, or its id, with its variant."""
    return name_column(model["label"] or model["model_id"], model.get("variant"))


def _shorten_name(name: str) -> str:
    """Return a name of bounded length: the library takes minutes to lay out a million letters."""
    # The middle is left out: models of one family begin alike, and differ at the end
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 :]}"
    return visible(name)


def _run_costs(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean cost of a run by column (USD, without judges), over the runs whose cost is known."""
    costs_by_column: dict[str, list[float]] = defaultdict(list)
    for row in report["runs"]:
        if (cost := row["cost_usd"]["run"]) is not None:
            costs_by_column[column_of(row)].append(cost)
    return {column: mean_of(costs) for column, costs in costs_by_column.items()}


def _interval_ends(interval: list[float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def _spec(description: str, values: Values) -> Spec:
    return {
        "$schema": SCHEMA,
        "description": description,
        "data": {"values": values},
        "width": "container",
        "config": {
            "range": {"category": list(COLOURS), "symbol": list(SHAPES)},
            "axis": {"labelFontSize": 12, "titleFontSize": 12},
            "legend": {"columns": 4},
        },
    }


def _whiskers(along: str, channel: Mapping[str, Any], values: Values) -> list[Spec]:
    """Return a line from `low` to `high` along x or y for each value with an interval, or [] if none has one."""
    if all(value["low"] is None for value in values):
        return []
    ends = {along: {**channel, "field": "low"}, f"{along}2": {"field": "high"}}
    return [
        {
            # Without the filter Vega draws a line from 0 for values without an interval.
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.55, "clip": True},
            "encoding": {**ends, "stroke": {**_BY_MODEL, "legend": None}},
        }
    ]


def _points(encoding: Mapping[str, Any], *, legend: bool = True) -> Spec:
    """Return a mark for each value; colour and shape distinguish models."""
    names = {"orient": "bottom", "title": None, "labelLimit": 220, "symbolLimit": 60}
    by_model = {**_BY_MODEL, "legend": names if legend else None}
    return {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {**encoding, "color": by_model, "shape": by_model},
    }


def _tooltip(*fields: str) -> list[dict[str, Any]]:
    formats = {"pass_rate": ".1%", "mean_score": ".2f", "cost_usd": "$.4f", "seconds": ".2f"}
    entries = ({"field": name, "format": formats.get(name)} for name in fields)
    return [{key: value for key, value in entry.items() if value is not None} for entry in entries]


_WIDTH, _NOTE = 640, 100
"""Of the chart: pixels of the plot, characters of a line of its note."""


_NOTHING: dict[str, Any] = {
    "height": 60,
    "data": {"values": [{}]},
    "mark": {"type": "text", "text": "No model has both figures.", "fontSize": 14},
}


def write_chart(report: Mapping[str, Any], path: Path) -> None:
    """Draw mean score against cost as PNG. Raises UnwritableError, ImportError without the extra `charts`."""
    import vl_convert

    from pytest_agentbench.bounded.writing import write_lines
    from pytest_agentbench.reports.charts import score_against, size_spec

    chart = score_against(report, "cost")
    title = {"text": chart.title, "subtitle": wrap(chart.note, _NOTE), "anchor": "start", "offset": 12}
    spec = {**size_spec(chart.spec if chart.spec["data"]["values"] else _NOTHING, _WIDTH), "title": title}
    write_lines(path, [vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])])
