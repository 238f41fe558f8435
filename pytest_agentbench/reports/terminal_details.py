"""The summary's parts below the table of models: groups of datasets, repetitions, agreement with people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from operator import itemgetter
from typing import Any

from pytest_agentbench.reports.datasets import FINAL_SCORE
from pytest_agentbench.reports.rows import Report
from pytest_agentbench.reports.table import (
    Column,
    Style,
    Terminal,
    column_of,
    fit_columns,
    format_percent,
    interval_text,
    make_column,
    rate_cell,
    write_row,
    write_titles,
)
from pytest_agentbench.terminal_text import count_text, visible_line

SHOWN = 12
"""Maximum number of groups shown; the weakest if there are more."""

_Line = tuple[dict[str, Any], dict[str, Any]]
"""A dataset's result and one group of its breakdown."""


def write_breakdown(reporter: Terminal, report: Report, style: Style) -> None:
    """Write the groups of all datasets with judged or scored runs."""
    lines = [
        (result, group)
        for result in report["datasets"]
        for group in result["breakdown"]
        if (group["pass_rate"], group["mean_score"]) != (None, None)
    ]
    if not lines:
        return
    # In the report's order where all fit, which people know; weakest first where most are left out
    rows_shown = lines if len(lines) <= SHOWN else sorted(lines, key=_weakness)[:SHOWN]
    reporter.line("")
    reporter.write_line("breakdown", bold=True)
    columns = fit_columns(_columns(rows_shown, report, style), style.width)
    write_titles(reporter, columns)
    for row in range(len(rows_shown)):
        write_row(reporter, columns, row)
    if len(lines) > len(rows_shown):
        reporter.write_line(
            f"  the weakest {len(rows_shown)} of {len(lines)} groups; all: datasets[].breakdown in report.json"
        )


def _weakness(line: _Line) -> tuple[float, float, float]:
    """Return a key by which surely weak groups come first: by the rate alone a lone failed item would."""
    _, group = line
    rate, score = group["pass_rate_ci95"], group["mean_score"]
    upper_end = (rate or (inf, inf))[1]
    return upper_end, inf if score is None else score, -group["items"]


def _columns(lines: list[_Line], report: Report, style: Style) -> list[Column]:
    """Return the columns. Dataset and model have a column if the report has several."""
    minimum, narrow = report["session"]["gate"]["fail_under"], max(10, style.width // 7)
    columns = [
        make_column(title, 2, [style.clip(name(result), narrow) for result, _ in lines], "<")
        for title, name in (("dataset", itemgetter("dataset")), ("model", column_of))
        if len({name(result) for result in report["datasets"]}) > 1
    ]
    groups = [group for _, group in lines]
    columns += [
        make_column("field", 0, [style.clip(group["field"], narrow) for group in groups], "<"),
        make_column("value", 0, [style.clip(group["value"], style.width // 4) for group in groups], "<"),
        make_column("items", 3, [_count_items(group) for group in groups]),
        make_column("pass rate", 1, [rate_cell(group["pass_rate"], minimum, style) for group in groups]),
        make_column("95 % CI", 4, [interval_text(group["pass_rate_ci95"], style) for group in groups]),
    ]
    if any(group["mean_score"] is not None for group in groups):
        columns.append(
            make_column(_scored_by(lines, style), 5, [_format_score(group["mean_score"], style) for group in groups])
        )
    return columns


def _scored_by(lines: list[_Line], style: Style) -> str:
    """Return the name of the metric if it scores all datasets shown, else "score"."""
    names = {result["scored_by"] for result, _ in lines} - {None}
    if len(names) != 1 or FINAL_SCORE in names:
        return "score"
    return style.clip(names.pop(), 16)


def _count_items(group: dict[str, Any]) -> str:
    """Return the number of items, and the number of judged ones if it differs."""
    items, judged = group["items"], group["judged"]
    if judged == items:
        return str(items)
    return f"{judged} of {items}"


def _format_score(value: float | None, style: Style) -> str:
    if value is None:
        return style.dash
    return f"{value:.2f}"


def write_human(reporter: Terminal, report: Report, style: Style) -> None:
    """Write two lines for each judge with labelled runs, and the number of omitted labels."""
    human = report.get("human")
    if human is None:
        return
    reporter.line("")
    reporter.write_line(f"agreement with people ({visible_line(human['file'])})", bold=True)
    for judge in human["judges"]:
        for line in _human_lines(judge, style):
            reporter.write_line(f"  {line}")
    if (between := human["between_annotators"]) is not None:
        alpha = _format_score(between["alpha_verdicts"], style)
        reporter.write_line(
            f"  between annotators: Krippendorff's alpha {alpha} over {count_text(between['runs'], 'run')}"
        )
    if not_blind := human.get("not_blind"):
        verb = "was" if not_blind == 1 else "were"
        reporter.write_line(f"  {count_text(not_blind, 'label')} {verb} given on the page, with the verdict in sight")
    if (note := _left_out(human["left_out"])) is not None:
        reporter.write_line(f"  {note}", yellow=True)


def _human_lines(judge: Mapping[str, Any], style: Style) -> list[str]:
    name = judge["by"]
    if judge["models"]:
        name += f" ({', '.join(judge['models'])})"
    name = visible_line(name)
    if not judge["n"]:
        return [f"{name}: no run has a label that counts; agentbench review asks for them"]
    same = judge["both_passed"] + judge["both_failed"]
    rates = {who: format_percent(rate) for who, rate in judge["pass_rate"].items()}
    return [
        f"{name}: same verdict on {same} of {count_text(judge['n'], 'run')} ({format_percent(judge['agreement'])}), "
        f"kappa {_format_score(judge['kappa'], style)}{_format_interval(judge['kappa_ci95'])}",
        f"  people pass {rates['people']}, the judge {rates['judge']}{_describe_scores(judge['scores'], style)}",
    ]


def _describe_scores(scores: Mapping[str, Any] | None, style: Style) -> str:
    if scores is None:
        return ""
    kappa = _format_score(scores["weighted_kappa"], style)
    return f"; scores of {count_text(scores['n'], 'run')}: weighted kappa {kappa}"


def _left_out(counts: Mapping[str, int]) -> str | None:
    reasons = {
        "other_run": "of runs that are not in this report",
        "other_judge": "for another judge",
        "other_rubric": "for another rubric",
        "superseded": "that a later one replaces",
    }
    notes = [f"{counts[name]} {reason}" for name, reason in reasons.items() if counts[name]]
    if notes:
        return f"labels left out: {', '.join(notes)}"
    return None


def _format_interval(interval: list[float] | None) -> str:
    if interval is None:
        return ""
    return f" (95 % CI {interval[0]:.2f} to {interval[1]:.2f})"


_NAME_WIDTH = 32


def write_reliability(reporter: Terminal, report: Report, style: Style) -> None:
    """Write a line for each model with repeated cases, and for each judge that voted several times on a run."""
    _write(reporter, "repetitions", [line for model in report["models"] if (line := _repetition_line(model, style))])
    judges = report.get("judges", [])
    lines = [_vote_line(judge, style) for judge in judges if judge["repeated"]]
    _write(reporter, "judges", [*lines, *_panel_lines(judges, style)])


def _write(reporter: Terminal, title: str, lines: list[str]) -> None:
    if lines:
        reporter.line("")
        reporter.write_line(title, bold=True)
        for line in lines:
            reporter.write_line(f"  {line}")


def _repetition_line(model: Any, style: Style) -> str | None:
    if model.get("flaky_cases") is None:
        return None
    most = max(model["pass_at_k"], key=int)
    parts = []
    if most != "1":
        parts.append(f"pass@{most} {model['pass_at_k'][most]:.2f}, pass^{most} {model['pass_hat_k'][most]:.2f}")
    parts.append(f"{count_text(model['flaky_cases'], 'case')} passed and failed")
    return f"{style.clip(column_of(model), _NAME_WIDTH)}: {'; '.join(parts)}"


def _vote_line(judge: Any, style: Style) -> str:
    parts = [f"alpha {_format_score(judge['alpha'], style)}"]
    if judge["cv_percent"] is not None:
        parts.append(f"CV {judge['cv_percent']:.1f} %")
    if judge["agreement"] is not None:
        parts.append(f"{format_percent(judge['agreement'])} of pairs agree")
    if (swap := judge["order_swap"]) is not None:
        parts += [f"{swap['changed']:,} of {swap['pairs']:,} pairs change with the order"]
    name = style.clip(f"{judge['model']} ({judge['judge']})", _NAME_WIDTH)
    return f"{name}: {', '.join(parts)}; several votes on {count_text(judge['repeated'], 'run')}"


def _panel_lines(judges: list[Any], style: Style) -> Iterator[str]:
    """Yield a line for each profile whose judges scored the same runs."""
    panels: set[str | None] = set()
    for judge in judges:
        # A panel's figures are the same for each of its judges: shown once.
        if (panel := judge["between"]) is not None and judge["profile"] not in panels:
            panels.add(judge["profile"])
            alpha = _format_score(panel["alpha"], style)
            yield f"between {len(panel['judges'])} judges: alpha {alpha} over {count_text(panel['runs'], 'run')}"
