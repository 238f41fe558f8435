"""What a dry run prints: a row for each model, and what the figures come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_agentbench.engine import Expected, Forecast
from pytest_agentbench.reports import text
from pytest_agentbench.reports.table import Style, Terminal, column, fit, style_of, write_row, write_titles


def write_forecast(reporter: Terminal, forecasts: Sequence[Forecast]) -> None:
    """Write the `agentbench: dry run` section. Costs are expected ones; `-` is unknown."""
    style = style_of(reporter)
    reporter.write_sep("=", "agentbench: dry run", cyan=True)
    columns = fit(
        [
            column("model", 0, [style.clip(each.model_id, max(16, style.width // 4)) for each in forecasts], "<"),
            *(
                column(title, 1, [str(getattr(each, name)) for each in forecasts])
                for title, name in (("runs", "runs"), ("reused", "reused"), ("to run", "to_run"))
            ),
            column("to judge", 3, [str(each.to_judge) for each in forecasts]),
            column("tokens", 4, [_amount(each.tokens, text.count, style) for each in forecasts]),
            column("run cost", 2, [_amount(each.run_usd, text.money, style) for each in forecasts]),
            column("judge cost", 2, [_amount(each.judge_usd, text.money, style) for each in forecasts]),
        ],
        style.width,
    )
    write_titles(reporter, columns)
    for row, forecast in enumerate(forecasts):
        write_row(reporter, columns, row)
        if note := _note(forecast):
            reporter.write_line(f"  {note}", light=True)
    reporter.write_line("nothing was run or paid; tokens and costs are means of what is in the store")


def _amount(expected: Expected, shown: Callable[[float], str], style: Style) -> str:
    if expected.unknown and not expected.known:
        return style.dash
    return (style.at_least if expected.unknown else "") + shown(expected.known)


def _note(forecast: Forecast) -> str:
    if not forecast.new:
        return ""
    what = f"{forecast.new} of {forecast.to_run} runs are of cases that never ran on this model"
    unknown = forecast.run_usd.unknown == forecast.to_run and forecast.new == forecast.to_run
    return f"{what}: what they take is unknown" if unknown else f"{what}: its mean stands in"
