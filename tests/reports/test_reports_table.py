from __future__ import annotations

from pytest_agentbench.reports.table import line_up

ROWS = [("judge", "USD"), ("gpt", "0.1234"), ("评判", "?")]


def test_a_plain_table_has_its_first_column_left_and_the_others_right():
    assert list(line_up(ROWS)) == ["judge     USD", "gpt    0.1234", "评判        ?"]


def test_columns_are_as_wide_as_asked_and_as_far_apart():
    assert list(line_up(ROWS, least=(7, 2), gap=1)) == ["judge      USD", "gpt     0.1234", "评判         ?"]
    assert list(line_up(ROWS[:1], least=(7,), gap=3)) == ["judge     USD"]
