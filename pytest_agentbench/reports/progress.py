"""Output before and during a session: the forecast of a dry run, and a live line below pytest's output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from pytest_agentbench.reports.table import (
    Style,
    Terminal,
    carries_unicode,
    clip_cells,
    count_cells,
    fit_columns,
    format_count,
    format_money,
    format_seconds,
    make_column,
    style_of,
    write_row,
    write_titles,
)
from pytest_agentbench.terminal_text import visible_line

if TYPE_CHECKING:
    import pytest

    from pytest_agentbench.records.forecast import Expected, Forecast


def write_forecast(reporter: Terminal, forecasts: Sequence[Forecast]) -> None:
    """Write the `agentbench: dry run` section. Costs are expected ones; `-` is unknown."""
    style = style_of(reporter)
    reporter.write_sep("=", "agentbench: dry run", cyan=True)
    columns = fit_columns(
        [
            make_column(
                "model", 0, [style.clip(entry.model_id, max(16, style.width // 4)) for entry in forecasts], "<"
            ),
            *(
                make_column(title, 1, [str(getattr(entry, name)) for entry in forecasts])
                for title, name in (("runs", "runs"), ("reused", "reused"), ("to run", "to_run"))
            ),
            make_column("to judge", 3, [str(entry.to_judge) for entry in forecasts]),
            make_column("tokens", 4, [_format_expected(entry.tokens, format_count, style) for entry in forecasts]),
            make_column("run cost", 2, [_format_expected(entry.run_usd, format_money, style) for entry in forecasts]),
            make_column(
                "judge cost", 2, [_format_expected(entry.judge_usd, format_money, style) for entry in forecasts]
            ),
        ],
        style.width,
    )
    write_titles(reporter, columns)
    for row, forecast in enumerate(forecasts):
        write_row(reporter, columns, row)
        if note := _describe_new(forecast):
            reporter.write_line(f"  {note}", light=True)
    reporter.write_line("nothing was run or paid; tokens and costs are means of stored runs")


def _format_expected(expected: Expected, format_number: Callable[[float], str], style: Style) -> str:
    if expected.unknown and not expected.known:
        return style.dash
    return style.mark_sum(format_number(expected.known), exact=not expected.unknown)


def _describe_new(forecast: Forecast) -> str:
    if not forecast.new:
        return ""
    runs = f"{forecast.new} of {forecast.to_run} runs are of cases that never ran on this model"
    unknown = forecast.run_usd.unknown == forecast.to_run and forecast.new == forecast.to_run
    if unknown:
        return f"{runs}: their tokens and costs are unknown"
    return f"{runs}: the model's mean is used"


BAR = 16


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a session. `reused` of the `done` runs took no time; `cost_usd` is None while unknown.

    `waiting_for` is the reason why runs wait, if they do.
    """

    done: int
    total: int
    in_flight: int
    elapsed_seconds: float
    cost_usd: float | None = None
    partial_cost: bool = False
    reused: int = 0
    waiting_for: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds left by the pace of the runs made so far, None before the first."""
        # Reused runs take no time: counted in, a session that begins with them would end soon, for ever
        runs_made = self.done - self.reused
        if runs_made > 0:
            return self.elapsed_seconds / runs_made * (self.total - self.done)
        return None


class StatusLine:
    """Shows progress in the line below the cursor and puts the cursor back: pytest's output never notices.

    `show` and `clear` belong to pytest's thread: `show` while it waits, `clear` before it writes again. Silent unless
    `stream` is a terminal, and for good once that cannot be written to.
    """

    def __init__(self, stream: TextIO | None, *, colour: bool = True, interval: float = 0.1) -> None:
        self._terminal: int | None = None
        self._encoding, self._colour, self._interval = "ascii", colour, interval
        self._next, self._shown = 0.0, False
        if stream is not None and _is_live_terminal(
            stream
        ):  # a duplicate: pytest's capture redirects the original later
            self._terminal, self._encoding = os.dup(stream.fileno()), stream.encoding

    @classmethod
    def of_session(cls, config: pytest.Config) -> StatusLine:
        """Return the session's status line; make it while capture is off, as it is once collection has ended.

        Silent in xdist's workers, under `-s` (the tests' own output comes at any time) and without a terminal reporter.
        """
        reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or hasattr(config, "workerinput") or config.getoption("capture", "no") == "no":
            return cls(None)
        return cls(sys.__stdout__, colour=reporter.hasmarkup)

    @property
    def live(self) -> bool:
        """Return whether anything is drawn."""
        return self._terminal is not None

    def show(self, progress: Callable[[], Progress]) -> None:
        """Draw, if the last drawing is old enough; `progress` is called only then."""
        now = time.monotonic()
        # Check the time before `progress()`, which visits all runs in flight: pytest calls this more often
        # than people read.
        if self._terminal is None or now < self._next:
            return
        self._next = now + self._interval
        try:
            width = os.get_terminal_size(self._terminal).columns - 1
        except OSError:
            self.close()
            return
        self._shown = True
        self._draw(status(progress(), width, colour=self._colour, unicode=carries_unicode(self._encoding)))

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._shown = False
            self._draw("")

    def close(self) -> None:
        """Take the line away for good."""
        self.clear()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def _draw(self, line: str) -> None:
        # Room below (scrolls at the bottom), back up, save; down, erase to the end of the screen (a line that a resized
        # terminal has wrapped takes more than one), the text, restore.
        drawn = f"\x1bD\x1b[A\x1b7\x1b[B\r\x1b[J{line}\x1b8"
        if self._terminal is not None:
            try:
                os.write(self._terminal, drawn.encode(self._encoding, "replace"))
            except OSError:  # the terminal is gone
                self._shown = False
                self.close()


def status(progress: Progress, width: int, *, colour: bool = False, unicode: bool = True) -> str:
    """Return the line, at most `width` cells: the parts that do not fit are left out, the least telling ones first."""
    seconds = progress.seconds_left
    parts = [f"{progress.done}/{progress.total} done", f"{progress.in_flight} in flight"]
    if progress.waiting_for:
        parts.insert(1, visible_line(progress.waiting_for))
    if seconds is not None and progress.done < progress.total:
        parts.append(f"{format_seconds(seconds)} left")
    if progress.cost_usd is not None:
        if not progress.partial_cost:
            at_least = ""
        elif unicode:
            at_least = "≥"
        else:
            at_least = ">="
        parts.append(f"{at_least}{format_money(progress.cost_usd)}")
    separator = " · " if unicode else ", "
    while len(parts) > 1 and count_cells(separator.join(parts)) > width:
        parts.pop()
    line = clip_cells(separator.join(parts), width, "")
    if count_cells(line) + BAR + 1 > width or not progress.total:
        return line
    return f"{_draw_bar(progress.done / progress.total, colour=colour, unicode=unicode)} {line}"


def _draw_bar(fraction: float, *, colour: bool, unicode: bool) -> str:
    halves = int(min(1.0, fraction) * BAR * 2)
    if not unicode:
        return ("#" * (halves // 2)).ljust(BAR, "-")
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    rest = "━" * (BAR - len(filled))
    if colour:
        return f"\x1b[36m{filled}\x1b[90m{rest}\x1b[0m"
    return filled + rest.replace("━", "─")


def _is_live_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that obeys control sequences."""
    obeys = os.environ.get("TERM") != "dumb" and (os.name != "nt" or "WT_SESSION" in os.environ)
    try:
        return obeys and stream.isatty()
    except ValueError:  # closed
        return False
