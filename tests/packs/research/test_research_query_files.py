"""Files of proposed queries, whichever way they are written."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.query_files import (
    ALIASES,
    ProposedQuery,
    as_cell,
    copy_former,
    from_cell,
    hashed_id,
    keep_ids,
    read_queries,
)
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, prompt_key
from pytest_agentbench.packs.research.select_queries import (
    QUERY_DIMENSIONS,
    csv_rows,
    scored_query,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1).filter(str.strip)
GBK = st.text("中国的茶叶市场有多大，值得研究吗？abc 123,\"'", min_size=4).filter(
    lambda text: text.strip() and any(character in "中国的茶叶市场" for character in text)
)


def queries(content: bytes, suffix: str = ".csv", told: list[str] | None = None) -> list[GoodRow | LostRow]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"queries{suffix}")
        path.write_bytes(content)
        return list(read_queries(path, [].append if told is None else told.append))


def table(header: list[str], rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows([header, *rows])
    return text.getvalue()


@pytest.mark.slow
@given(
    rows=st.lists(st.tuples(st.integers(0, 10**9), TEXT, TEXT), min_size=1),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
    delimiter=st.sampled_from(",;\t"),
    names=st.tuples(*(st.sampled_from(ALIASES[field]) for field in ("id", "title", "prompt"))),
    upper=st.booleans(),
)
def test_a_table_has_the_same_queries_in_every_format(
    rows: list[tuple[int, str, str]], encoding: str, delimiter: str, names: tuple[str, str, str], upper: bool
) -> None:
    header = [name.upper() if upper else name for name in names]
    cells = [[str(number), title, content] for number, title, content in rows]
    query_rows = queries(table(header, cells, delimiter).encode(encoding))
    assert [(row.value.id, row.value.title, row.value.prompt) for row in query_rows] == [
        (number, title.strip(), prompt.strip()) for number, title, prompt in rows
    ]


@pytest.mark.slow
@given(st.lists(GBK, min_size=1))
def test_chinese_in_gbk(contents: list[str]) -> None:
    told: list[str] = []
    query_rows = queries(table(["内容"], [[content] for content in contents]).encode("gbk"), told=told)
    assert len(told) == 1
    assert ": read as GBK; " in told[0]
    assert [row.value.prompt for row in query_rows] == [content.strip() for content in contents]


@given(st.text("='+-@\t\n中a1", max_size=6))
def test_no_text_is_a_formula_and_each_can_be_read_again(text: str) -> None:
    cell = as_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert from_cell(cell) == text


def test_a_table_with_formulas_is_read_as_it_was_written() -> None:
    texts = ['=HYPERLINK("https://a.example/";"x")', "-2 + 3", "@SUM(A1)", "'quoted'"]
    scored = {each.key: {"score": 4} for each in QUERY_DIMENSIONS}
    rows = [
        scored_query(ProposedQuery(id=text, title=text, prompt=text), {"scores": scored, "overall_score": 4.0})
        for text in texts
    ]
    header, *cells = csv_rows(rows)
    assert [row[1][0] for row in cells] == ["'"] * 4
    query_rows = queries(table(header, cells).encode("utf-8-sig"))
    assert [(row.value.id, row.value.title, row.value.prompt) for row in query_rows] == [(text,) * 3 for text in texts]


@given(st.binary(max_size=200), st.sampled_from([".csv", ".md", ".json", ".jsonl"]))
def test_any_bytes_give_rows_or_one_error(content: bytes, suffix: str) -> None:
    with suppress(ConfigError):
        assert all(isinstance(row, GoodRow | LostRow) for row in queries(content, suffix))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "cp1251", "shift_jis", "big5"])
def test_other_encodings_are_named_not_guessed(encoding: str) -> None:
    text = {
        "cp1251": "Насколько велик рынок чая в Китае? Опишите подробно.",
        "shift_jis": "中国のお茶の市場はどのくらい大きいですか",
        "big5": "中國的茶葉市場有多大請詳細說明",
    }.get(encoding, "Quelle est la taille du marché du thé ? Où, à quel coût, est-ce mûr ?")
    with pytest.raises(ConfigError, match="found neither UTF-8"):
        queries(f"prompt\n{text}\n".encode(encoding))


def test_rows_contain_their_line_and_optional_columns() -> None:
    rows = '"prompt","domain","complexity_level","language","else"\n"a\nb","law","3","en","x"\n\n"c","","","",""\n'
    first, second = queries(rows.encode())
    assert (first.line, second.line) == (2, 5)
    assert (first.value.domain, first.value.complexity_level, first.value.language) == ("law", 3, "en")
    assert (second.value.domain, second.value.complexity_level, second.value.language) == (None, None, None)
    assert second.value.model_extra == {}


def test_json_and_jsonl_have_the_same_queries() -> None:
    rows = [{"query_number": 7, "query_title": "T", "query_content": "tea"}, {"id": "x", "text": "milk"}, 5, {"id": 3}]
    lines = queries("\n".join(map(json.dumps, rows)).encode(), ".jsonl")
    document = queries(json.dumps(rows, indent=1).encode(), ".json")
    for found in (lines, document):
        assert [row.value.prompt for row in found[:2]] == ["tea", "milk"]
        assert [row.value.id for row in found[:2]] == [7, "x"]
        assert all(isinstance(row, LostRow) for row in found[2:])
    assert [row.line for row in lines] == [1, 2, 3, 4]


def test_a_language_that_is_none_is_lost() -> None:
    [row] = queries(b"prompt,language\ntea,French\n")
    assert isinstance(row, LostRow)
    assert ":2:1: language: " in row.message


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ({}, [1, 2, 3]),
        ({"b": "vans"}, [1, "vans", 3]),
        ({"b": 2}, [1, 2, 3]),
        ({"b": 1}, [hashed_id("a"), 1, 3]),
        ({"b": "1"}, [hashed_id("a"), "1", 3]),
        ({"a": 3, "b": 1, "c": 2}, [3, 1, 2]),
        ({"gone": 3}, [1, 2, hashed_id("c")]),
    ],
)
def test_queries_keep_the_ids_that_they_have_elsewhere(ids: dict[str, Any], kept: list[Any]) -> None:
    rows = [GoodRow(at, ProposedQuery(id=at, prompt=prompt), {"id": at}) for at, prompt in enumerate("abc", 1)]
    found = list(keep_ids(iter(rows), {prompt_key(prompt): each for prompt, each in ids.items()}))
    assert [row.value.id for row in found if isinstance(row, GoodRow)] == kept
    assert [(row.data or {})["id"] for row in found] == kept


def test_former_queries_are_copied_once(tmp_path: Path) -> None:
    path = tmp_path / "query.jsonl"
    assert copy_former(path, "new") is None
    path.write_text("one", encoding="utf-8")
    assert copy_former(path, "one") is None
    assert copy_former(path, "two") == tmp_path / "query.jsonl.1"
    assert copy_former(path, "three") is None
    path.write_text("two", encoding="utf-8")
    assert copy_former(path, "one") == tmp_path / "query.jsonl.2"
    assert [(tmp_path / f"query.jsonl.{n}").read_text(encoding="utf-8") for n in (1, 2)] == ["one", "two"]
