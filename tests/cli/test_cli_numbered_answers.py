"""The meaning of numbers that answer multiple-choice questions is decided from all rows."""

from __future__ import annotations

import pytest

from pytest_agentbench.cli.numbered_answers import decide_numbering

WORDS, DIGITS = ["x", "y", "z"], ["1", "2", "4"]


@pytest.mark.parametrize(
    ("rows", "answer_is"),
    [
        ([(0, WORDS), (2, WORDS)], "index"),
        ([(1, DIGITS), (2, DIGITS)], "index"),  # in range, so an index, whatever the texts are
        ([(1, DIGITS), (4, DIGITS)], "text"),
        ([(1, DIGITS), (3, DIGITS)], "index1"),  # 3 is neither an index from 0 nor a text
        ([(1, WORDS), (3, WORDS)], "index1"),
        ([("0", WORDS), ("2", WORDS)], "index"),
        ([("1", DIGITS), ("2", DIGITS)], "text"),  # in quotes a text comes first
        ([("1", DIGITS), (2, DIGITS)], "index"),
        ([(None, WORDS), (1, None), (2, WORDS)], "index"),
        ([(0, WORDS), (3, WORDS)], None),
        ([(0, WORDS), (7, WORDS)], None),
        ([(1, WORDS), ("A", WORDS)], None),
        ([(True, WORDS)], None),
        ([(1.0, WORDS)], None),
        ([(-1, WORDS)], None),
        ([("9" * 5000, WORDS)], None),
        ([], None),
    ],
)
def test_all_rows_decide(rows, answer_is):
    numbering = decide_numbering(rows)
    assert (None if numbering is None else numbering.answer_is) == answer_is
