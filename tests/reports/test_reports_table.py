from __future__ import annotations

import pytest

from pytest_agentbench.reports.table import describe_skipped, line_up, skipped_lines

ROWS = [("judge", "USD"), ("gpt", "0.1234"), ("评判", "?")]


def test_a_plain_table_has_its_first_column_left_and_the_others_right():
    assert list(line_up(ROWS)) == ["judge     USD", "gpt    0.1234", "评判        ?"]


def test_columns_are_as_wide_as_asked_and_as_far_apart():
    assert list(line_up(ROWS, least=(7, 2), gap=1)) == ["judge      USD", "gpt     0.1234", "评判         ?"]
    assert list(line_up(ROWS[:1], least=(7,), gap=3)) == ["judge     USD"]


def row_of(outcome, *checks):
    return {"outcome": outcome, "checks": [{"outcome": each, "message": f"it {each}"} for each in checks]}


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ((), None),
        (("passed", "failed", "error"), None),
        (("skipped",), "1 of 1 check skipped"),
        (("passed", "skipped", "passed", "skipped", "passed"), "2 of 5 checks skipped"),
    ],
)
def test_skipped_checks_are_counted(checks, expected):
    assert describe_skipped(row_of("passed", *checks)) == expected


def test_runs_with_skipped_checks_are_counted_by_outcome_number_and_reason():
    runs = [row_of("passed", "skipped", "passed")] * 3 + [row_of("failed", "skipped", "failed"), row_of("passed")]
    assert skipped_lines(runs) == [
        "3 runs passed, 1 of 2 checks skipped: it skipped",
        "1 run failed, 1 of 2 checks skipped: it skipped",
    ]
    many = [row_of("passed", "skipped", *["passed"] * number) for number in range(7)]
    assert skipped_lines(many)[-1] == "2 more runs with skipped checks"
    assert len(skipped_lines(many)) == 6
    assert skipped_lines(many[:5])[-1] == "1 run passed, 1 of 5 checks skipped: it skipped"


def test_the_reason_of_a_skipped_check_steers_no_terminal():
    row = {"outcome": "passed", "checks": [{"outcome": "skipped", "message": "\x1b[2Jgone"}]}
    assert "\x1b" not in skipped_lines([row])[0]
