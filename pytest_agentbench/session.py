"""The session as a whole, in the only process or in xdist's controller: rows, stops, gate, report.json, summary."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_agentbench.engine import Budget, ControllerLink
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports import Gate

_WORST_LAST = ("rerun", "passed", "skipped", "failed", "error").index


class SessionReport:
    """Collects one row per run from the reports that pytest passes around, also from xdist's workers.

    Reports carry `agentbench_row` (a run's row) and `agentbench_stop` (why the session is to end); a collection report
    of a case file carries `agentbench_case_file`.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.started_at, self._begun = datetime.now(UTC), time.perf_counter()
        self.rows: dict[str, dict[str, Any]] = {}
        self.order: dict[str, int] = {}
        self.others: dict[str, str] = {}
        self.case_file_errors = 0
        self.other_collection_errors = 0
        self.lost = 0
        self.warnings: list[str] = []
        self.budget: Budget | None = None
        self.link: ControllerLink | None = None
        self.halted: str | None = None
        self.report: dict[str, Any] | None = None
        self.report_path: Path | None = None

    # -- what pytest tells

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remembers the session, whose flags stop it."""
        self.session = session

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Counts what could not be collected. Where only case files failed, the other cases still run."""
        if report.failed:
            mine = getattr(report, "agentbench_case_file", False)
            self.case_file_errors += mine
            self.other_collection_errors += not mine

    def pytest_collection_finish(self) -> None:
        """A bad case file is one error; pytest itself would run nothing after it."""
        if self.case_file_errors and not self.other_collection_errors:
            self.config.option.continue_on_collection_errors = True

    @pytest.hookimpl(trylast=True)  # the session has counted the failure by then
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the row of a run, the worst outcome of anything else, and passes stops on to the workers."""
        row = getattr(report, "agentbench_row", None)
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        if row is not None:
            self.order[report.nodeid] = getattr(report, "item_index", len(self.order))
            self.rows[report.nodeid] = row
        elif report.nodeid in self.rows:
            if outcome == "error":  # its teardown broke
                self.rows[report.nodeid] = {
                    **self.rows[report.nodeid],
                    "outcome": "error",
                    "message": "teardown failed",
                }
        else:
            self.others[report.nodeid] = max(outcome, self.others.get(report.nodeid, "rerun"), key=_WORST_LAST)
        if self.link is not None:
            self._tell_workers(report)

    @pytest.hookimpl(tryfirst=True)  # the terminal is the next to read the traceback
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C reaches the workers' engines too."""
        excinfo.traceback = excinfo.traceback.filter(_has_line)
        if self.link is not None:
            self.link.tell("stop", "interrupted")

    @pytest.hookimpl(tryfirst=True)  # JUnit's file and the terminal's summary are written after it
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Writes report.json and decides the exit status."""
        self.lost = self._lost(session, exitstatus)
        if (self.rows or self.lost) and not session.config.getoption("collectonly"):
            self._finish(session, exitstatus)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What people see at the end."""
        if self.report is not None:
            from pytest_agentbench.reports import write_summary

            write_summary(terminalreporter, self.report, str(self.report_path) if self.report_path else None)

    def spend(self, cost: float | None) -> str | None:
        """Books what a worker spent; the reason to stop once the budget is used up."""
        assert self.budget is not None
        self.halted = self.budget.spend(cost) or self.halted
        return self.halted

    # -- what it comes to

    def _tell_workers(self, report: pytest.TestReport) -> None:
        assert self.link is not None
        if report.when == "call" or report.failed or report.skipped:
            self.link.decided.add(report.nodeid)
        stop = getattr(report, "agentbench_stop", None) or self.session.shouldfail or self.session.shouldstop
        if stop:
            self.link.tell("stop", str(stop))

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        from pytest_agentbench.errors import InfrastructureError
        from pytest_agentbench.reports import build_report, case_failures, suite_properties, write_report

        rows = [self.rows[nodeid] for nodeid in sorted(self.rows, key=lambda nodeid: self.order[nodeid])]
        report = build_report(rows, {})
        gate = self._gate(rows, case_failures(report["cases"]))
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = self._exit_status(gate, exitstatus)
        report["session"].update(self._facts(session.exitstatus), gate=gate.as_dict())
        self.report_path = self.settings.json or self.settings.output / "report.json"
        try:
            write_report(report, self.report_path)
        except InfrastructureError as error:
            report["session"]["warnings"].append(str(error))
            self.report_path = None
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        self.report = report
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # pytest's JUnit writer
                for name, value in suite_properties(report):
                    plugin.add_global_property(name, value)

    def _lost(self, session: pytest.Session, exitstatus: int) -> int:
        """Items that were never reported: xdist ends with status 0 when a worker meets an internal error."""
        if self.link is None or not self.link.cases or session.shouldfail or session.shouldstop:
            return 0
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            return 0
        reported = {nodeid for nodeid, outcome in self.others.items() if outcome != "rerun"}
        return max(0, session.testscollected - len(self.rows.keys() | reported))

    def _gate(self, rows: Sequence[dict[str, Any]], case_failures: Sequence[str]) -> Gate:
        from pytest_agentbench.reports import Counts, gate

        counts = Counts.of(row["outcome"] for row in rows)
        crashes = self.link.unplaced if self.link is not None else []
        broken = sum(outcome in ("failed", "error") for outcome in self.others.values()) - len(crashes)
        uncollected = self.case_file_errors + self.other_collection_errors
        stopped = self.session.shouldfail or self.session.shouldstop or self.halted
        reasons = [
            *case_failures,
            *([f"{uncollected} collection errors."] if uncollected else []),
            *([f"{broken} tests that are not cases failed."] if broken > 0 else []),
            *(f"{crash}." for crash in crashes),
            *([f"The session stopped early: {stopped}."] if stopped else []),
            *([f"{self.lost} collected items were never reported."] if self.lost else []),
        ]
        return gate(counts, self.settings.fail_under, self.settings.min_completion, reasons)

    def _exit_status(self, gate: Gate, exitstatus: int) -> int:
        if gate.passed is not None:
            return pytest.ExitCode.OK if gate.passed else pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.TESTS_FAILED if self.halted or self.lost else exitstatus

    def _facts(self, exitstatus: int) -> dict[str, Any]:
        return {
            "started_at": self.started_at.isoformat(),
            "duration_seconds": round(time.perf_counter() - self._begun, 3),
            "exit_status": int(exitstatus),
            "command": [os.fspath(arg) for arg in self.config.invocation_params.args],
            "versions": {
                "pytest-agentbench": version("pytest-agentbench"),
                "pytest": version("pytest"),
                "python": platform.python_version(),
            },
            "profiles": {
                "run": self.settings.run_profile,
                "evaluation": self.settings.evaluation_profile,
                "suite": self.settings.suite,
            },
            "warnings": [*self.warnings, *(self.link.warnings if self.link is not None else ()), *self._spoilers()],
        }

    def _spoilers(self) -> Iterator[str]:
        """What only the end shows, and a reader of the figures has to know."""
        budget = self.budget
        if budget is not None and budget.max_cost is not None and budget.unknown:
            yield (
                f"the cost of {budget.unknown} requests is unknown, so --agentbench-max-cost did not count them; "
                "give the model prices in models.yaml"
            )
        if self.halted:
            yield self.halted
        if self.lost:
            yield f"{self.lost} collected items were never reported"


def _has_line(entry: Any) -> bool:
    """Whether pytest can show a traceback's entry: CPython 3.11 gives the jump back to a loop's head no line."""
    try:
        return isinstance(entry.lineno, int)
    except TypeError:  # pytest subtracts 1 from it
        return False
