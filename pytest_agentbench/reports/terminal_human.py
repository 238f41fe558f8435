"""How far judges agree with people, at the end of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_agentbench.reports import text
from pytest_agentbench.reports.report import Report
from pytest_agentbench.reports.table import Style, Terminal, percent


def write_human(reporter: Terminal, report: Report, style: Style) -> None:
    """Two lines for each judge that people have labelled runs of, and what is left out; nothing without labels."""
    human = report.get("human")
    if human is None:
        return
    reporter.line("")
    reporter.write_line(f"agreement with people ({text.visible(human['file'])})", bold=True)
    for judge in human["judges"]:
        for line in _lines(judge, style):
            reporter.write_line(f"  {line}")
    if (between := human["between_annotators"]) is not None:
        alpha = _number(between["alpha_verdicts"], style)
        reporter.write_line(f"  between annotators: Krippendorff's alpha {alpha} over {_runs(between['runs'])}")
    if (left := _left_out(human["left_out"])) is not None:
        reporter.write_line(f"  {left}", yellow=True)


def _lines(judge: Mapping[str, Any], style: Style) -> list[str]:
    name = judge["by"] + (f" ({', '.join(judge['models'])})" if judge["models"] else "")
    name = text.visible(name)
    if not judge["n"]:
        return [f"{name}: no run has a label that counts; agentbench review asks for them"]
    same = judge["both_passed"] + judge["both_failed"]
    rates = {who: percent(rate) for who, rate in judge["pass_rate"].items()}
    return [
        f"{name}: same verdict on {same} of {_runs(judge['n'])} ({percent(judge['agreement'])}), "
        f"kappa {_number(judge['kappa'], style)}{_interval(judge['kappa_ci95'], style)}",
        f"  people pass {rates['people']}, the judge {rates['judge']}{_scores(judge['scores'], style)}",
    ]


def _scores(scores: Mapping[str, Any] | None, style: Style) -> str:
    if scores is None:
        return ""
    return f"; scores of {_runs(scores['n'])}: weighted kappa {_number(scores['weighted_kappa'], style)}"


def _left_out(counts: Mapping[str, int]) -> str | None:
    reasons = {
        "other_run": "of runs that are not in this report",
        "other_judge": "for another judge",
        "other_rubric": "for another rubric",
        "superseded": "that a later one replaces",
    }
    told = [f"{counts[name]} {reason}" for name, reason in reasons.items() if counts[name]]
    return f"labels left out: {', '.join(told)}" if told else None


def _number(value: float | None, style: Style) -> str:
    return style.dash if value is None else f"{value:.2f}"


def _interval(interval: list[float] | None, style: Style) -> str:
    return "" if interval is None else f" (95 % CI {interval[0]:.2f} to {interval[1]:.2f})"


def _runs(n: int) -> str:
    return f"{n} run{'' if n == 1 else 's'}"
