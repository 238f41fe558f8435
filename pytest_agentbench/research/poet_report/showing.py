"""Numbers and names of others as people read them. What is not known is a dash, never a 0."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, log10

from pytest_agentbench.errors import visible

_MOST_DIGITS = 6
LONGEST = 400
"""Characters of a name or reason that are shown; JSON has all."""
DASH = "–"


def share(value: float | None) -> str:
    """A score: two decimals, as far as the judges' scores carry."""
    return DASH if value is None else f"{value:.2f}"


def apart(value: float, other: float, form: str = "f") -> tuple[str, str]:
    """Two numbers with as many decimals as tell them apart. `form`: `f`, or `%` for percents."""
    for digits in range(0 if form == "%" else 2, _MOST_DIGITS):
        shown = f"{value:.{digits}{form}}", f"{other:.{digits}{form}}"
        if value == other or shown[0] != shown[1]:
            break
    return shown


def classed(value: float, thresholds: Iterable[float]) -> str:
    """A score whose class is shown beside it: never rounded up to a threshold that it does not reach."""
    above = min((each for each in thresholds if each > value), default=None)
    return share(value) if above is None else apart(value, above)[0]


def interval(value: tuple[float, float] | None, to: str) -> str:
    """Both ends, with a sign where one is negative; a third decimal where two do not tell them apart."""
    if value is None:
        return DASH
    low, high = value
    digits = 2 if f"{low:.2f}" != f"{high:.2f}" else 3
    sign = "+" if low < 0 else ""
    return f"{low:{sign}.{digits}f} {to} {high:{sign}.{digits}f}"


def usd(value: float | None) -> str:
    """US dollars: whole ones from a thousand on, then cents, below one three significant digits."""
    if value is None:
        return DASH
    size = abs(value)
    digits = 0 if size >= 1000 else 2 if size >= 1 or not size else 2 - floor(log10(size))
    return f"{'-' * (value < 0)}${size:,.{min(digits, _MOST_DIGITS)}f}"


def hours(value: float | None) -> str:
    """One decimal, below one hour minutes."""
    if value is None:
        return DASH
    return f"{value:,.1f} h" if abs(value) >= 1 or not value else f"{value * 60:.1f} min"


def count(value: float | None) -> str:
    """A whole number with separators."""
    return DASH if value is None else f"{value:,.0f}"


def line(text: object) -> str:
    """One line of at most LONGEST characters of another's text, which can neither steer a terminal nor turn text."""
    shown = " ".join(str(text)[: 2 * LONGEST].split())
    return visible(shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…")


COSTS = {
    "ai_usd": usd,
    "expert_usd": usd,
    "saving_usd": usd,
    "ai_hours": hours,
    "expert_hours": hours,
    "saved_hours": hours,
    "input_tokens": count,
    "output_tokens": count,
}
"""The figures of costs, and how each is shown."""
