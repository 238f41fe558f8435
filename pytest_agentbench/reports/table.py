"""Tables of the terminal that fit its width, and the figures of report.json's entries in words."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
        """Return whether marks show."""

    @property
    def verbosity(self) -> int:
        """0; -1 for `-q`."""

    @property
    def no_summary(self) -> bool:
        """Return whether only what is wrong is to be said."""

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
    """Return what the terminal can show."""
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
    """Return a column with these cells; a text is plain."""
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
    """Return the columns that fit into `width` cells, two apart; of equal rank the later ones are dropped first.

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
    """Return a pass rate in percent."""
    return [(style.dash, {})] if rate is None else [(percent(rate), {"bold": True, **colour(rate, wanted)})]


def percent(fraction: float) -> str:
    """Return one decimal; 100.0 % and 0.0 % only where it is exactly that."""
    rounded = round(fraction * 100, 1)
    if 0 < fraction < 1:
        rounded = min(99.9, max(0.1, rounded))
    return f"{rounded:.1f} %"


def bar_cell(rate: float | None, wanted: float | None) -> list[Segment]:
    """Return a pass rate as a bar; only for fancy outputs."""
    if rate is None:
        return [("", {})]
    halves = round(rate * BAR * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return [(filled, colour(rate, wanted)), ("━" * (BAR - len(filled)), {"light": True})]


def interval_text(interval: Sequence[float] | None, style: Style) -> str:
    """Return an interval of a rate in percent."""
    return style.dash if interval is None else f"{interval[0] * 100:.0f}{style.dash}{interval[1] * 100:.0f}"


_MARKS = {"scripted": "scripted, not a model", "own_agent": "your own agent"}
_TAPED = {"recorded": "on", "replayed": "from"}


def subject(models: Sequence[Any]) -> str:
    """Return what the rows of the table are."""
    names = {"predictions": "predictions", "own_agent": "agent"}
    return next((title for mark, title in names.items() if all(model[mark] for model in models)), "model")


def cost(entry: Any, style: Style) -> str:
    """Run and judge together; at least that where some of it is unknown."""
    known = [value for value in entry["at_least"]["cost_usd"].values() if value is not None]
    exact = None not in entry["cost_usd"].values()
    if not exact and not any(known):
        return style.dash
    return ("" if exact else style.at_least) + text.money(sum(known))


def tokens(model: Any, style: Style) -> str:
    """Input and output together; at least that where some of it is unknown."""
    known = [model["at_least"]["tokens"][part] for part in ("input", "output")]
    if known == [None, None]:
        return style.dash
    exact = None not in (model["tokens"]["input"], model["tokens"]["output"])
    return ("" if exact else style.at_least) + text.count(sum(value or 0 for value in known))


def judged(model: Any) -> str:
    """Return how many of a model's cases its mean score is about; nothing where that is none, or not known."""
    found, cases = model.get("scored_cases"), model.get("cases")
    return "" if not found else str(found) if found == cases else f"{found} of {cases}"


def model_marks(model: Any) -> list[str]:
    """Return what a reader of a model's figures has to know: who answered, what is from earlier, what is from
    cassettes.
    """
    marks = [mark for name, mark in _MARKS.items() if model[name]]
    marks += [f"predictions from {text.visible(model['predictions'])}"] if model["predictions"] else []
    marks += [f"{model['reused']} of {model['runs']} runs reused{_anew(model)}"] if model["reused"] else []
    return marks + [f"{model[how]} {how} {link} cassettes" for how, link in _TAPED.items() if model[how]]


def _anew(entry: Any) -> str:
    """Return how many of the reused runs were judged again."""
    return f" ({entry['rejudged']} judged anew)" if entry["rejudged"] else ""


def totals_lines(totals: Any, style: Style) -> list[str]:
    """Run by outcome, and what they cost where that is known."""
    parts = [f"{totals[name]} {name}" for name in ("passed", "failed", "skipped") if totals[name]]
    parts += [f"{totals['reused']} reused{_anew(totals)}"] if totals["reused"] else []
    if totals["errors"]:
        parts.append(f"{totals['errors']} error{'s' if totals['errors'] > 1 else ''}")
    line = f"{totals['runs']} run{'s' if totals['runs'] != 1 else ''}: {', '.join(parts)}"
    known, exact = totals["at_least"]["cost_usd"], totals["cost_usd"]
    shown = [
        f"{part} {'' if exact[part] is not None else style.at_least}{text.money(known[part])}"
        for part in known
        if known[part]
    ]
    return [line, f"cost: {', '.join(shown)}{_paid_now(totals)}"] if shown else [line]


def grading_line(runs: Sequence[Any]) -> str | None:
    """Return how many runs were graded where their solution could have changed the grade; None for none."""
    found = sum(any(check.get("graded") == "in process" for check in run["checks"]) for run in runs)
    if not found:
        return None
    counted = f"{found} run{'s' if found > 1 else ''}"
    return f"graded in process: {counted}, by tests that the solution could change; `apart: true` keeps it out of there"


def _paid_now(totals: Any) -> str:
    """Return what of it this session paid, where that is not all."""
    spent = totals["spent_usd"].values()
    if not (totals["reused"] or totals["replayed"]) or None in spent:
        return ""
    return f"; of that paid now: {text.money(sum(spent))}"
