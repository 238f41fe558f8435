"""Charts as SVG elements: axes, dots with names, and the text of a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any
from xml.etree import ElementTree as ET

from pytest_agentbench.reports.table import count_cells

WIDTH = 400
"""Units of a chart's width: about the pixels of half a page, or of a phone."""
RADIUS = 5
_CELL, _LINE = 7.2, 14
"""Width of a letter's cell and height of a line, in the same units, of 12 px type."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An SVG element. `hint` is the text that a browser shows over it."""

    tag: str
    attributes: Mapping[str, str | float]
    text: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `note` has the figures for readers who cannot see it; `omissions` are sentences on what is not drawn."""

    id: str
    title: str
    note: str
    height: float
    marks: Sequence[Mark]
    omissions: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the chart as the page's data has it."""
        return {**asdict(self), "width": WIDTH}


@dataclass(frozen=True, slots=True)
class Axis:
    """Places of values between two ends in SVG units; `logarithmic` axes need values above 0."""

    first: float
    last: float
    begin: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return the place of a value, rounded to a tenth of a unit."""
        first, last, at = self.first, self.last, value
        if self.logarithmic:
            first, last, at = math.log(first), math.log(last), math.log(at)
        return round(self.begin + (self.end - self.begin) * (at - first) / (last - first), 1)

    def ticks(self) -> list[float]:
        """Return up to six round values on the axis, or the powers of ten on a logarithmic one."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.first) - 1e-9), math.floor(math.log10(self.last) + 1e-9) + 1)
            return [10.0**power for power in powers]
        step = round_step(self.last - self.first)
        count = math.floor((self.last - self.first) / step + 1e-9)
        begin = math.ceil(self.first / step - 1e-9)
        return [round((begin + number) * step, 12) for number in range(count + 1)]


def round_step(span: float) -> float:
    """Return the distance of at most six round values over a span: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 5 + 1e-9)


@dataclass(frozen=True, slots=True)
class Dot:
    """A named value with its place, and the places of its interval's ends on the vertical axis if it has one."""

    name: str
    hint: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: _Box) -> bool:
        """Return whether two boxes have common ground."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


@dataclass(frozen=True, slots=True)
class _Names:
    """Names next to dots, and the boxes that dots and earlier names take."""

    taken: list[_Box]

    def place(self, dot: Dot) -> Mark | None:
        """Return the name at the first free side of its dot, or None if there is no room."""
        width = _CELL * count_cells(dot.name)
        sides = (
            (dot.x + 2 * RADIUS, dot.y, "start"),
            (dot.x - 2 * RADIUS, dot.y, "end"),
            (dot.x, dot.y - 2.4 * RADIUS, "middle"),
            (dot.x, dot.y + 2.8 * RADIUS, "middle"),
        )
        for x, y, anchor in sides:
            left = x - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
            box = _Box(left, y - _LINE / 2, left + width, y + _LINE / 2)
            if left >= 0 and box.right <= WIDTH and not any(map(box.overlaps, self.taken)):
                self.taken.append(box)
                return Mark("text", {"class": "name", "x": round(x, 1), "y": y + 4, "text-anchor": anchor}, dot.name)
        return None


def draw_dots(dots: Sequence[Dot]) -> tuple[list[Mark], list[str]]:
    """Return the marks of dots with their intervals and names, and the names that find no room."""
    marks: list[Mark] = []
    names = _Names([_Box(dot.x - RADIUS, dot.y - RADIUS, dot.x + RADIUS, dot.y + RADIUS) for dot in dots])
    for dot in dots:
        if dot.interval is not None:
            low, high = dot.interval
            marks.append(Mark("line", {"class": "range", "x1": dot.x, "x2": dot.x, "y1": low, "y2": high}))
    for dot in dots:
        look = {"class": "dot best" if dot.best else "dot", "cx": dot.x, "cy": dot.y, "r": RADIUS}
        marks.append(Mark("circle", look, hint=dot.hint))
    unnamed = []
    for dot in dots:
        name = names.place(dot)
        if name is None:
            unnamed.append(dot.name)
        else:
            marks.append(name)
    return marks, unnamed


def draw_lines(axis: Axis, labels: Mapping[float, str], left: float, right: float) -> Iterator[Mark]:
    """Yield a line across the chart for each value of a vertical axis, with its label at the left."""
    for value, label in labels.items():
        y = axis.place(value)
        yield Mark("line", {"class": "grid", "x1": left, "x2": right, "y1": y, "y2": y})
        yield Mark("text", {"x": left - 8, "y": y + 4, "text-anchor": "end"}, label)


def draw_labels(axis: Axis, labels: Mapping[float, str], y: float) -> Iterator[Mark]:
    """Yield the labels of a horizontal axis at a height."""
    for value, label in labels.items():
        yield Mark("text", {"x": axis.place(value), "y": y, "text-anchor": "middle"}, label)


_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #5c6670; }
.title { font-size: 14px; font-weight: 600; fill: #171b20; } .name { font-weight: 600; fill: #171b20; }
.grid { stroke: #e3e6ea; } .range { stroke: #c3c9d0; stroke-width: 4; stroke-linecap: round; }
.dot { fill: #3d454e; } .best { fill: #3450c8; }
"""
_MARGIN, _NOTE_LETTERS = 8, 62


def svg_text(chart: Chart) -> str:
    """Return a chart as the text of an SVG file, on white, with its title and its omissions."""
    notes = [line for sentence in chart.omissions for line in wrap(sentence, _NOTE_LETTERS)]
    top = 28
    height = top + chart.height + 16 * len(notes) + _MARGIN
    size = {"viewBox": f"0 0 {WIDTH} {height:g}", "width": str(2 * WIDTH), "height": f"{2 * height:g}"}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "role": "img"})
    ET.SubElement(root, "title").text = f"{chart.title}. {chart.note}"
    ET.SubElement(root, "style").text = _STYLE
    ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    ET.SubElement(root, "text", {"class": "title", "x": str(_MARGIN), "y": "20"}).text = chart.title
    plot = ET.SubElement(root, "g", {"transform": f"translate(0 {top})"})
    for mark in chart.marks:
        element = ET.SubElement(plot, mark.tag, {name: str(value) for name, value in mark.attributes.items()})
        element.text = mark.text
        if mark.hint is not None:
            ET.SubElement(element, "title").text = mark.hint
    for number, line in enumerate(notes):
        place = {"x": str(_MARGIN), "y": f"{top + chart.height + 16 * (number + 0.5):g}"}
        ET.SubElement(root, "text", place).text = line
    return ET.tostring(root, encoding="unicode") + "\n"
