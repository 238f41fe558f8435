"""Bound pytest's own lists of errors and failures at the end of a session, in time and in length."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.errors import as_alike

if TYPE_CHECKING:
    from pytest_agentbench.reports.rows import Report

MANY = 200
"""Failures and errors of cases above which a session that names no number shows only SHOWN of each."""
SHOWN = 50
GROUPS = 20
"""Groups of equal failures that are named, the largest ones."""
_WITH_TEARDOWN = ("passed", "xpassed", "failed", "xfailed")
"""Categories for which pytest prints the output of each test's teardown."""


class ShortLists:
    """A plugin around pytest's own lists: while pytest prints them, the terminal has short lists of reports.

    `most` is how many failures, and how many errors, are shown; None: SHOWN if there are over MANY. It does nothing
    until the session has a `report`; `written` are its files. pytest's own wrapper has to run inside of this plugin
    and outside of `others`, so it is registered after the terminal, and `others` before.
    """

    def __init__(self, most: float | None) -> None:
        self.most = most
        self.report: Report | None = None
        self.written: Mapping[str, Path] = {}
        self.others = FullLists(self)
        self._full: dict[str, Any] = {}
        self._short: dict[str, Any] = {}
        self._hidden: list[Any] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print the verdict before long lists, and end the session normally if Ctrl-C interrupts the printing."""
        if self.report is None:
            return (yield)
        self._shorten(terminalreporter)
        if shortened := bool(self._hidden) and not terminalreporter.no_summary:
            self._write_verdict(terminalreporter)
        self.hide(terminalreporter)
        try:
            return (yield)
        except KeyboardInterrupt:
            terminalreporter.ensure_newline()
            if not shortened:
                self._write_verdict(terminalreporter)
            terminalreporter.write_line("printing was interrupted; the report has every failure", yellow=True)
        finally:
            terminalreporter.stats.update(self._full)

    def hide(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Give the terminal the short lists."""
        terminalreporter.stats.update(self._short)

    def restore(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Give the terminal the full lists, and print the groups of the failures that pytest has not listed."""
        terminalreporter.stats.update(self._full)
        if self._hidden and not terminalreporter.no_summary:
            self._write_groups(terminalreporter)

    def _write_verdict(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_agentbench.reports.table import CommandFreeTerminal
        from pytest_agentbench.reports.terminal import write_verdict

        assert self.report is not None
        write_verdict(CommandFreeTerminal(terminalreporter), self.report, self.written)

    def _shorten(self, terminalreporter: pytest.TerminalReporter) -> None:
        stats, config = terminalreporter.stats, terminalreporter.config
        errors, failures = stats.get("error", []), stats.get("failed", [])
        total = sum(_problem_of(report) is not None for report in [*errors, *failures])
        most = self.most
        if most is None:
            most = SHOWN if total > MANY else total
        folded = _fold(errors) if terminalreporter.verbosity < 2 else [[report] for report in errors]
        short = {"error": self._first([[_with_count(group), *group[1:]] for group in folded], most)}
        short["failed"] = self._first([[report] for report in failures], most)
        style = getattr(config.option, "tbstyle", "")
        self._add_teardowns(stats, short, [name for name in _WITH_TEARDOWN if style != "line" or "passed" in name])
        self._short = {name: reports for name, reports in short.items() if name in stats}
        self._full = {name: stats[name] for name in self._short}

    def _first(self, groups: Sequence[list[Any]], most: float) -> list[Any]:
        """Return the first report of each of the first `most` groups of cases, and of all others."""
        first_reports, of_cases = [], 0
        for group in groups:
            if _problem_of(group[0]) is not None:
                of_cases += 1
                if of_cases > most:
                    self._hidden += group
                    continue
            first_reports.append(group[0])
        return first_reports

    def _add_teardowns(self, stats: Mapping[str, Any], short: dict[str, Any], names: Sequence[str]) -> None:
        """Add the output of teardowns to the shown reports.

        pytest searches the reports of all phases for the teardown of each shown report: 650 s for 6,000 failures of
        30,000 tests. So its search gets an empty list, and the output is in the report itself.
        """
        short[""] = []
        printed: dict[str, list[tuple[str, str]]] = {}
        for report in stats.get("", ()):
            if report.when == "teardown" and report.sections:
                texts = [section for section in report.sections if "teardown" in section[0]]
                printed.setdefault(report.nodeid, []).extend(texts)
        if not printed:
            return
        for name in names:
            short[name] = [
                _with_sections(report, printed.get(report.nodeid)) for report in short.get(name, stats.get(name, ()))
            ]

    def _write_groups(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_agentbench.reports.table import CommandFreeTerminal, style_of

        reporter = CommandFreeTerminal(terminalreporter)
        style = style_of(reporter)
        groups = Counter(map(_kind_of, self._hidden)).most_common()
        number = len(self._hidden)
        reporter.write_sep("=", f"{number:,} further failure{'s' * (number > 1)}", red=True)
        for (model_id, message), count in groups[:GROUPS]:
            reporter.write_line(style.clip(f"{count:>7,} x [{model_id}] {message}", style.width))
        if others := groups[GROUPS:]:
            total = sum(count for _, count in others)
            reporter.write_line(f"{total:>7,} others, in {len(others):,} further groups")
        for line in _list_places(self.written):
            reporter.write_line(line)


class FullLists:
    """Plugin that shortens pytest's lists around the output of other plugins, which see every report."""

    def __init__(self, lists: ShortLists) -> None:
        self._lists = lists

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Restore the full lists until all other plugins have printed."""
        self._lists.restore(terminalreporter)
        try:
            return (yield)
        finally:
            self._lists.hide(terminalreporter)


def _list_places(written: Mapping[str, Path]) -> list[str]:
    """Return sentences on where every failure is."""
    report, page = (written.get(name) for name in ("report", "page"))
    places = [str(path) for path in (report, page) if path is not None]
    lines = []
    if places:
        lines.append(f"each failure is in {' and '.join(places)}")
    if page is None and report is not None:
        lines.append(f"agentbench report {report} --html page.html writes the page")
    return [*lines, "--agentbench-show-failures all shows them here, N the first N"]


def _problem_of(report: Any) -> tuple[str, str | None] | None:
    """Return the model and the message of the report of a case that did not pass; None for any other report."""
    problem: tuple[str, str | None] | None = getattr(report, "agentbench_problem", None)
    return problem


def _kind_of(report: Any) -> tuple[str, str]:
    """Return the group of equal failures: the model, and the message without parts that differ between runs."""
    model_id, message = _problem_of(report) or ("", None)
    return model_id, as_alike((message or "").partition("\n")[0])


def _fold(errors: Sequence[Any]) -> list[list[Any]]:
    """Return the errors in groups of equal ones, each in the order of its first."""
    groups: dict[Any, list[Any]] = {}
    for report in errors:
        kind: Any = report.nodeid
        model_id, message = _problem_of(report) or ("", None)
        if message:
            kind = model_id, as_alike(message)
        groups.setdefault(kind, []).append(report)
    return list(groups.values())


def _with_count(group: Sequence[Any]) -> Any:
    """Return the first report of a group, with the number of the others."""
    report = group[0]
    if len(group) == 1:
        return report
    note = f"and {len(group) - 1} more with the same error"
    if isinstance(report.longrepr, str):
        report = copy.copy(report)
        report.longrepr = f"{report.longrepr}\n{note}"
    elif hasattr(report.longrepr, "addsection"):
        report.longrepr.addsection(note, "")
    return report


def _with_sections(report: Any, sections: Sequence[tuple[str, str]] | None) -> Any:
    if not sections:
        return report
    report = copy.copy(report)
    report.sections = [*report.sections, *sections]
    return report
