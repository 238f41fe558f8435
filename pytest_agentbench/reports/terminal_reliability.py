"""The summary's lines on repetitions: how reliable models are over runs of a case, and judges over votes on a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_agentbench.reports.report import Report
from pytest_agentbench.reports.table import Style, Terminal, percent

_NAME_WIDTH = 32


def write_reliability(reporter: Terminal, report: Report, style: Style) -> None:
    """A line for each model whose cases all have several verdicts, and for each judge that voted several times."""
    _write(reporter, "repetitions", [line for model in report["models"] if (line := _repetitions(model, style))])
    judges = report.get("judges", [])
    lines = [_votes(judge, style) for judge in judges if judge["repeated"]]
    _write(reporter, "judges", [*lines, *_panels(judges, style)])


def _write(reporter: Terminal, title: str, lines: list[str]) -> None:
    if lines:
        reporter.line("")
        reporter.write_line(title, bold=True)
        for line in lines:
            reporter.write_line(f"  {line}")


def _repetitions(model: Any, style: Style) -> str | None:
    if model.get("flaky_cases") is None:
        return None
    most = max(model["pass_at_k"], key=int)
    parts = [f"pass@{most} {model['pass_at_k'][most]:.2f}, pass^{most} {model['pass_hat_k'][most]:.2f}"]
    parts = parts if most != "1" else []
    flaky = model["flaky_cases"]
    parts += [f"{flaky} case{'' if flaky == 1 else 's'} passed and failed"]
    return f"{style.clip(model['model_id'], _NAME_WIDTH)}: {'; '.join(parts)}"


def _votes(judge: Any, style: Style) -> str:
    runs = f"{judge['repeated']:,} run{'' if judge['repeated'] == 1 else 's'}"
    parts = [f"alpha {_shown(judge['alpha'], '.2f', style)}"]
    parts += [f"CV {judge['cv_percent']:.1f} %"] if judge["cv_percent"] is not None else []
    parts += [f"{percent(judge['agreement'])} of pairs agree"] if judge["agreement"] is not None else []
    if (swap := judge["order_swap"]) is not None:
        parts += [f"{swap['changed']:,} of {swap['pairs']:,} pairs change with the order"]
    return f"{_name(judge, style)}: {', '.join(parts)}; several votes on {runs}"


def _panels(judges: list[Any], style: Style) -> Iterator[str]:
    """A line for each profile whose judges scored the same runs, by the first of these."""
    told: set[str | None] = set()
    for judge in judges:
        if (panel := judge["between"]) is not None and judge["profile"] not in told:
            told.add(judge["profile"])
            runs = f"{panel['runs']:,} run{'' if panel['runs'] == 1 else 's'}"
            yield f"between {len(panel['judges'])} judges: alpha {_shown(panel['alpha'], '.2f', style)} over {runs}"


def _name(judge: Any, style: Style) -> str:
    return style.clip(f"{judge['model']} ({judge['judge']})", _NAME_WIDTH)


def _shown(value: float | None, form: str, style: Style) -> str:
    return style.dash if value is None else format(value, form)
