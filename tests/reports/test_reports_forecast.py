from __future__ import annotations

import pytest

from pytest_agentbench.records.forecast import Expected, Forecast
from pytest_agentbench.reports.progress import write_forecast


class Paper:
    """A terminal that is a list of lines."""

    hasmarkup, verbosity, no_summary = False, 0, False

    def __init__(self) -> None:
        self.lines = [""]

    def write(self, content, **markup):
        self.lines[-1] += content

    def line(self, msg="", **markup):
        self.lines[-1] += msg
        self.lines.append("")

    def write_line(self, line, **markup):
        self.line(line)

    def write_sep(self, sep, title=None, **markup):
        self.line(f"{sep} {title}")


def written(*forecasts):
    write_forecast(paper := Paper(), forecasts)
    return [line.rstrip() for line in paper.lines if line]


def test_without_a_model_that_runs_there_are_only_titles():
    assert any("model  runs" in line for line in written())


def test_a_row_for_each_model_with_what_is_known(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    known = Forecast("gpt4o", 500, 420, 80, 95, 5, Expected(1_200_000), Expected(1.25), Expected(0.5))
    partly = Forecast("two-roots", 4, 0, 4, 4, 2, Expected(90, 2), Expected(0.5, 2), Expected(0, 4))
    unknown = Forecast("new", 3, 0, 3, 0, 3, Expected(0, 3), Expected(0, 3), Expected())
    assert written(known, partly, unknown) == [
        "= agentbench: dry run",
        "model      runs  reused  to run  to judge  tokens   run cost  judge cost",
        "gpt4o       500     420      80        95    1.2M      $1.25     $0.5000",
        "  5 of 80 runs are of cases that never ran on this model: the model's mean is used",
        "two-roots     4       0       4         4    >=90  >=$0.5000           -",
        "  2 of 4 runs are of cases that never ran on this model: the model's mean is used",
        "new           3       0       3         0       -          -     $0.0000",
        "  3 of 3 runs are of cases that never ran on this model: their tokens and costs are unknown",
        "nothing was run or paid; tokens and costs are means of stored runs",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_keeps_the_counts(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    forecast = Forecast("gpt4o", 500, 420, 80, 95, 0, Expected(1), Expected(1.0), Expected(1.0))
    titles, row, _ = written(forecast)[1:]
    assert titles.startswith("model  runs  reused  to run")
    assert row.split()[:4] == ["gpt4o", "500", "420", "80"]
    assert max(len(titles), len(row)) <= columns
