from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import QueryRow, RaceCriteria, ReportRow
from pytest_agentbench.packs.research.rows import (
    GoodRow,
    Joined,
    LostRow,
    language_of,
    mark_repeated,
    prompt_key,
    read_research_rows,
)

REPORT = {"id": 1, "prompt": "Why?", "article": "Because."}


@pytest.fixture
def read(tmp_path):
    def rows(*lines, record=ReportRow):
        path = tmp_path / "rows.jsonl"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_bytes("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))
        return list(read_research_rows(path, record))

    return rows


def lost(rows) -> list[str]:
    return [row.message.split("rows.jsonl:", 1)[1] for row in rows if isinstance(row, LostRow)]


@pytest.mark.parametrize("row_id", [1, "1", "01", "a b", 0, -3, ""])
def test_ids_stay_as_the_file_has_them(read, row_id):
    [row] = read({**REPORT, "id": row_id})
    assert (row.value.id, type(row.value.id)) == (row_id, type(row_id))


@pytest.mark.parametrize("row_id", [True, 1.0, None, [1]])
def test_other_ids_are_lost(read, row_id):
    [row] = read({**REPORT, "id": row_id})
    assert isinstance(row, LostRow)


def test_a_bad_row_takes_no_other_down_and_keeps_its_line(read):
    rows = read(REPORT, "", "{cut", {**REPORT, "article": 3}, "[1]", '"text"', {**REPORT, "id": 2})
    assert [(row.line, isinstance(row, GoodRow)) for row in rows] == [
        (1, True),
        (3, False),
        (4, False),
        (5, False),
        (6, False),
        (7, True),
    ]
    assert [text.split(" ", 1)[0] for text in lost(rows)] == ["3:2:", "4:40:", "5:1:", "6:1:"]


def test_every_problem_of_a_row_is_reported_with_its_column(read):
    metrics = {"automation_level": 1.5, "token_usage": {"input_tokens": -1}, "total_duration_seconds": "long"}
    [message] = lost(read({"id": 1, "prompt": "Why?", "language": "fr", "execution_metrics": metrics}))
    assert {line.split(" ")[1].rstrip(":") for line in message.splitlines()} == {
        "article",
        "language",
        "execution_metrics.automation_level",
        "execution_metrics.total_duration_seconds",
        "execution_metrics.token_usage.input_tokens",
    }


def test_missing_metrics_are_none_and_further_fields_are_kept(read):
    [row] = read({**REPORT, "execution_metrics": {"word_count": 3, "gpu": "a"}, "note": "mine"})
    metrics = row.value.execution_metrics
    assert (metrics.word_count, metrics.automation_level, metrics.token_usage.total_cost_usd) == (3, None, None)
    assert row.data["note"] == "mine"


def test_criteria_need_known_dimensions_and_weights_that_are_not_negative(read):
    row = {
        "id": 1,
        "prompt": "p",
        "dimension_weight": {"style": 1},
        "criterions": {"insight": [{"criterion": "a", "weight": -1}]},
    }
    [message] = lost(read(row, record=RaceCriteria))
    assert "dimension_weight.style" in message
    assert "criterions.insight[0].weight" in message


def test_half_of_a_surrogate_pair_stays_unchanged(read):
    [row] = read('{"id": 1, "prompt": "\\ud800?", "article": "x"}')
    assert len(prompt_key(row.value.prompt)) == 64


@pytest.mark.slow
@given(st.text(max_size=60))
def test_prompts_are_joined_despite_different_blanks_and_unicode_forms(prompt):
    words = prompt.split()
    assert prompt_key(prompt) == prompt_key("\n  " + " \t".join(words) + " ") if words else True
    assert prompt_key(prompt) == prompt_key(unicodedata.normalize("NFD", unicodedata.normalize("NFC", prompt)))


@pytest.mark.slow
@given(st.text("abc中 ", max_size=12), st.text("abc中 ", max_size=12))
def test_prompts_that_differ_in_a_letter_are_not_joined(first, second):
    assert (prompt_key(first) == prompt_key(second)) == (first.split() == second.split())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("12 % !?", "en"),
        ("中国GDP", "zh"),
        ("请比较 BERT 与 GPT 的差异", "zh"),
        ("What does 内卷 mean?", "en"),
        ("ﾆﾎﾝ", "en"),
    ],
)
def test_languages(text, language):
    assert language_of(text) == language


def query(line: int, row_id, prompt: str) -> tuple[int, QueryRow]:
    return line, QueryRow(id=row_id, prompt=prompt)


def test_partners_are_found_by_prompt_and_checked_by_id(tmp_path):
    joined = Joined(tmp_path / "q.jsonl", [query(1, 1, "Why?"), query(2, "2", "How?")])
    assert joined.partner(QueryRow(id="1", prompt=" Why? ")).id == 1
    assert joined.partner(QueryRow(id=2, prompt="How？")).id == "2"
    with pytest.raises(ConfigError, match="found no row with the prompt of 3"):
        joined.partner(QueryRow(id=3, prompt="Who?"))
    with pytest.raises(ConfigError, match=r"q.jsonl:2:1: id: found '2' for the prompt that has the id 1 elsewhere"):
        joined.partner(QueryRow(id=1, prompt="How?"))


def test_repeated_rows_are_reported_and_the_first_one_counts(tmp_path):
    rows = [query(1, 1, "Why?"), query(2, 9, "Why ?"), query(3, 5, "Why?"), query(4, "1", "How?")]
    joined = Joined(tmp_path / "q.jsonl", rows)
    assert [problem.split("q.jsonl:", 1)[1] for problem in joined.problems] == [
        "3:1: prompt: repeats line 1",
        "4:1: id: found '1' again, first on line 1",
    ]
    assert joined.partner(QueryRow(id=1, prompt="Why?")).id == 1
    assert len(joined) == 3


def test_repeated_rows_on_one_line_are_reported(tmp_path):
    path = tmp_path / "reports.json"
    path.write_text(json.dumps([{"id": n, "prompt": p, "article": ""} for n, p in [(1, "a"), (2, "a"), (1, "b")]]))
    first, *others = mark_repeated(path, read_research_rows(path, ReportRow))
    assert isinstance(first, GoodRow)
    assert [row.message.split("json:")[1] for row in others] == [
        "1:1: prompt: repeats line 1, expected one row",
        "1:1: id: found 1 again, first on line 1",
    ]
    assert len(Joined(path, [query(1, 1, "a"), query(1, 2, "a"), query(1, 1, "b")]).problems) == 2
