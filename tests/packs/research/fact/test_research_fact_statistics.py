from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.fact.citations import Counts, compute_statistics, format_result
from pytest_agentbench.packs.research.fact.rows import FactRow, count_row

FEW = st.integers(0, 5)
COUNTS = st.builds(Counts, supported=FEW, unsupported=FEW, unknown=FEW, words=st.none() | st.integers(0, 3000))


@given(st.lists(COUNTS), FEW)
def test_what_is_counted_adds_up(counts: list[Counts], failed: int) -> None:
    found = compute_statistics(counts, failed)
    cited = [each for each in counts if each.supported + each.unsupported + each.unknown]
    known = sum(each.supported + each.unsupported for each in counts)
    assert found.n_total == found.n_scored + found.n_failed == len(counts) + failed
    assert found.n_with_citations == len(cited)
    assert found.supported + found.unsupported == known
    assert found.valid_rate == (found.supported / known if known else None)
    if cited:
        assert found.total_citations == pytest.approx(float(Fraction(known, len(cited))))
        assert found.total_valid_citations == pytest.approx(float(Fraction(found.supported, len(cited))))
    else:
        assert found.total_citations is found.total_valid_citations is found.macro_accuracy is None


def test_by_hand() -> None:
    reports = [
        Counts(3, 1, 2, 1000, 1),
        Counts(0, 2, 0, 500),
        Counts(0, 0, 4, 2000),
        Counts(words=100),
        Counts(words=0),
    ]
    assert format_result(compute_statistics(reports, 2)) == (
        "total_citations: 2.0\n"  # (4 + 2 + 0) / 3
        "total_valid_citations: 1.0\n"  # (3 + 0 + 0) / 3
        "valid_rate: 0.5\n"  # 3 / 6
        "macro_accuracy: 0.375\n"  # (3/4 + 0) / 2
        "total_citations_all: 1.2\n"  # 6 / 5
        "total_valid_citations_all: 0.6\n"
        "supported_per_1000_words: 0.75\n"  # (3 + 0 + 0 + 0) / 4
        "supported: 3\nunsupported: 3\nunknown: 6\nwithout_url: 1\n"
        "n_total: 7\nn_scored: 5\nn_failed: 2\nn_with_citations: 3\n"
    )


@pytest.mark.parametrize("counts", [[], [Counts(words=10)]])
def test_without_a_citation_nothing_is_invented(counts: list[Counts]) -> None:
    text = format_result(compute_statistics(counts), compat=True)
    assert text == "total_citations: null\ntotal_valid_citations: null\nvalid_rate: null\n"


def row(*results: Any, facts: int = 2, **extra: Any) -> FactRow:
    page = {"facts": ["It is so."] * facts, "url_content": "A page.", "validate_res": [*results], **extra}
    return FactRow.model_validate(
        {"id": 1, "prompt": "Is it?", "article": "It is so.", "citations_deduped": {"u": page}}
    )


def test_labels_are_read_however_they_are_written() -> None:
    found = count_row(row({"idx": 1, "result": " Supported"}, {"idx": "2", "result": "UNKNOWN"}))
    assert found == Counts(supported=1, unknown=1, words=3)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (row({"idx": 0, "result": "supported"}), "found 1, 1 of them different, expected one for each of its 2 facts"),
        (row(*[{"idx": 0, "result": "supported"}] * 2), "found 2, 1 of them different"),
        (row(validate_error="timed out"), "u: validate_error: timed out"),
        (FactRow(id=1, prompt="?", article="", validate_error="no reply"), "failed in validate: no reply"),
        (FactRow(id=1, prompt="?", article="", extract_error="cut"), "failed in extract: cut"),
        (FactRow(id=1, prompt="?", article=""), "citations_deduped: missing"),
    ],
)
def test_a_row_that_is_not_compared_is_not_counted(broken: FactRow, reason: str) -> None:
    with pytest.raises(Unscored, match=reason):
        count_row(broken)


@pytest.mark.parametrize("said", ["maybe", "", None, "supported!", 1])
def test_other_labels_are_errors(said: Any) -> None:
    with pytest.raises(ValueError, match="'supported', 'unsupported' or 'unknown'"):
        row({"idx": 0, "result": said}, {"idx": 1, "result": "supported"})
