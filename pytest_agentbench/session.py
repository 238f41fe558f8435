"""The session as a whole, in the only process or in xdist's controller: rows, stops, gate, report.json, summary."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.reports.failure_lists import ShortLists
from pytest_agentbench.reports.named_files import open_json_lines, read_baseline, read_policy
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.distributed.session_control import SessionControl
    from pytest_agentbench.distributed.sharding import Sharding
    from pytest_agentbench.distributed.shares import ControllerLink
    from pytest_agentbench.engine.budget import Budget, Part, Spending
    from pytest_agentbench.engine.driver import RunAhead
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports.gate import Gate
    from pytest_agentbench.reports.journal import Journal
    from pytest_agentbench.reports.kept_rows import KeptRow

BEGAN = pytest.StashKey[int]()
"""When the session did, in ns since the epoch: before any conftest was loaded."""
_CANCEL_SECONDS = 6.0
"""Seconds that workers get after the grace to cancel runs in flight."""
CANCELLED = "cancelled by the user (agentbench sessions cancel)"
"""The reason of a run that the user cancelled while the others went on."""
_WORST_LAST = ("passed", "skipped", "failed", "error")


class SessionReport:
    """Collects one row per run from the reports that pytest passes around, also from xdist's workers.

    Reports carry `agentbench_row` (a run's row) and `agentbench_stop` (why the session is to end); the report of a case
    file that cannot be collected carries `agentbench_case_file` and `agentbench_uncollected` (its problems).
    """

    def __init__(self, config: pytest.Config, settings: Settings, sharding: Sharding | None = None) -> None:
        self.config, self.settings, self.sharding = config, settings, sharding
        self.started_at, self._begun = datetime.now(UTC), time.perf_counter()
        self.rows: dict[str, KeptRow] = {}
        self._verdicts: dict[str, bytes | None] = {}
        self.others: dict[str, str] = {}
        self.case_file_errors = 0
        self.other_collection_errors = 0
        self.uncollected: list[dict[str, Any]] = []
        self.lost = 0
        self.warnings: list[str] = []
        self.unshared: list[str] = []
        self.limited: list[tuple[str, int, float]] = []
        """The 429s that were waited out: model, number, seconds."""
        self.variants: dict[str, Any] = {}
        """`variants` and `reference_variant` of report.json, {} without variants."""
        self.budget: Budget | None = None
        self.ahead: RunAhead | None = None
        self.dry_run: DryRun | None = None
        self.link: ControllerLink | None = None
        self.operate: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        """Answers requests about the runs of the only process, which `collection.operations` describes."""
        self.control: SessionControl | None = None
        self._planned = 0
        self.journal: Journal | None = None
        self.json_lines = open_json_lines(config, settings, self.warnings.append)
        self.baseline = read_baseline(config, settings)
        self.policy = read_policy(settings)
        self._opening = threading.Lock()
        self.drained: str | None = None
        self.ended_by: int | None = None
        self.not_run: Counter[str] = Counter()
        self._empty_arms: list[str] = []
        self.report: dict[str, Any] | None = None
        self.written: dict[str, Path] = {}
        self.lists = ShortLists(settings.show_failures)

    # -- hooks of pytest

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the session, whose flags stop it, and look at the clock."""
        self.session = session
        self.config.pluginmanager.register(self.lists)  # after the terminal, and before conftests of folders
        if (link := self.link) is not None:
            from pytest_agentbench.engine.budget import Signals

            Signals(link.ended, lambda: link.cases > 0).install(session)
        if (seconds := self.settings.max_seconds) is not None:
            reason = f"the time is used up: {seconds:g} s (--agentbench-max-seconds)"
            timer = threading.Timer(seconds, self.drain, [reason])
            timer.daemon = True
            timer.start()
            self.config.add_cleanup(timer.cancel)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count files that could not be collected. If all of them are case files, the other cases still run."""
        if report.failed:
            mine = getattr(report, "agentbench_case_file", False)
            self.case_file_errors += mine
            self.other_collection_errors += not mine
            self.uncollected += getattr(report, "agentbench_uncollected", ())

    def pytest_collection_finish(self) -> None:
        """Let the session go on after a bad case file: one error, after which pytest itself would run nothing."""
        if self.case_file_errors and not self.other_collection_errors:
            self.config.option.continue_on_collection_errors = True

    @pytest.hookimpl(trylast=True)  # the session has counted the failure by then
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the row of a run, the worst outcome of anything else, and pass stops on to the workers."""
        row = getattr(report, "agentbench_row", None)
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        if row is not None:
            del report.agentbench_row  # the terminal keeps every report to the end
            if outcome in ("failed", "error"):
                from pytest_agentbench.reports.table import column_of

                report.agentbench_problem = column_of(row), row["message"]  # type: ignore[attr-defined]
            before = self.rows.get(report.nodeid)
            if before is not None and getattr(report, "agentbench_again", False):
                from pytest_agentbench.reports.reruns import merge_attempts

                row = merge_attempts(before, row)
            if (reason := getattr(report, "agentbench_not_run", None)) is not None:
                self.not_run[reason] += 1
                if reason == CANCELLED:
                    row = {**row, "status": "cancelled"}
            self._keep_row(report.nodeid, row, getattr(report, "item_index", len(self.rows)))
        elif report.nodeid in self.rows:
            if outcome == "error":  # its teardown broke
                row = self.rows[report.nodeid]
                self._keep_row(report.nodeid, {**row, "outcome": "error", "message": "teardown failed"}, row.at)
        else:
            self.others[report.nodeid] = max(outcome, self.others.get(report.nodeid, "rerun"), key=_severity)
        if self.link is not None:
            self._tell_workers(report)

    @pytest.hookimpl(tryfirst=True)  # the terminal is the next to read the traceback
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Pass Ctrl-C on to the engines of workers."""
        excinfo.traceback = excinfo.traceback.filter(_has_line)
        if self.link is not None:
            self._end_workers(self.link, excinfo.value)

    def _end_workers(self, link: ControllerLink, error: BaseException) -> None:
        from pytest_agentbench.engine.budget import is_signal

        if link.cases and self.settings.grace and (is_signal(error) or link.ended_by):
            with contextlib.suppress(KeyboardInterrupt):  # a second one
                link.finish("interrupted", self.settings.grace + _CANCEL_SECONDS)
        link.tell("stop", "interrupted")

    @pytest.hookimpl(tryfirst=True)  # JUnit's file and the terminal's summary are written after it
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write report.json and decide the exit status."""
        idle = self.sharding is not None and self.sharding.is_empty
        if idle and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            exitstatus = session.exitstatus = pytest.ExitCode.OK
        if self.control is not None:
            self.control.close()
        if self.settings.dry_run:
            return  # the report of the last real session stays
        self.lost = self._count_unreported(session, exitstatus)
        if number := self.ended_by or (self.link and self.link.ended_by):
            exitstatus = session.exitstatus = 128 + number  # as shells tell it
        unread = self.uncollected and exitstatus != pytest.ExitCode.USAGE_ERROR
        reports = self.rows or self.lost or idle or unread or self._ended_early(exitstatus)
        if reports and not session.config.getoption("collectonly"):
            self._make_report(session, exitstatus)
        elif self.journal is not None:
            self.journal.discard()
        if self.json_lines is not None:
            self.json_lines.end(int(session.exitstatus), self.report, self.written)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary."""
        if self.dry_run is not None:
            from pytest_agentbench.reports.progress import write_forecast

            write_forecast(terminalreporter, list(self.dry_run.forecasts.values()))
        if self.report is not None:
            from pytest_agentbench.reports.table import CommandFreeTerminal
            from pytest_agentbench.reports.terminal import write_summary
            from pytest_agentbench.terminal_text import on_github

            write_summary(CommandFreeTerminal(terminalreporter), self.report, self.written)
            if on_github():
                from pytest_agentbench.reports.ci.document import write_annotations

                write_annotations(terminalreporter, self.report, self.config.rootpath)

    # -- called for runs, from any thread

    def open_budget(self) -> Budget:
        """Open the budget of the session, all workers together, before the first run starts."""
        from pytest_agentbench.engine.budget import Budget

        self.budget = Budget(self.settings.max_cost, self.settings.max_tokens)
        return self.budget

    def attach(self, ahead: RunAhead, dry_run: DryRun | None) -> None:
        """Store the engine of the only process, and the forecast of a dry run."""
        self.ahead, self.dry_run = ahead, dry_run
        if self.drained is not None:
            ahead.drain(self.drained)

    def expect(self, runs: int, models: Sequence[str]) -> None:
        """Open the journal, for so many runs of these models to report. Callable from any thread."""
        from pytest_agentbench.distributed.session_control import SessionControl
        from pytest_agentbench.reports.journal import Journal

        with self._opening:
            if self.journal is None:
                facts = {**self._facts, "warnings": [*self.warnings], "uncollected": [*self.uncollected]}
                self.journal = Journal(self.settings.output, facts, self.warnings.append)
                self.config.add_cleanup(self.journal.close)
                self.control = SessionControl(self)
                self.control.open(self.journal, models, runs)
                self._write_start(runs, models)
            self._planned = runs
            self.journal.plan(runs)

    def _write_start(self, runs: int, models: Sequence[str]) -> None:
        if self.json_lines is None or self.journal is None:
            return
        session = None if self.journal.path is None else self.journal.path.stem
        facts = {"socket": self.control and self.control.address, "variants": [*self.variants.get("variants", ())]}
        self.json_lines.start(session, self.started_at.isoformat(), models, runs, self.settings, facts)

    def describe_live(self) -> dict[str, Any]:
        """Return the facts about the session while it runs, for `agentbench sessions`."""
        return {
            "session": self.journal and self.journal.path and self.journal.path.stem,
            "process_id": os.getpid(),
            "started_at": self._facts["started_at"],
            "command": self._facts["command"],
            "output": str(self.settings.output),
            "runs": self._planned,
            "reported": len(self.rows),
        }

    def spend(self, part: Part, spendings: Sequence[Spending]) -> None:
        """Book usages of runs and judges. Start no further run once the budget is used up."""
        assert self.budget is not None
        if (reason := self.budget.book(part, spendings)) is not None:
            self.drain(reason)

    def drain(self, reason: str) -> None:
        """Start no further run, here and in all workers: runs in flight end, the rest is skipped with the reason."""
        self.drained = self.drained or reason
        if self.ahead is not None:
            self.ahead.drain(reason)
        if self.link is not None:
            self.link.tell("drain", reason)

    # -- results

    def _keep_row(self, nodeid: str, row: Mapping[str, Any], at: int) -> None:
        if self.journal is not None:  # else it is a dry run, which reports none
            from pytest_agentbench.reports.history_file import encode_verdict

            if self.policy is not None:
                row = self.policy.apply(row)
            # Here, where the row is whole: at the end it would have to be read back from the journal
            self._verdicts[nodeid] = encode_verdict(row)
            self.rows[nodeid] = self.journal.row(row, at, self._spent_usd())
            if self.json_lines is not None:
                self.json_lines.run(row)
                if self.link is not None:  # else pytest tells of it while it waits for a run
                    self.json_lines.progress(len(self.rows), None, self.known_usd())

    def known_usd(self) -> float | None:
        """Return the cost of runs and judges so far, None if that of some requests is unknown."""
        if self.budget is None or self.budget.unknown or self.budget.unsettled:
            return None
        return self.budget.spent

    def _spent_usd(self) -> dict[str, Any]:
        if self.budget is None:
            return {"run": 0.0, "judge": 0.0}
        spent: dict[str, Any] = {**self.budget.spent_usd}
        if None in spent.values() and self.budget.spent:
            return {**spent, "at_least": self.budget.known_usd}
        return spent

    def _tell_workers(self, report: pytest.TestReport) -> None:
        assert self.link is not None
        if report.when == "call" or report.failed or report.skipped:
            self.link.decided.add(report.nodeid)
        stop = getattr(report, "agentbench_stop", None) or self.session.shouldfail or self.session.shouldstop
        if stop:
            self.link.tell("stop", str(stop))

    def _make_report(self, session: pytest.Session, exitstatus: int) -> None:
        from pytest_agentbench.reports.gate import case_failures, find_empty_arms
        from pytest_agentbench.reports.report import add_session_labels, build_report, suite_properties

        nodeids = sorted(self.rows, key=lambda nodeid: self.rows[nodeid].at)
        rows = [self.rows[nodeid] for nodeid in nodeids]
        report = build_report(rows, {**self._facts}, self._spent_usd())
        report |= self._find_variants()
        # A session that compares with a baseline has that as its reference.
        if len(report["models"]) > 1 and (report.get("variants") or self.settings.compare is None):
            from pytest_agentbench.reports.comparison.comparing import add_column_comparisons

            add_column_comparisons(report)
        self._empty_arms = find_empty_arms(report["models"])
        faults = [*self._list_faults(exitstatus), *self._empty_arms]
        gate = self._decide_gate(rows, [*self._compare_baseline(report), *case_failures(report["cases"]), *faults])
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            if not faults and self._fails_without_effect(rows, report["cases"]):
                exitstatus = pytest.ExitCode.OK
            session.exitstatus = self._decide_exit_status(gate, exitstatus)
        facts = {"faults": faults, "uncollected": self.uncollected, "gate": gate.as_dict()}
        report["session"].update(self._describe_end(session.exitstatus), **facts)
        if self.sharding is not None:
            report["session"].update(self.sharding.facts(nodeids))
        add_session_labels(report, self.config.rootpath)
        self._append_history(report)
        self._write_report(session, report)
        self._write_outputs(session, report)
        if self.journal is not None:
            written = self.written.get("report") == self.settings.output / "report.json"
            self.journal.end(report, written=written)  # that is whole, and on the disk
        self.report = report
        self.lists.report, self.lists.written = report, self.written
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # pytest's JUnit writer
                for name, value in suite_properties(report):
                    plugin.add_global_property(name, value)

    def _append_history(self, report: dict[str, Any]) -> None:
        """Append the runs that the session made to the history of its output folder; a failure is a warning."""
        from pytest_agentbench.reports.history_file import HISTORY, append_session

        verdicts = [verdict for verdict in self._verdicts.values() if verdict is not None]
        if not verdicts:
            return
        try:
            append_session(self.settings.output, self.started_at, self.settings.suite, verdicts)
        except OSError as error:
            path, reason = self.settings.output / HISTORY, error.strerror or error
            report["session"]["warnings"].append(f"{path}: the session is not in the history: {reason}")

    def _write_outputs(self, session: pytest.Session, report: dict[str, Any]) -> None:
        from pytest_agentbench.reports.report import write_outputs

        written, complete = write_outputs(report, self.settings, self.config.rootpath)
        self.written.update(written)
        if not complete:
            self._fail_session(session, report)
            if "report" in self.written:
                self._write_report(session, report)  # it tells of that too

    def _write_report(self, session: pytest.Session, report: dict[str, Any]) -> None:
        from pytest_agentbench.errors import InfrastructureError
        from pytest_agentbench.reports.report import write_report

        path = self.settings.json or self.settings.output / "report.json"
        try:
            write_report(report, path)
            self.written["report"] = path
        except InfrastructureError as error:
            report["session"]["warnings"].append(str(error))
            self._fail_session(session, report)

    def _fail_session(self, session: pytest.Session, report: dict[str, Any]) -> None:
        """Fail a session that cannot write one of its outputs."""
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        report["session"]["exit_status"] = int(session.exitstatus)

    def _count_unreported(self, session: pytest.Session, exitstatus: int) -> int:
        """Return how many items were never reported: xdist ends with status 0 when a worker meets an internal error."""
        if self.link is None or not self.link.cases or session.shouldfail or session.shouldstop:
            return 0
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            return 0
        reported = {nodeid for nodeid, outcome in self.others.items() if outcome in _WORST_LAST}
        return max(0, session.testscollected - len(self.rows.keys() | reported))

    def _ended_early(self, exitstatus: int) -> bool:
        """Return whether Ctrl-C or a signal ended the session before it could report any of the runs that it began."""
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED or exitstatus > 128
        return interrupted and not self.rows and self.journal is not None

    def _decide_gate(self, rows: Sequence[Mapping[str, Any]], failures: Sequence[str]) -> Gate:
        from pytest_agentbench.reports.gate import apply_gate, count_gated

        idle = self.sharding is not None and self.sharding.is_empty
        fail_under = None if idle else self.settings.fail_under  # there is nothing to decide
        counts, compared = count_gated(rows), self.baseline is not None
        return apply_gate(counts, fail_under, self.settings.min_completion, failures, compared=compared)

    def _fails_without_effect(self, rows: Sequence[Mapping[str, Any]], cases: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether runs failed, and all of them are of quarantined cases or of cases that pass by their rate."""
        from pytest_agentbench.reports.gate import fails_in_quarantine, list_outvoted

        bad = [row for row in rows if row["outcome"] in ("failed", "error") and not fails_in_quarantine(row)]
        if not bad:
            return any(map(fails_in_quarantine, rows))
        return len(list_outvoted(bad, cases)) == len(bad)

    def _compare_baseline(self, report: dict[str, Any]) -> list[str]:
        """Compare with the baseline, if there is one. Return sentences on why the comparison fails the gate."""
        if self.baseline is None:
            return []
        from pytest_agentbench.reports.comparison.campaigns import build_campaign
        from pytest_agentbench.reports.comparison.comparing import compare

        compared = {**report, "runs": [row for row in report["runs"] if row.get("policy") != "quarantined"]}
        comparison = compare(
            self.baseline, build_campaign(compared), self.settings.max_regressions, self.settings.min_completion
        )
        report["comparison"] = comparison.as_dict()
        return comparison.failures

    def _list_faults(self, exitstatus: int) -> list[str]:
        """Return problems outside of cases, which fail a session with a gate at any pass rate."""
        crashes = self.link.unplaced if self.link is not None else []
        broken = sum(outcome in ("failed", "error") for outcome in self.others.values()) - len(crashes)
        uncollected = self.case_file_errors + self.other_collection_errors
        stopped = self.session.shouldfail or self.session.shouldstop or self._stop_reason
        cancelled = self.not_run[CANCELLED]
        faults = []
        if uncollected:
            faults.append(f"{count_text(uncollected, 'collection error')}.")
        if broken == 1:
            faults.append("1 test that is no case failed.")
        elif broken > 1:
            faults.append(f"{broken} tests that are not cases failed.")
        faults += [f"{crash}." for crash in crashes]
        if stopped:
            faults.append(f"The session stopped early: {stopped}.")
        if cancelled:
            faults.append(f"{count_text(cancelled, 'run')} {CANCELLED}.")
        if self.lost:
            faults.append(f"{self.lost} collected items were never reported.")
        if self._ended_early(exitstatus):
            faults.append("The session was interrupted before any run was reported.")
        return [*faults, *(f"{text}." for text in self._list_unshared())]

    def _sum_limited(self) -> list[dict[str, Any]]:
        """Return for each model how many 429s were waited out, and for how long; workers wait side by side."""
        rows: dict[str, dict[str, Any]] = {}
        limited = [*self.limited]
        if self.link is not None:
            limited += self.link.limited
        for model_id, replies, seconds in limited:
            row = rows.setdefault(model_id, {"model_id": model_id, "replies": 0, "seconds": 0.0})
            row["replies"] += replies
            row["seconds"] = max(row["seconds"], round(seconds, 1))
        return sorted(rows.values(), key=lambda row: str(row["model_id"]))

    def _find_variants(self) -> dict[str, Any]:
        if self.link is None:
            return self.variants
        return self.link.variants

    def _list_unshared(self) -> list[str]:
        """Return sentences on results of this session that are missing in the shared store."""
        if self.link is None:
            return [*self.unshared]
        return [*self.unshared, *self.link.unshared]

    def _decide_exit_status(self, gate: Gate, exitstatus: int) -> int:
        if gate.passed is not None:
            if gate.passed:
                return pytest.ExitCode.OK
            return pytest.ExitCode.TESTS_FAILED
        if self._stop_reason or self.not_run[CANCELLED] or self.lost or self._empty_arms or self._list_unshared():
            return pytest.ExitCode.TESTS_FAILED
        return exitstatus

    @property
    def _stop_reason(self) -> str | None:
        """Return why some runs were not started; None if the reason came after the last start."""
        return "; ".join(reason for reason in self.not_run if reason != CANCELLED) or None

    @cached_property  # looking for a distribution's version takes 3 ms
    def _facts(self) -> dict[str, Any]:
        """Return the facts about the session before its first run."""
        return {
            "started_at": self.started_at.isoformat(),
            "project": self.config.rootpath.name or None,
            "command": [os.fspath(arg) for arg in self.config.invocation_params.args],
            "versions": {
                "pytest-agentbench": version("pytest-agentbench"),
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
            "profiles": {
                "run": self.settings.run_profile,
                "evaluation": self.settings.evaluation_profile,
                "suite": self.settings.suite,
            },
        }

    def _describe_end(self, exitstatus: int) -> dict[str, Any]:
        end = {
            **self._facts,
            "duration_seconds": round(time.perf_counter() - self._begun, 3),
            "exit_status": int(exitstatus),
        }
        if limited := self._sum_limited():
            end["rate_limits"] = limited
        if self.control is not None and self.control.changes:
            end["changes"] = self.control.changes
        warnings = [*self.warnings]
        if self.link is not None:
            warnings += self.link.warnings
        end["warnings"] = [*warnings, *self._list_late_warnings()]
        return end

    def _list_late_warnings(self) -> Iterator[str]:
        """Yield warnings for readers of the figures that are known only at the end."""
        if self.budget is not None:
            yield from self.budget.gaps()
        for reason, count in self.not_run.items():
            runs = "1 run was" if count == 1 else f"{count} runs were"
            yield f"{runs} {reason}" if reason == CANCELLED else f"{reason}; {runs} not started"
        for row in self._sum_limited():
            limits = count_text(row["replies"], "rate limit")
            yield f"{row['model_id']}: waited for {limits} (status 429), {row['seconds']:g} s in all"
        if self.lost:
            yield f"{self.lost} collected items were never reported"
        if any("reruns" in row for row in self.rows.values()):
            from pytest_agentbench.reports.reruns import describe_reruns

            yield from describe_reruns(self.rows.values())
        if self.policy is not None:
            yield from self.policy.list_warnings(self.rows.values(), self.config)
        if any(row.get("end_reason") == "empty" or {"adapted", "run_on"} & row.keys() for row in self.rows.values()):
            from pytest_agentbench.reports.ends import end_warnings

            yield from end_warnings(self.rows.values())
        if any("judge_votes" in row for row in self.rows.values()):
            from pytest_agentbench.reports.judges import family_warnings

            yield from family_warnings(self.rows.values())
        yield from self._list_unshared()


def _severity(outcome: str) -> int:
    """Return the rank of an outcome, the worst last; outcomes of other plugins (`rerun`, `retried`) have none."""
    if outcome in _WORST_LAST:
        return _WORST_LAST.index(outcome)
    return -1


def _has_line(entry: Any) -> bool:
    """Return whether pytest can show a traceback's entry: in CPython 3.11 the jump back to a loop's head has no line.

    Its number is None, or -1 in the first versions of 3.11; pytest counts from 0.
    """
    try:
        return isinstance(entry.lineno, int) and entry.lineno >= 0
    except TypeError:  # pytest subtracts 1 from it
        return False
