"""Tables for the terminal: columns of coloured cells that fit its width, plain ASCII where it is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_agentbench.reports import text

Markup = dict[str, bool]
Segment = tuple[str, Markup]

BAR = 10
GOOD, FAIR = 0.8, 0.5
"""Pass rates from which a bar is green and yellow where no gate says what is wanted."""


class Terminal(Protocol):
    """Where a summary is written: pytest's TerminalReporter, or what has as much. Marks are `bold`, `red`, ..."""

    @property
    def hasmarkup(self) -> bool:
        """Whether marks show."""

    @property
    def verbosity(self) -> int:
        """0; -1 for `-q`."""

    @property
    def no_summary(self) -> bool:
        """Whether only what is wrong is to be said."""

    def write(self, content: str, *, flush: bool = ..., **markup: bool) -> None:
        """Text that others follow in the same line."""

    def line(self, msg: str, **kw: bool) -> None:
        """The end of a line."""

    def write_line(self, line: str, **markup: bool) -> None:
        """A line of its own."""

    def write_sep(self, sep: str, title: str | None = ..., **markup: bool) -> None:
        """A line of `sep` around a title."""


@dataclass(frozen=True, slots=True)
class Style:
    """What this output can show: `width` in cells, and whether colours and other than ASCII may be used."""

    width: int
    fancy: bool

    @property
    def dash(self) -> str:
        """For what is unknown."""
        return "–" if self.fancy else "-"

    @property
    def at_least(self) -> str:
        """Before a sum that leaves unknown parts out."""
        return "≥" if self.fancy else ">="

    def clip(self, content: str, width: int) -> str:
        """At most `width` cells of text that others wrote."""
        return text.clip(text.visible(content[: 4 * self.width]), width, "…" if self.fancy else "...")


def style_of(reporter: Terminal) -> Style:
    """What the terminal can show."""
    columns = shutil.get_terminal_size().columns
    return Style(
        width=columns if columns >= 40 else 80,
        fancy=reporter.hasmarkup and text.unicode_safe(sys.stdout.encoding),
    )


@dataclass(slots=True)
class Column:
    """A column of the table: one list of coloured segments a row. The one with the highest `rank` is dropped first."""

    title: str
    rank: int
    align: str = ">"
    rows: list[list[Segment]] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Cells that the widest entry takes."""
        return max([text.cells(self.title), *(sum(text.cells(part) for part, _ in row) for row in self.rows)])


def column(title: str, rank: int, cells: Iterable[str | list[Segment]], align: str = ">") -> Column:
    """A column with these cells; a text is plain."""
    return Column(title, rank, align, [[(cell, {})] if isinstance(cell, str) else cell for cell in cells])


def write_titles(reporter: Terminal, columns: Sequence[Column]) -> None:
    """The line above the rows."""
    _write_line(reporter, columns, [[(column.title, {"bold": True})] for column in columns])


def write_row(reporter: Terminal, columns: Sequence[Column], row: int) -> None:
    """One row of the table, the first one is 0."""
    _write_line(reporter, columns, [column.rows[row] for column in columns])


def _write_line(reporter: Terminal, columns: Sequence[Column], cells: Sequence[Sequence[Segment]]) -> None:
    for column, segments in zip(columns, cells, strict=True):
        blanks = " " * (column.width - sum(text.cells(part) for part, _ in segments))
        if column.align == ">":
            reporter.write(blanks)
        for part, markup in segments:
            reporter.write(part, **markup)
        if column is not columns[-1]:
            reporter.write((blanks if column.align == "<" else "") + "  ")
    reporter.line("")


def fit(columns: list[Column], width: int) -> list[Column]:
    """The columns that fit into `width` cells, two apart; of equal rank the later ones are dropped first.

    The model's name and the pass rate always stay.
    """
    columns = list(columns)
    while sum(column.width + 2 for column in columns) - 2 > width and len(columns) > 2:
        dropped = max(reversed(columns), key=lambda column: column.rank)
        columns = [column for column in columns if column is not dropped]
    return columns


def colour(rate: float, wanted: float | None) -> Markup:
    """Green, yellow or red; green or red where the gate says what is wanted."""
    if wanted is not None:
        return {"green" if rate >= wanted else "red": True}
    return {"green" if rate >= GOOD else "yellow" if rate >= FAIR else "red": True}


def rate_cell(rate: float | None, wanted: float | None, style: Style) -> list[Segment]:
    """A pass rate in percent."""
    return [(style.dash, {})] if rate is None else [(percent(rate), {"bold": True, **colour(rate, wanted)})]


def percent(fraction: float) -> str:
    """One decimal; 100.0 % and 0.0 % only where it is exactly that."""
    rounded = round(fraction * 100, 1)
    if 0 < fraction < 1:
        rounded = min(99.9, max(0.1, rounded))
    return f"{rounded:.1f} %"


def bar_cell(rate: float | None, wanted: float | None) -> list[Segment]:
    """A pass rate as a bar; only for fancy outputs."""
    if rate is None:
        return [("", {})]
    halves = round(rate * BAR * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return [(filled, colour(rate, wanted)), ("━" * (BAR - len(filled)), {"light": True})]


def interval_text(interval: Sequence[float] | None, style: Style) -> str:
    """An interval of a rate in percent."""
    return style.dash if interval is None else f"{interval[0] * 100:.0f}{style.dash}{interval[1] * 100:.0f}"
