from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.fact.citations import Counts, compute_statistics, format_result
from pytest_agentbench.packs.research.fact.rows import FactRow, OriginalFactRow, count_row

FEW = st.integers(0, 5)
COUNTS = st.builds(Counts, supported=FEW, unsupported=FEW, unknown=FEW, words=st.none() | st.integers(0, 3000))


@given(st.lists(COUNTS), FEW)
def test_statistics_are_consistent_with_the_counts_of_pages(counts: list[Counts], failed: int) -> None:
    statistics = compute_statistics(counts, failed)
    cited = [each for each in counts if each.supported + each.unsupported + each.unknown]
    known = sum(each.supported + each.unsupported for each in counts)
    assert statistics.n_total == statistics.n_scored + statistics.n_failed == len(counts) + failed
    assert statistics.n_with_citations == len(cited)
    assert statistics.supported + statistics.unsupported == known
    assert statistics.valid_rate == (statistics.supported / known if known else None)
    if cited:
        assert statistics.total_citations == pytest.approx(float(Fraction(known, len(cited))))
        assert statistics.total_valid_citations == pytest.approx(float(Fraction(statistics.supported, len(cited))))
    else:
        assert statistics.total_citations is statistics.total_valid_citations is statistics.macro_accuracy is None


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
    label_counts = count_row(row({"idx": 1, "result": " Supported"}, {"idx": "2", "result": "UNKNOWN"}))
    assert label_counts == Counts(supported=1, unknown=1, words=3)


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


# -- as the original counts -----------------------------------------------------------

GOOD = {"idx": 0, "result": "supported"}
BAD = {"idx": 1, "result": "Unsupported "}


def original(pages: dict[str, Any], **extra: Any) -> Counts:
    return count_row(OriginalFactRow(id=1, prompt="Is it?", article="It is so.", citations_deduped=pages, **extra))


def cited_page(*results: Any, **extra: Any) -> dict[str, Any]:
    return {"facts": ["It is so."] * 2, "url_content": "A page.", "validate_res": [*results], **extra}


@pytest.mark.parametrize("label", ["maybe", "", None, "supported!", 1, ["supported"], {"label": "supported"}])
def test_the_original_skips_labels_that_it_does_not_know(label: Any) -> None:
    label_counts = original({"u": cited_page(GOOD, {"idx": 1, "result": label})})
    assert label_counts == Counts(supported=1, words=3, skipped_labels=1)


def test_the_original_skips_addresses_that_could_not_be_compared() -> None:
    pages = {
        "a": cited_page(GOOD, BAD),
        "b": cited_page(validate_error="timed out"),
        "c": cited_page(GOOD, validate_error=None),
        "d": {"facts": ["It is so."], "validate_error": ""},
    }
    expected = Counts(supported=2, unsupported=1, words=3, skipped_addresses=2)
    assert original(pages) == original(pages, validate_error="2 of 4 pages could not be compared") == expected


def test_the_original_counts_labels_for_any_number_of_statements() -> None:
    assert original({"u": cited_page(GOOD, GOOD, BAD)}) == Counts(supported=2, unsupported=1, words=3)


@pytest.mark.parametrize(
    ("pages", "extra", "reason"),
    [
        ({"u": {"facts": ["It is so."]}}, {}, "validate_res: found none"),
        ({}, {"extract_error": "cut"}, "failed in extract: cut"),
        (None, {"validate_error": "no reply"}, "citations_deduped: missing"),
    ],
)
def test_the_original_needs_labels_too(pages: Any, extra: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unscored, match=reason):
        original(pages, **extra)


def test_a_report_counts_among_those_with_citations_if_all_of_them_are_skipped() -> None:
    counts = [Counts(supported=1, unsupported=1), Counts(skipped_addresses=1), Counts(skipped_labels=1), Counts()]
    statistics = compute_statistics(counts)
    assert (statistics.n_with_citations, statistics.total_citations, statistics.valid_rate) == (3, 2 / 3, 0.5)


def test_stat_with_compat_reports_the_skipped_addresses_and_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {
        "a": cited_page(GOOD, BAD),
        "b": cited_page(validate_error="x"),
        "c": cited_page({"idx": 0, "result": "?"}),
    }
    reply = {"id": 1, "prompt": "Is it?", "article": "It is so.", "citations_deduped": pages}
    source, target = tmp_path / "validated.jsonl", tmp_path / "fact_result.txt"
    source.write_text(json.dumps(reply) + "\n")
    command = ["research", "fact", "stat", "--input_path", str(source), "--output_path", str(target)]
    assert main(command) == 1
    assert "valid_rate: null" in target.read_text()
    assert main([*command, "--compat"]) == 0
    assert target.read_text() == "total_citations: 2.0\ntotal_valid_citations: 1.0\nvalid_rate: 0.5\n"
    assert "1: skipped 1 addresses with a validate_error and 1 labels" in capsys.readouterr().err
