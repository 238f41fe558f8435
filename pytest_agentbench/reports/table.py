"""Tables of the terminal that fit its width, and the figures of report.json's entries in words."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

from pytest_agentbench.records.case import name_column
from pytest_agentbench.terminal_text import count_text, defuse_ci_commands, visible_line

Markup = dict[str, bool]
Segment = tuple[str, Markup]

BAR = 10
GOOD, FAIR = 0.8, 0.5
"""Least pass rates of a green and of a yellow bar, if no gate has a minimum."""
_MOST_SKIPPED = 5


class Terminal(Protocol):
    """Output of a summary: pytest's TerminalReporter, or an object with these methods. Marks are `bold`, `red`, ..."""

    @property
    def hasmarkup(self) -> bool:
        """Return whether marks show."""

    @property
    def verbosity(self) -> int:
        """Return 0, -1 for `-q`."""

    @property
    def no_summary(self) -> bool:
        """Return whether the summary shows problems only."""

    def write(self, content: str, *, flush: bool = ..., **markup: bool) -> None:
        """Write text that others follow in the same line."""

    def line(self, msg: str, **kw: bool) -> None:
        """Write a line to its end."""

    def write_line(self, line: str, **markup: bool) -> None:
        """Write one line."""

    def write_sep(self, sep: str, title: str | None = ..., **markup: bool) -> None:
        """Write a line of `sep` around a title."""


class Style(NamedTuple):
    """Abilities of an output: `width` in cells, and whether colours and other than ASCII may be used."""

    width: int
    fancy: bool

    @property
    def dash(self) -> str:
        """Return the sign for unknown values."""
        if self.fancy:
            return "–"
        return "-"

    @property
    def at_least(self) -> str:
        """Return the sign before a sum that leaves unknown parts out."""
        if self.fancy:
            return "≥"
        return ">="

    def mark_sum(self, text: str, *, exact: bool) -> str:
        """Return the text of a sum, after the sign `at_least` unless the sum is exact."""
        if exact:
            return text
        return self.at_least + text

    def clip(self, content: str, width: int) -> str:
        """Return at most `width` cells of text that others wrote."""
        # Cut before it is made visible: an answer may be megabytes of one line
        return clip_cells(visible_line(content[: 4 * self.width]), width, "…" if self.fancy else "...")


def style_of(reporter: Terminal) -> Style:
    """Return the style that the terminal's encoding supports."""
    columns = shutil.get_terminal_size().columns
    return Style(
        width=columns if columns >= 40 else 80,
        fancy=reporter.hasmarkup and carries_unicode(sys.stdout.encoding),
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
        """Return the cells of the widest entry."""
        return max([count_cells(self.title), *(sum(count_cells(part) for part, _ in row) for row in self.rows)])


def make_column(title: str, rank: int, cells: Iterable[str | list[Segment]], align: str = ">") -> Column:
    """Return a column with these cells; a text is plain."""
    return Column(title, rank, align, [[(cell, {})] if isinstance(cell, str) else cell for cell in cells])


def write_titles(reporter: Terminal, columns: Sequence[Column]) -> None:
    """Write the line above the rows."""
    _write_line(reporter, columns, [[(column.title, {"bold": True})] for column in columns])


def write_row(reporter: Terminal, columns: Sequence[Column], row: int) -> None:
    """Write one row of the table; the first one is 0."""
    _write_line(reporter, columns, [column.rows[row] for column in columns])


def _write_line(reporter: Terminal, columns: Sequence[Column], cells: Sequence[Sequence[Segment]]) -> None:
    for column, segments in zip(columns, cells, strict=True):
        blanks = " " * (column.width - sum(count_cells(part) for part, _ in segments))
        if column.align == ">":
            reporter.write(blanks)
        for part, markup in segments:
            reporter.write(part, **markup)
        if column is columns[-1]:
            break
        if column.align == "<":
            reporter.write(blanks)
        reporter.write("  ")
    reporter.line("")


def fit_columns(columns: list[Column], width: int, *, gap: int = 2) -> list[Column]:
    """Return the columns that fit into `width` cells, `gap` apart; of equal rank the later ones are dropped first.

    The model's name and the pass rate always stay.
    """
    columns = list(columns)
    while sum(column.width + gap for column in columns) - gap > width and len(columns) > 2:
        # `max` takes the first of equals, so that of equal ranks the rightmost goes
        dropped = max(reversed(columns), key=lambda column: column.rank)
        columns = [column for column in columns if column is not dropped]
    return columns


def line_up(rows: Sequence[Sequence[str]], *, least: Sequence[int] = (), gap: int = 2) -> Iterator[str]:
    """Yield the lines of a plain table: the first column is left-aligned, the others are right-aligned.

    A column is as wide as its widest cell and at least `least`; `gap` spaces separate columns.
    """
    widest = [max(map(count_cells, cells)) for cells in zip(*rows, strict=True)]
    widths = [max(pair) for pair in zip_longest(widest, least, fillvalue=0)]
    for row in rows:
        aligns = ("<", *(">" for _ in row[1:]))
        yield (" " * gap).join(map(pad_cells, row, widths, aligns))


def rate_colour(rate: float, minimum: float | None) -> Markup:
    """Return green, yellow or red; only green or red if the gate has a minimum."""
    good, fair = (GOOD, FAIR) if minimum is None else (minimum, minimum)
    if rate >= good:
        return {"green": True}
    if rate >= fair:
        return {"yellow": True}
    return {"red": True}


def rate_cell(rate: float | None, minimum: float | None, style: Style) -> list[Segment]:
    """Return a pass rate in percent."""
    if rate is None:
        return [(style.dash, {})]
    return [(format_percent(rate), {"bold": True, **rate_colour(rate, minimum)})]


def format_percent(fraction: float) -> str:
    """Return one decimal. 100.0 % and 0.0 % are exact: other values are not rounded to them."""
    # 99.96 % is not 100: somebody looks for the one that failed
    rounded = round(fraction * 100, 1)
    if 0 < fraction < 1:
        rounded = min(99.9, max(0.1, rounded))
    return f"{rounded:.1f} %"


def bar_cell(rate: float | None, minimum: float | None) -> list[Segment]:
    """Return a pass rate as a bar; only for fancy outputs."""
    if rate is None:
        return [("", {})]
    halves = round(rate * BAR * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return [(filled, rate_colour(rate, minimum)), ("━" * (BAR - len(filled)), {"light": True})]


def interval_text(interval: Sequence[float] | None, style: Style) -> str:
    """Return an interval of a rate in percent."""
    if interval is None:
        return style.dash
    return f"{interval[0] * 100:.0f}{style.dash}{interval[1] * 100:.0f}"


_MARKS = {"scripted": "scripted, not a model", "own_agent": "your own agent"}
_TAPED = {"recorded": "on", "replayed": "from"}


def subject_title(models: Sequence[Any]) -> str:
    """Return the title of the table's first column."""
    names = {"predictions": "predictions", "own_agent": "agent"}
    return next((title for mark, title in names.items() if all(model[mark] for model in models)), "model")


def cost_text(entry: Any, style: Style) -> str:
    """Return the cost of run and judge together, marked as a minimum if some of it is unknown."""
    numbers = [value for value in entry["at_least"]["cost_usd"].values() if value is not None]
    # A sum of known zeros and unknown parts has no information: `>= $0` is not shown.
    exact = None not in entry["cost_usd"].values()
    if not exact and not any(numbers):
        return style.dash
    return style.mark_sum(format_money(sum(numbers)), exact=exact)


def tokens_text(model: Any, style: Style) -> str:
    """Return input and output tokens together, marked as a minimum if some of them are unknown."""
    numbers = [model["at_least"]["tokens"][part] for part in ("input", "output")]
    if numbers == [None, None]:
        return style.dash
    exact = None not in (model["tokens"]["input"], model["tokens"]["output"])
    return style.mark_sum(format_count(sum(value or 0 for value in numbers)), exact=exact)


def judged_text(model: Any) -> str:
    """Return the number of cases behind a model's mean score, or "" if it is zero or unknown."""
    scored, cases = model.get("scored_cases"), model.get("cases")
    if not scored:
        return ""
    if scored == cases:
        return str(scored)
    return f"{scored} of {cases}"


def model_marks(model: Any) -> list[str]:
    """Return notes on a model's figures: who answered, and which runs are reused or from cassettes."""
    marks = [mark for name, mark in _MARKS.items() if model[name]]
    if model["predictions"]:
        marks.append(f"predictions from {visible_line(model['predictions'])}")
    if model["reused"]:
        marks.append(f"{model['reused']} of {model['runs']} runs reused{_rejudged_text(model)}")
    if model.get("usage_source") == "gateway_partial":
        marks.append("tokens as far as requests went through the gateway")
    if cache := model.get("cache"):
        cost = cache["uncached_cost_usd"]
        without = "" if cost is None else f" ({format_money(cost)} without)"
        marks.append(f"{cache['read_share']:.0%} of the input read from a cache{without}")
    return marks + [f"{model[how]} {how} {link} cassettes" for how, link in _TAPED.items() if model[how]]


_ENDS = {
    "refused": "refused",
    "length": "cut at the token limit",
    "empty": "blank",
    "max_turns": "out of turns",
    "context_exceeded": "beyond the model's window",
    "filtered": "withheld by a filter",
    "malformed_reply": "without a readable tool call",
    "no_text": "without text",
    "timed_out": "timed out",
    "unsupported": "not supported by the endpoint",
    "provider_error": "ended by the provider",
    "aborted": "stopped by the server",
    "rejected": "rejected by the endpoint",
    "request_refused": "refused for this request",
    "authentication": "with the key refused",
    "quota": "out of quota",
    "agent_failed": "reported as failed",
    "invalid_output": "without a valid output",
}


def ends_line(ends: Mapping[str, int]) -> str | None:
    """Return how a model's runs ended that have no normal answer, or None if all have one."""
    notes = [f"{count} {_ENDS[reason]}" for reason, count in ends.items() if reason in _ENDS]
    if notes:
        return f"ended: {', '.join(notes)}"
    return None


def _rejudged_text(entry: Any) -> str:
    """Return how many of the reused runs were judged again."""
    if entry["rejudged"]:
        return f" ({entry['rejudged']} judged anew)"
    return ""


def totals_lines(totals: Any, style: Style) -> list[str]:
    """Return the number of runs by outcome, and their cost if known."""
    parts = [f"{totals[name]:,} {name}" for name in ("passed", "failed", "skipped") if totals[name]]
    if totals["reused"]:
        parts.append(f"{totals['reused']:,} reused{_rejudged_text(totals)}")
    if totals["errors"]:
        parts.append(count_text(totals["errors"], "error"))
    line = f"{count_text(totals['runs'], 'run')}: {', '.join(parts)}"
    certain, exact = totals["at_least"]["cost_usd"], totals["cost_usd"]
    parts_shown = [
        f"{visible_line(part)} {style.mark_sum(format_money(certain[part]), exact=exact[part] is not None)}"
        for part in certain
        if certain[part]
    ]
    if parts_shown:
        return [line, f"cost: {', '.join(parts_shown)}{_paid_now_text(totals, style)}"]
    return [line]


def grading_line(runs: Sequence[Any]) -> str | None:
    """Return the number of runs whose solution could have changed the grade, or None."""
    in_process = sum(any(check.get("graded") == "in process" for check in run["checks"]) for run in runs)
    if not in_process:
        return None
    runs = count_text(in_process, "run")
    return f"graded in process: {runs}, by tests that the solution could change; `apart: true` prevents that"


def describe_skipped(row: Any) -> str | None:
    """Return `2 of 5 checks skipped` for a run with checks that did not run, None for any other."""
    skipped = sum(check["outcome"] == "skipped" for check in row["checks"])
    total = len(row["checks"])
    if skipped:
        return f"{skipped:,} of {count_text(total, 'check')} skipped"
    return None


def skipped_lines(runs: Sequence[Any]) -> list[str]:
    """Return how many runs were decided without some of their checks, for each number of checks and reason."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        if skipped := describe_skipped(run):
            reason = next(check["message"] for check in run["checks"] if check["outcome"] == "skipped")
            counted[run["outcome"], skipped, reason] += 1
    lines = [
        f"{count_text(count, 'run')} {outcome}, {skipped}: {visible_line(reason)}"
        for (outcome, skipped, reason), count in counted.most_common(_MOST_SKIPPED)
    ]
    more = sum(counted.values()) - sum(count for _, count in counted.most_common(_MOST_SKIPPED))
    return lines + [f"{more} more runs with skipped checks"] * (more > 0)


def _paid_now_text(totals: Any, style: Style) -> str:
    """Return the amount that this session paid, if it differs from the cost of its results.

    It is less if results are reused, and more if runs were cancelled or failed after they had asked their model.
    """
    exact = totals["spent_usd"]
    certain = totals["at_least"].get("spent_usd", exact)
    if None in certain.values():
        return ""
    amount, is_complete = sum(certain.values()), None not in exact.values()
    paid = style.mark_sum(format_money(amount), exact=is_complete)
    if totals["reused"] or totals["replayed"]:
        return f"; of that paid now: {paid}"
    is_exact = None not in totals["cost_usd"].values()
    cost = sum(value or 0.0 for value in totals["at_least"]["cost_usd"].values())
    if amount <= cost * 1.001 and (is_complete or not is_exact):
        return ""
    return f"; paid in this session, cancelled runs included: {paid}"


def column_of(entry: Mapping[str, Any]) -> str:
    """Return the name of the column of a run, or of an entry of a report: its model with its variant."""
    return name_column(entry["model_id"], entry.get("variant"))


def variant_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variant of a run's entry, {} without variants."""
    if "variant" in row:
        return {"variant": row["variant"]}
    return {}


def model_name(model: Any) -> str:
    """Return the column of a model's entry, followed by the model's label if that differs."""
    if model["label"] in (None, model["model_id"]):
        return column_of(model)
    return f"{column_of(model)} ({model['label']})"


def and_more(total: int, listed: int) -> str:
    """Return " and 3 more" if a list of `total` entries ends after `listed` ones, else ""."""
    if total <= listed:
        return ""
    return f" and {total - listed} more"


def clip_cells(text: str, width: int, dots: str = "...") -> str:
    """Return at most `width` terminal cells of a text; a longer text ends with `dots`."""
    if count_cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots[: max(0, width)]


def count_cells(text: str) -> int:
    """Return how many terminal cells a text takes: CJK and emoji take two, combining marks none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad_cells(text: str, width: int, align: str = "<") -> str:
    """Return the text filled with blanks to `width` cells, on the right for `<`, on the left for `>`."""
    blanks = " " * (width - count_cells(text))
    if align == ">":
        return blanks + text
    return text + blanks


def carries_unicode(encoding: str | None) -> bool:
    """Return whether an output of this encoding can carry bars, dashes and dots."""
    try:
        "━╸–…·".encode(encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def format_apart(value: float, limit: float, digits: int = 3) -> tuple[str, str]:
    """Return both numbers with as few decimals (at least `digits`) as show that they differ, if they do."""
    for decimals in range(digits, 17):
        pair = f"{value:.{decimals}f}", f"{limit:.{decimals}f}"
        if pair[0] != pair[1]:
            return pair
    return f"{value:.{digits}f}", f"{limit:.{digits}f}"


def format_number(value: float) -> str:
    """Return a number in up to four significant digits."""
    return f"{value:.4g}"


def format_money(usd: float | None, dash: str = "-") -> str:
    """Return US dollars, with four decimals below one dollar."""
    if usd is None:
        return dash
    if usd < 1:
        return f"${usd:.4f}"
    return f"${usd:,.2f}"


def format_count(value: float | None, dash: str = "-") -> str:
    """Return a large count in three digits: 999, 12.3k, 1.2M."""
    if value is None:
        return dash
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def format_seconds(value: float | None, dash: str = "-") -> str:
    """Return a duration: 8 ms, 3.1 s, 2:05, 1:02:03."""
    if value is None:
        return dash
    # 59.95 and 0.9995 are where rounding would show 60.0 s and 1000 ms
    if value < 59.95:
        if value < 0.9995:
            return f"{value * 1000:.0f} ms"
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


class CommandFreeTerminal:
    """Terminal whose lines no CI takes for a command, even if their text contains one."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def write(self, content: str, *, flush: bool = False, **markup: bool) -> None:
        """Write text that others follow in the same line."""
        self._terminal.write(defuse_ci_commands(content), flush=flush, **markup)

    def write_line(self, line: str, **markup: bool) -> None:
        """Write one line."""
        self._terminal.write_line(defuse_ci_commands(line), **markup)
