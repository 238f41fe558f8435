"""Where the marks of the page's charts lie, in the units of their SVG: the template draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, log10, pi, sin
from typing import NamedTuple

RADIUS = 150.0
WIDTH, HEIGHT = 520.0, 320.0
BAR, GAP, BARS_WIDTH = 18.0, 10.0, 360.0
MOST_DOMAINS = 30
_SMALLEST = 1e-9
"""Of an axis: less is nothing."""
SHAPES = 4
"""Marks differ in shape too, so that nothing hangs on colour alone."""


class Point(NamedTuple):
    """In the units of an SVG: x to the right, y down."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a radar: its rim, and where its label stands, with SVG's text-anchor."""

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
    """A value of an axis and where it stands on it."""

    value: float
    at: float


def axes(names: Sequence[str]) -> tuple[Axis, ...]:
    """Around the centre (0, 0), the first at the top, clockwise."""
    return tuple(_axis(name, number, len(names)) for number, name in enumerate(names))


def _axis(name: str, number: int, of: int) -> Axis:
    rim, label = _around(number, of, 1.0), _around(number, of, 1.1)
    anchor = "middle" if abs(label.x) < 1 else "start" if label.x > 0 else "end"
    return Axis(name, rim, label, anchor)


def web(values: Sequence[float | None]) -> Web:
    """Of parts of 0-1 in the order of the axes. A part that is None has no point, and no line leads through it."""
    n = len(values)
    points = [None if value is None else _around(number, n, value) for number, value in enumerate(values)]
    pairs = [(points[number], points[(number + 1) % n]) for number in range(n)]
    lines = tuple((one, other) for one, other in pairs if one is not None and other is not None)
    known = tuple(point for point in points if point is not None)
    return Web(known, lines, len(known) == n)


def _around(number: int, of: int, value: float) -> Point:
    angle = 2 * pi * number / of - pi / 2
    return Point(round(RADIUS * value * cos(angle), 1), round(RADIUS * value * sin(angle), 1))


def ticks(highest: float, length: float, most: int = 5) -> tuple[Tick, ...]:
    """From 0 to at least `highest` in round steps, over `length`."""
    if highest < _SMALLEST:
        return (Tick(0.0, 0.0), Tick(1.0, length))
    raw = highest / most
    size = 10.0 ** floor(log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * (1 - 1e-9))
    count = max(1, ceil(highest / step - 1e-9))
    return tuple(Tick(number * step, round(length * number / count, 1)) for number in range(count + 1))


def dots(pairs: Iterable[tuple[float, float]], highest: float) -> list[Point]:
    """Of (x from 0 to `highest`, y from 0 to 1)."""
    return [Point(round(WIDTH * x / highest, 1), round(HEIGHT * (1 - y), 1)) for x, y in pairs]


def bar(value: float) -> float:
    """Return how long the bar of a score is; what an interval has outside 0-1 is cut off."""
    return round(BARS_WIDTH * min(1.0, max(0.0, value)), 1)
