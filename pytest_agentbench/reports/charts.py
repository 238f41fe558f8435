"""Charts of a report: quality against cost, times and scores of runs, for the page and `--agentbench-chart`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.records.case import name_column
from pytest_agentbench.reports.drawing import (
    WIDTH,
    Axis,
    Chart,
    Dot,
    Mark,
    draw_dots,
    draw_labels,
    draw_lines,
    svg_text,
)
from pytest_agentbench.reports.gate import has_verdict, judged_cases
from pytest_agentbench.reports.table import (
    and_more,
    column_of,
    count_cells,
    format_money,
    format_number,
    format_seconds,
)
from pytest_agentbench.statistics.estimates import FEWEST_JUDGED, mean_of
from pytest_agentbench.terminal_text import visible

Report = Mapping[str, Any]

LONGEST_NAME = 24
MOST_NAMED = 10
"""Columns that a sentence on omissions names."""
MOST_BOXES = 20
"""Columns in the chart of times; the page has all figures in its table."""
_FAR_APART = 100
"""Ratio of largest to smallest cost above which the axis is logarithmic: otherwise most columns are at its left end."""
_NEGLIGIBLE = 0.01
"""Seconds below which the longest run is not worth a chart."""
_LEFT, _RIGHT, _TOP, _PLOT, _LABELS, _ROW = 50, 12, 12, 150, 26, 24
"""Units: margins, height of a plot, of the labels below it, and of a row."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a column's entry that a chart shows against cost; its axis ends at `top` in steps of `step`."""

    key: str
    interval: str
    title: str
    top: float
    step: float
    write: Callable[[float], str]


PASS_RATE = Figure("pass_rate", "pass_rate_ci95", "Pass rate", 1.0, 0.2, lambda rate: f"{100 * rate:.0f} %")
SCORE = Figure("mean_score", "score_ci95", "Mean score", 10.0, 2.0, format_number)


def charts(report: Report) -> list[dict[str, Any]]:
    """Return the page's charts as JSON values, without those that would be empty."""
    several = len(report["models"]) > 1
    candidates = [against_cost(report, PASS_RATE) if several else scores(report), times(report)]
    return [chart.as_dict() for chart in candidates if chart is not None]


def write_chart(report: Report, path: Path) -> None:
    """Write mean score, or pass rate without scores, against cost as an SVG file. Raises UnwritableError."""
    from pytest_agentbench.bounded.writing import write_text

    figure = SCORE if any(model["mean_score"] is not None for model in report["models"]) else PASS_RATE
    chart = against_cost(report, figure)
    if chart is None:
        nothing = f"No model has both a cost and a {figure.title.lower()}."
        chart = Chart("cost", f"{figure.title} against the cost of a run", nothing, 0, (), (nothing,))
    write_text(path, svg_text(chart))


def against_cost(report: Report, figure: Figure) -> Chart | None:
    """Return a figure of each column against its mean cost of a run (USD), or None if no column has both.

    The mean is over the runs of known cost. Columns without a cost or the figure, and with too few judged cases for a
    mean score, are named as omissions.
    """
    costs = _mean_costs(report)
    drawn: list[tuple[str, float, Mapping[str, Any]]] = []
    unknown, few = [], []
    for name, model in name_columns(report):
        cost = costs.get(column_of(model))
        if cost is None or model[figure.key] is None:
            unknown.append(name)
        elif figure is SCORE and judged_cases(report, column_of(model)) < FEWEST_JUDGED:
            few.append(name)
        else:
            drawn.append((name, cost, model))
    if not any(cost for _, cost, _ in drawn):
        return None
    lowest = min((model[figure.interval] or [model[figure.key]])[0] for _, _, model in drawn)
    first = min(figure.step * math.floor(lowest / figure.step), figure.top - figure.step)
    vertical = Axis(first, figure.top, _TOP + _PLOT, _TOP)
    horizontal = _cost_axis([cost for _, cost, _ in drawn])
    best = max(model[figure.key] for _, _, model in drawn)
    dots = []
    for name, cost, model in drawn:
        value, interval = model[figure.key], model[figure.interval]
        dots.append(
            Dot(
                name,
                f"{name}: {figure.write(value)} at {format_money(cost)}",
                horizontal.place(cost),
                vertical.place(value),
                interval and (vertical.place(interval[0]), vertical.place(interval[1])),
                best=len(drawn) > 1 and value == best,
            )
        )
    marks, unnamed = draw_dots(dots)
    omissions = {
        "No room for the names of": unnamed,
        f"Not drawn, as fewer than {FEWEST_JUDGED} of its cases were judged": few,
        f"Not drawn, as its cost or {figure.title.lower()} is unknown": unknown,
    }
    return Chart(
        "cost",
        f"{figure.title} against the cost of a run",
        f"{'; '.join(dot.hint for dot in dots)}. Best is top left; lines are 95 % intervals.",
        _TOP + _PLOT + _LABELS,
        [
            *draw_lines(vertical, {tick: figure.write(tick) for tick in vertical.ticks()}, _LEFT, WIDTH - _RIGHT),
            *draw_labels(horizontal, {tick: _dollars(tick) for tick in horizontal.ticks()}, _TOP + _PLOT + 20),
            *marks,
        ],
        [
            f"{reason}: {', '.join(names[:MOST_NAMED])}{and_more(len(names), MOST_NAMED)}."
            for reason, names in omissions.items()
            if names
        ],
    )


def _cost_axis(costs: Sequence[float]) -> Axis:
    lowest, highest = min(costs), max(costs)
    # A logarithmic axis has no place for zero: columns that cost nothing keep the linear one
    if lowest > 0 and highest >= _FAR_APART * lowest:
        ends = 10.0 ** math.floor(math.log10(lowest)), 10.0 ** math.ceil(math.log10(highest))
        return Axis(*ends, _LEFT + 8, WIDTH - _RIGHT - 8, logarithmic=True)
    return Axis(0, highest * 1.15, _LEFT, WIDTH - _RIGHT)


def _dollars(value: float) -> str:
    """Return a round number of dollars without an exponent."""
    return f"${value:,.9f}".rstrip("0").rstrip(".")


def _mean_costs(report: Report) -> dict[str, float]:
    """Return the mean cost of a run by column (USD, without judges), over the runs of known cost."""
    # Not a column's total by its runs: one run of unknown cost would leave the column without a place
    costs: dict[str, list[float]] = defaultdict(list)
    for row in report["runs"]:
        if (cost := row["cost_usd"]["run"]) is not None:
            costs[column_of(row)].append(cost)
    return {column: mean_of(known) for column, known in costs.items()}


def times(report: Report) -> Chart | None:
    """Return the times of each column's judged runs: median, middle half, and the range from 5 to 95 %."""
    durations: dict[str, list[float]] = defaultdict(list)
    for row in report["runs"]:
        if has_verdict(row) and row["duration_seconds"] is not None:
            durations[column_of(row)].append(row["duration_seconds"])
    named = [(name, sorted(durations[column_of(model)])) for name, model in name_columns(report)]
    columns = [(name, values) for name, values in named if values]
    longest = max((_rank(values, 0.95) for _, values in columns), default=0)
    if longest < _NEGLIGIBLE:
        return None
    shown = columns[:MOST_BOXES]
    unit, size = _time_unit(longest)
    right = WIDTH - _RIGHT - max(7.2 * count_cells(name) for name, _ in shown)
    axis = Axis(0, longest / size, 16, right - 10)
    marks = [
        mark
        for row, (name, values) in enumerate(shown)
        for mark in _box(axis, name, [value / size for value in values], _ROW * (row + 0.5), right)
    ]
    labels = {tick: f"{tick:g} {unit}" for tick in axis.ticks()}
    medians = "; ".join(f"{name}: median {format_seconds(_rank(values, 0.5))}" for name, values in shown)
    left_out = len(columns) - len(shown)
    return Chart(
        "times",
        "Time of a run",
        f"{medians}. The box is half of the runs, the light line in it the median, the thin line 90 % of them.",
        _ROW * len(shown) + _LABELS,
        [*marks, *draw_labels(axis, labels, _ROW * len(shown) + 18)],
        [f"{left_out} more in the table above."] if left_out else [],
    )


def _box(axis: Axis, name: str, values: Sequence[float], y: float, right: float) -> Iterator[Mark]:
    low, first, median, third, high = (axis.place(_rank(values, share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95))
    yield Mark("line", {"class": "hair", "x1": low, "x2": high, "y1": y, "y2": y})
    width = round(max(3, third - first), 1)
    yield Mark("rect", {"class": "box", "x": first, "width": width, "y": y - 6, "height": 12, "rx": 2})
    yield Mark("line", {"class": "median", "x1": median, "x2": median, "y1": y - 6, "y2": y + 6})
    yield Mark("text", {"class": "name", "x": round(right, 1), "y": y + 4}, name)


def _rank(ordered: Sequence[float], share: float) -> float:
    """Return the value at a share of ordered values by nearest rank: each figure is the time of some run."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _time_unit(longest: float) -> tuple[str, float]:
    """Return the unit of an axis of times, and its seconds."""
    for unit, size in (("ms", 0.001), ("s", 1.0), ("min", 60.0)):
        if longest < 120 * size or (unit == "ms" and longest < 1):
            return unit, size
    return "h", 3600.0


def scores(report: Report) -> Chart | None:
    """Return how many runs have which score (0-10), or None if no run was scored."""
    judged = [row for row in report["runs"] if has_verdict(row) and row["final_score"] is not None]
    if not judged:
        return None
    bins = [Counter[str]() for _ in range(10)]
    for row in judged:
        bins[min(9, max(0, int(row["final_score"])))][row["outcome"]] += 1
    across = Axis(0, 10, 8, WIDTH - 8)
    most = max(group.total() for group in bins)
    up = Axis(0, most, _TOP + _PLOT, _TOP + 16)
    marks = [mark for number, group in enumerate(bins) for mark in _bar(across, up, number, group)]
    note = "; ".join(f"{number} to {number + 1}: {group.total()}" for number, group in enumerate(bins) if group)
    labels: dict[float, str] = {number: str(number) for number in range(11)}
    return Chart(
        "scores",
        "Scores of runs",
        f"Runs by score, failed ones in red. {note}.",
        _TOP + _PLOT + _LABELS,
        [*marks, *draw_labels(across, labels, _TOP + _PLOT + 18)],
    )


def _bar(across: Axis, up: Axis, number: int, group: Counter[str]) -> Iterator[Mark]:
    left, right, below = across.place(number), across.place(number + 1), 0
    for outcome in ("passed", "failed"):
        if group[outcome]:
            low, high = up.place(below), up.place(below + group[outcome])
            place = {"x": left + 1, "width": right - left - 2, "y": high, "height": round(low - high, 1)}
            yield Mark("rect", {"class": f"bar {outcome}", **place})
            below += group[outcome]
    if below:
        yield Mark("text", {"x": (left + right) / 2, "y": up.place(below) - 4, "text-anchor": "middle"}, str(below))


def name_columns(report: Report) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield columns by the name that people read; one that several have is followed by the id."""
    names = [
        _shorten(name_column(model["label"] or model["model_id"], model.get("variant"))) for model in report["models"]
    ]
    counts = Counter(names)
    for name, model in zip(names, report["models"], strict=True):
        yield name if counts[name] == 1 else f"{name} ({_shorten(column_of(model))})", model


def _shorten(name: str) -> str:
    """Return a name of bounded length without its middle: models of one family begin alike and differ at the end."""
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 :]}"
    return visible(name)
