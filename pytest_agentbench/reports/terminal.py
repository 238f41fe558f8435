"""The summary at the end of a session, by pytest's own terminal writer: coloured on a terminal, else plain ASCII."""

from __future__ import annotations

import heapq
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_agentbench.reports import text
from pytest_agentbench.reports.report import Report

Markup = dict[str, bool]

LISTED = 5
"""How many of the slowest runs and of the worst cases are named."""
BAR = 10
GOOD, FAIR = 0.8, 0.5
"""Pass rates from which a bar is green and yellow where no gate says what is wanted."""
MARKS = {"scripted": "scripted, not a model", "own_agent": "your own agent"}
_NAME_WIDTH = 16
_SHORTEST = 0.01


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


Segment = tuple[str, Markup]


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
        return max(text.cells(self.title), *(sum(text.cells(part) for part, _ in row) for row in self.rows))


def write_summary(terminalreporter: pytest.TerminalReporter, report: Report, path: str | None = None) -> None:
    """Write the `agentbench` section: models, slowest runs, worst cases, totals, gate, where report.json lies.

    `-q` leaves out the lists, `-qq` and `--no-summary` all but a gate that failed; a session without a run has that
    and its warnings.
    """
    columns = shutil.get_terminal_size().columns
    style = Style(
        width=columns if columns >= 40 else 80,
        fancy=terminalreporter.hasmarkup and text.unicode_safe(sys.stdout.encoding),
    )
    silent = terminalreporter.no_summary or not report["runs"]
    quiet = 2 if silent else -terminalreporter.verbosity
    if quiet < 2:
        terminalreporter.write_sep("=", "agentbench", cyan=True)
        _write_models(terminalreporter, report, style)
        if quiet < 1:
            _write_slowest(terminalreporter, report, style)
            _write_worst(terminalreporter, report, style)
            terminalreporter.line("")
        for line in _totals(report["totals"], style):
            terminalreporter.write_line(line)
    if quiet < 2 or not report["runs"]:
        for warning in report["session"]["warnings"]:
            terminalreporter.write_line(f"warning: {text.visible(warning)}", yellow=True)
    _write_gate(terminalreporter, report["session"]["gate"], only_failure=quiet >= 2)
    if path is not None and quiet < 2:
        terminalreporter.write_line(f"report: {text.visible(path)}")


def _write_models(reporter: pytest.TerminalReporter, report: Report, style: Style) -> None:
    models = report["models"]
    columns = _fit(_columns(report, style), style.width)
    for at, title in enumerate(columns):
        _write_cell(reporter, title, [(title.title, {"bold": True})], last=at == len(columns) - 1)
    reporter.line("")
    for row, model in enumerate(models):
        for at, column in enumerate(columns):
            _write_cell(reporter, column, column.rows[row], last=at == len(columns) - 1)
        reporter.line("")
        marks = [mark for name, mark in MARKS.items() if model[name]]
        marks += [f"{model['reused']} of {model['runs']} runs reused"] if model["reused"] else []
        if marks:
            reporter.write_line(f"  {'; '.join(marks)}", yellow=model["scripted"], light=not model["scripted"])


def _write_cell(reporter: pytest.TerminalReporter, column: Column, row: list[Segment], *, last: bool) -> None:
    blanks = " " * (column.width - sum(text.cells(part) for part, _ in row))
    if column.align == ">":
        reporter.write(blanks)
    for part, markup in row:
        reporter.write(part, **markup)
    if not last:
        reporter.write((blanks if column.align == "<" else "") + "  ")


def _columns(report: Report, style: Style) -> list[Column]:
    models, wanted = report["models"], report["session"]["gate"]["fail_under"]
    columns: list[Column] = []

    def add(title: str, rank: int, cell: Callable[[Any], str | list[Segment]], align: str = ">") -> None:
        made = (cell(model) for model in models)
        columns.append(Column(title, rank, align, [[(row, {})] if isinstance(row, str) else row for row in made]))

    def name(model: Any) -> str:
        label = "" if model["label"] in (None, model["model_id"]) else f" ({model['label']})"
        return style.clip(model["model_id"] + label, max(_NAME_WIDTH, style.width // 4))

    add("agent" if all(model["own_agent"] for model in models) else "model", 0, name, "<")
    add("runs", 2, lambda model: str(model["runs"]))
    if any(model["errors"] for model in models):
        add("errors", 3, lambda model: [(str(model["errors"]), {"yellow": model["errors"] > 0})])
    if any(model["skipped"] for model in models):
        add("skipped", 9, lambda model: str(model["skipped"]))
    add("pass rate", 1, lambda model: _rate(model["pass_rate"], wanted, style))
    if style.fancy:
        add("", 8, lambda model: _bar(model["pass_rate"], wanted), "<")
    add("95 % CI", 5, lambda model: _interval(model["pass_rate_ci95"], style))
    _add_scores(add, models, style)
    add("cost", 4, lambda model: _cost(model, style))
    add("tokens", 7, lambda model: _tokens(model, style))
    add("time/run", 6, lambda model: text.seconds(model["duration_seconds"]["mean"], style.dash))
    return columns


def _add_scores(add: Callable[..., None], models: Sequence[Any], style: Style) -> None:
    """The mean score where something was scored, else up to two metrics' means."""

    def shown(value: float | None) -> str:
        return style.dash if value is None else f"{value:.2f}"

    if any(model["mean_score"] is not None for model in models):
        add("score", 4, lambda model: shown(model["mean_score"]))
        return
    names = list(dict.fromkeys(name for model in models for name in model["metrics"]))
    for name in names[:2]:
        add(style.clip(name, _NAME_WIDTH), 8, lambda model, key=name: shown(model["metrics"].get(key)))


def _fit(columns: list[Column], width: int) -> list[Column]:
    """The columns that fit into `width` cells, two apart; the model's name and the pass rate always stay."""
    while sum(column.width + 2 for column in columns) - 2 > width and len(columns) > 2:
        columns = [column for column in columns if column is not max(columns, key=lambda column: column.rank)]
    return columns


def _colour(rate: float, wanted: float | None) -> Markup:
    if wanted is not None:
        return {"green" if rate >= wanted else "red": True}
    return {"green" if rate >= GOOD else "yellow" if rate >= FAIR else "red": True}


def _rate(rate: float | None, wanted: float | None, style: Style) -> list[Segment]:
    return [(style.dash, {})] if rate is None else [(_percent(rate), {"bold": True, **_colour(rate, wanted)})]


def _percent(fraction: float) -> str:
    """One decimal; 100.0 % and 0.0 % only where it is exactly that."""
    rounded = round(fraction * 100, 1)
    if 0 < fraction < 1:
        rounded = min(99.9, max(0.1, rounded))
    return f"{rounded:.1f} %"


def _bar(rate: float | None, wanted: float | None) -> list[Segment]:
    if rate is None:
        return [("", {})]
    halves = round(rate * BAR * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return [(filled, _colour(rate, wanted)), ("━" * (BAR - len(filled)), {"light": True})]


def _interval(interval: Sequence[float] | None, style: Style) -> str:
    return style.dash if interval is None else f"{interval[0] * 100:.0f}{style.dash}{interval[1] * 100:.0f}"


def _cost(entry: Any, style: Style) -> str:
    """Run and judge together; at least that where some of it is unknown."""
    known = [value for value in entry["at_least"]["cost_usd"].values() if value is not None]
    exact = None not in entry["cost_usd"].values()
    if not exact and not any(known):
        return style.dash
    return ("" if exact else style.at_least) + text.money(sum(known))


def _tokens(model: Any, style: Style) -> str:
    """Input and output together; at least that where some of it is unknown."""
    known = [model["at_least"]["tokens"][part] for part in ("input", "output")]
    if known == [None, None]:
        return style.dash
    exact = None not in (model["tokens"]["input"], model["tokens"]["output"])
    return ("" if exact else style.at_least) + text.count(sum(value or 0 for value in known))


def _write_slowest(reporter: pytest.TerminalReporter, report: Report, style: Style) -> None:
    timed = [
        run for run in report["runs"] if (run["duration_seconds"] or 0) >= _SHORTEST and run["outcome"] != "skipped"
    ]
    if len(timed) < 2:
        return
    reporter.line("")
    reporter.write_line("slowest runs", bold=True)
    for run in heapq.nlargest(LISTED, timed, key=lambda run: run["duration_seconds"]):
        repetition = f" repetition {run['repetition']}" if run["repetition"] > 1 else ""
        reporter.write(f"{text.seconds(run['duration_seconds']):>9}  ")
        reporter.line(style.clip(f"{run['case_id']} [{run['model_id']}]{repetition}", style.width - 12))


def _write_worst(reporter: pytest.TerminalReporter, report: Report, style: Style) -> None:
    """Cases that the agent failed, lowest pass rate first, then lowest score; then those only infrastructure failed."""
    bad = [case for case in report["cases"] if case["failed"] or case["errors"]]
    if not bad:
        return

    def badness(case: Any) -> tuple[float, float]:
        rate, score = case["pass_rate"], case["mean_score"]
        return (2.0 if rate is None else rate, float("inf") if score is None else score)

    worst = heapq.nsmallest(LISTED, bad, key=badness)
    messages = _messages(report, {(case["case_id"], case["model_id"]) for case in worst})
    reporter.line("")
    more = f" ({len(worst)} of {len(bad)})" if len(bad) > len(worst) else ""
    reporter.write_line(f"worst cases{more}", bold=True)
    names = [style.clip(f"{case['case_id']} [{case['model_id']}]", style.width // 2) for case in worst]
    width = max(map(text.cells, names))
    for case, name in zip(worst, names, strict=True):
        ran = case["repetitions"] - case["skipped"]
        came = "error" if not case["failed"] else "failed" if ran == 1 else f"{case['passed']} of {ran}"
        message = messages.get((case["case_id"], case["model_id"]), "").partition("\n")[0]
        reporter.write(f"{came:>9}", red=bool(case["failed"]), yellow=not case["failed"])
        reporter.line(f"  {text.pad(name, width)}  {style.clip(message, style.width - width - 14)}".rstrip())


def _messages(report: Report, keys: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The message of the first run of each case that did not pass."""
    found: dict[tuple[str, str], str] = {}
    for run in report["runs"]:
        key = run["case_id"], run["model_id"]
        if key in keys and run["outcome"] in ("failed", "error") and run["message"]:
            found.setdefault(key, run["message"])
    return found


def _totals(totals: Any, style: Style) -> list[str]:
    parts = [f"{totals[name]} {name}" for name in ("passed", "failed", "skipped", "reused") if totals[name]]
    if totals["errors"]:
        parts.append(f"{totals['errors']} error{'s' if totals['errors'] > 1 else ''}")
    line = f"{totals['runs']} run{'s' if totals['runs'] != 1 else ''}: {', '.join(parts)}"
    known, exact = totals["at_least"]["cost_usd"], totals["cost_usd"]
    shown = [
        f"{part} {'' if exact[part] is not None else style.at_least}{text.money(known[part])}"
        for part in known
        if known[part]
    ]
    return [line, f"cost: {', '.join(shown)}"] if shown else [line]


def _write_gate(reporter: pytest.TerminalReporter, gate: Any, *, only_failure: bool) -> None:
    if gate["passed"] is None or (gate["passed"] and only_failure):
        return
    if gate["passed"]:
        rate, wanted, completion = gate["pass_rate"], gate["fail_under"], gate["completion"]
        said = (
            f"pass rate {rate:.3f} (wanted {wanted:g}), completion {completion:.3f} (wanted {gate['min_completion']:g})"
        )
        reporter.write_line(f"gate passed: {said}", green=True)
        return
    reporter.write_line("gate failed:", red=True, bold=True)
    for reason in gate["reasons"]:
        reporter.write_line(f"  {text.visible(reason)}", red=True)
