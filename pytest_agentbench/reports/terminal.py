"""The summary at the end of a session, by pytest's own terminal writer: coloured on a terminal, else plain ASCII."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import as_alike
from pytest_agentbench.reports.gate import CaseKey, case_key, fails_in_quarantine, list_outvoted
from pytest_agentbench.reports.rows import Report
from pytest_agentbench.reports.sections import sections_in
from pytest_agentbench.reports.table import (
    Column,
    Segment,
    Style,
    Terminal,
    bar_cell,
    column_of,
    cost_text,
    count_cells,
    ends_line,
    fit_columns,
    format_seconds,
    grading_line,
    interval_text,
    judged_text,
    make_column,
    model_marks,
    model_name,
    pad_cells,
    rate_cell,
    skipped_lines,
    style_of,
    subject_title,
    tokens_text,
    totals_lines,
    write_row,
    write_titles,
)
from pytest_agentbench.terminal_text import count_text, visible_line

LISTED = 5
"""How many of the slowest runs, of the worst cases and of the quarantined failures are named."""
_NAME_WIDTH = 16
_SHORTEST = 0.01


def write_summary(terminalreporter: Terminal, report: Report, written: Mapping[str, Path] | None = None) -> None:
    """Write the `agentbench` section: models, datasets, slowest runs, worst cases, totals, gate, written files.

    `-q` omits the lists. `-qq` and `--no-summary` omit everything but a failed gate, and, for a session without a run,
    its warnings.
    """
    style = style_of(terminalreporter)
    # A session whose files could not be read has no run, but reasons that nobody else prints
    silent = terminalreporter.no_summary or not report["runs"]
    quiet = 2 if silent else -terminalreporter.verbosity
    if quiet < 2:
        terminalreporter.write_sep("=", "agentbench", cyan=True)
        _write_models(terminalreporter, report, style)
        if quiet < 1:
            _write_details(terminalreporter, report, style)
            _write_slowest(terminalreporter, report, style)
            _write_worst(terminalreporter, report, style)
            terminalreporter.line("")
        for line in totals_lines(report["totals"], style):
            terminalreporter.write_line(line)
        for line in skipped_lines(report["runs"]):
            terminalreporter.write_line(line, yellow=True)
        quarantined = [run for run in report["runs"] if fails_in_quarantine(run)]
        for line in _excused_lines(quarantined, "failed in quarantine and did not count"):
            terminalreporter.write_line(line, yellow=True)
        outvoted = list_outvoted(report["runs"], report["cases"])
        for line in _excused_lines(outvoted, "failed, and the case passes by the rate of its runs"):
            terminalreporter.write_line(line, yellow=True)
        if note := grading_line(report["runs"]):
            terminalreporter.write_line(note, light=True)
        if "comparison" in report:
            from pytest_agentbench.reports.comparison.wording import write_comparison

            write_comparison(terminalreporter, report["comparison"])
        if compared := report.get("column_comparisons"):
            from pytest_agentbench.reports.comparison.wording import columns_title, write_compared

            terminalreporter.write_line(visible_line(columns_title(report)), bold=True)
            write_compared(terminalreporter, compared)
    if quiet < 2 or not report["runs"]:
        for warning in report["session"]["warnings"]:
            terminalreporter.write_line(f"warning: {visible_line(warning)}", yellow=True)
        for fault in _list_other_faults(report["session"]):
            terminalreporter.write_line(visible_line(fault), red=True)
    _write_gate(terminalreporter, report["session"]["gate"], only_failure=quiet >= 2)
    if quiet < 2:
        _write_files(terminalreporter, written or {})
        if any(row["outcome"] in ("failed", "error") for row in report["runs"]):
            terminalreporter.write_line(_describe_show(written or {}), light=True)


def _excused_lines(runs: Sequence[Mapping[str, Any]], reason: str) -> list[str]:
    """Return the number and the first names of failed runs that do not fail the session, with the reason."""
    names = [visible_line(run["nodeid"]) for run in runs]
    if not names:
        return []
    lines = [f"{count_text(len(names), 'run')} {reason}:"]
    lines += [f"  {name}" for name in names[:LISTED]]
    more = len(names) - LISTED
    return lines + [f"  and {more} more"] * (more > 0)


def _describe_show(written: Mapping[str, Path]) -> str:
    """Return the command that prints a run's conversation."""
    path = written.get("report")
    option = ""
    if path is not None and path.absolute() != Path("outputs/report.json").absolute():
        option = f" --report {shlex.quote(str(path))}"
    return f"a run with its conversation: agentbench show NODEID{visible_line(option)}"


def write_verdict(reporter: Terminal, report: Report, written: Mapping[str, Path]) -> None:
    """Write the session's verdict before output that takes long to print."""
    reporter.write_sep("=", "agentbench", cyan=True)
    for line in totals_lines(report["totals"], style_of(reporter)):
        reporter.write_line(line)
    _write_gate(reporter, report["session"]["gate"], only_failure=False)
    reporter.write_line(f"exit status {report['session']['exit_status']}")
    _write_files(reporter, written)


def _write_files(reporter: Terminal, written: Mapping[str, Path]) -> None:
    for what, path in written.items():
        reporter.write_line(f"{what}: {visible_line(str(path))}")


def _write_details(reporter: Terminal, report: Report, style: Style) -> None:
    """Write skills, groups of datasets, packs' sections, repetitions, judges, and the agreement with people."""
    if any(model.get("skills") for model in report["models"]):
        from pytest_agentbench.reports.skills import skill_lines

        reporter.line("")
        reporter.write_line("skills", bold=True)
        for line in skill_lines(report["models"]):
            reporter.write_line(f"  {line}")
    repeated = any(model.get("flaky_cases") is not None for model in report["models"])
    if not (repeated or report["datasets"] or report.get("judges") or report.get("human")):
        _write_sections(reporter, report, style)
        return
    from pytest_agentbench.reports.terminal_details import write_breakdown, write_human, write_reliability

    write_breakdown(reporter, report, style)
    _write_sections(reporter, report, style)
    write_reliability(reporter, report, style)
    write_human(reporter, report, style)


def _list_other_faults(session: Any) -> list[str]:
    """Return problems outside the cases that neither the gate nor a warning mentions."""
    sentences = [*session["gate"]["reasons"], *(warning.partition(";")[0] for warning in session["warnings"])]
    return [
        fault
        for fault in session.get("faults") or ()
        if not any(sentence and sentence in fault for sentence in sentences)
    ]


def _write_models(reporter: Terminal, report: Report, style: Style) -> None:
    models = report["models"]
    columns = fit_columns(_columns(report, style), style.width)
    write_titles(reporter, columns)
    for row, model in enumerate(models):
        write_row(reporter, columns, row)
        if marks := model_marks(model):
            reporter.write_line(f"  {'; '.join(marks)}", yellow=model["scripted"], light=not model["scripted"])
        if line := ends_line(model.get("ends") or {}):
            reporter.write_line(f"  {line}", light=True)
        if adapted := model.get("adapted"):
            reporter.write_line(f"  its endpoint wanted: {visible_line(', '.join(adapted))}", light=True)


def _write_sections(reporter: Terminal, report: Report, style: Style) -> None:
    """Write the summary of each pack's section for each model."""
    for key, section in sections_in(report["models"]).items():
        models = [(column_of(model), model[key]) for model in report["models"] if model.get(key) is not None]
        if (summary := section.summary(models, style.dash)) is None:
            continue
        title, lines = summary
        reporter.line("")
        reporter.write_line(visible_line(title), bold=True)
        for name, line in lines.items():
            reporter.write_line(f"  {style.clip(name, _NAME_WIDTH)}: {visible_line(line)}")


def _columns(report: Report, style: Style) -> list[Column]:
    models, minimum = report["models"], report["session"]["gate"]["fail_under"]
    columns: list[Column] = []

    def add(title: str, rank: int, cell: Callable[[Any], str | list[Segment]], align: str = ">") -> None:
        columns.append(make_column(title, rank, map(cell, models), align))

    name_width = max(_NAME_WIDTH, style.width // 4)
    add(subject_title(models), 0, lambda model: style.clip(model_name(model), name_width), "<")
    add("runs", 2, lambda model: str(model["runs"]))
    if any(model["errors"] for model in models):
        add("errors", 3, lambda model: [(str(model["errors"]), {"yellow": model["errors"] > 0})])
    if any(model["skipped"] for model in models):
        add("skipped", 9, lambda model: str(model["skipped"]))
    add("pass rate", 1, lambda model: rate_cell(model["pass_rate"], minimum, style))
    if style.fancy:
        add("", 8, lambda model: bar_cell(model["pass_rate"], minimum), "<")
    add("95 % CI", 5, lambda model: interval_text(model["pass_rate_ci95"], style))
    _add_scores(add, models, style)
    add("cost", 4, lambda model: cost_text(model, style))
    add("tokens", 7, lambda model: tokens_text(model, style))
    add("time/run", 6, lambda model: format_seconds(model["duration_seconds"]["mean"], style.dash))
    return columns


def _add_scores(add: Callable[..., None], models: Sequence[Any], style: Style) -> None:
    """Add the mean score if any run has one, else the means of up to two metrics."""

    def shown(value: float | None) -> str:
        if value is None:
            return style.dash
        return f"{value:.2f}"

    if any(model["mean_score"] is not None for model in models):
        add("score", 4, lambda model: shown(model["mean_score"]))
        if any(" of " in judged_text(model) for model in models):
            add("judged", 6, lambda model: judged_text(model) or style.dash)
        return
    names = list(dict.fromkeys(name for model in models for name in model["metrics"]))
    # Two, for more would push cost and tokens off a terminal of 80 cells
    for name in names[:2]:
        add(style.clip(name, _NAME_WIDTH), 8, lambda model, key=name: shown(model["metrics"].get(key)))


def _write_slowest(reporter: Terminal, report: Report, style: Style) -> None:
    timed = [
        run for run in report["runs"] if (run["duration_seconds"] or 0) >= _SHORTEST and run["outcome"] != "skipped"
    ]
    if len(timed) < 2:  # one alone is neither slow nor fast
        return
    reporter.line("")
    reporter.write_line("slowest runs", bold=True)
    for run in heapq.nlargest(LISTED, timed, key=lambda run: run["duration_seconds"]):
        name = f"{run['case_id']} [{column_of(run)}]"
        if run["repetition"] > 1:
            name += f" repetition {run['repetition']}"
        reporter.write(f"{format_seconds(run['duration_seconds']):>9}  ")
        reporter.line(style.clip(name, style.width - 12))


def _write_worst(reporter: Terminal, report: Report, style: Style) -> None:
    """Write the failed cases, lowest pass rate and score first, then each kind of infrastructure error once."""
    bad = [case for case in report["cases"] if case["failed"] or case["errors"]]
    if not bad:
        return
    bad, more_alike = _folded_cases(report, bad)

    def badness(case: Any) -> tuple[float, float]:
        rate, score = case["pass_rate"], case["mean_score"]
        # 2 is above any rate: cases that only infrastructure failed come last
        return (2.0 if rate is None else rate, float("inf") if score is None else score)

    worst = heapq.nsmallest(LISTED, bad, key=badness)
    messages = _messages(report, set(map(_key_of_case, worst)))
    reporter.line("")
    title = "worst cases"
    if len(bad) > len(worst):
        title += f" ({len(worst)} of {len(bad)})"
    reporter.write_line(title, bold=True)
    names = [style.clip(f"{case['case_id']} [{column_of(case)}]", style.width // 2) for case in worst]
    width = max(map(count_cells, names))
    for case, name in zip(worst, names, strict=True):
        ran = case["repetitions"] - case["skipped"]
        if not case["failed"]:
            outcome = "error"
        elif ran == 1:
            outcome = "failed"
        else:
            outcome = f"{case['passed']} of {ran}"
        message = messages.get(_key_of_case(case), "").partition("\n")[0]
        if alike := more_alike.get(_key_of_case(case)):
            message = f"(and {alike} more) {message}"
        reporter.write(f"{outcome:>9}", red=bool(case["failed"]), yellow=not case["failed"])
        reporter.line(f"  {pad_cells(name, width)}  {style.clip(message, style.width - width - 14)}".rstrip())


def _folded_cases(report: Report, bad: list[Any]) -> tuple[list[Any], dict[Any, int]]:
    """Return cases and the number of further cases with the same error: equal errors are shown once."""
    errors = [case for case in bad if not case["failed"]]
    messages = _messages(report, set(map(_key_of_case, errors)))
    cases: list[Any] = []
    first: dict[tuple[str, str], Any] = {}
    more: dict[Any, int] = {}
    for case in bad:
        place = _key_of_case(case)
        if case["failed"] or place not in messages:
            cases.append(case)
        elif (key := (column_of(case), as_alike(messages[place]))) in first:
            more[first[key]] = more.get(first[key], 0) + 1
        else:
            first[key] = place
            cases.append(case)
    return cases, more


def _key_of_case(case: Any) -> tuple[CaseKey, str]:
    """Return the key of an entry of `cases[]`, equal to that of its runs. Reports older than `case` have "" in it."""
    return (case.get("case", ""), case["case_id"]), column_of(case)


def _messages(report: Report, keys: set[tuple[CaseKey, str]]) -> dict[tuple[CaseKey, str], str]:
    """Return the message of the first run of each case that did not pass."""
    messages: dict[tuple[CaseKey, str], str] = {}
    for run in report["runs"]:
        key = case_key(run), column_of(run)
        if key in keys and run["outcome"] in ("failed", "error") and run["message"]:
            messages.setdefault(key, run["message"])
    return messages


def _write_gate(reporter: Terminal, gate: Any, *, only_failure: bool) -> None:
    if gate["passed"] is None or (gate["passed"] and only_failure):
        return
    if gate["passed"]:
        rate = _format_share(gate["pass_rate"], gate["fail_under"])
        completion = _format_share(gate["completion"], gate["min_completion"])
        reporter.write_line(f"gate passed: pass rate {rate}, completion {completion}", green=True)
        return
    reporter.write_line("gate failed:", red=True, bold=True)
    for reason in gate["reasons"]:
        reporter.write_line(f"  {visible_line(reason)}", red=True)


def _format_share(share: float | None, minimum: float | None) -> str:
    """Return a share with its minimum; in other people's reports either may be missing."""
    text = "unknown" if share is None else f"{share:.3f}"
    if minimum is None:
        return text
    return f"{text} (wanted {minimum:g})"
