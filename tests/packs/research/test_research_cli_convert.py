from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

QUERY = {"id": 1, "prompt": "Which port grew most?", "language": "en"}
NO_RUN = {
    "total_duration_seconds": None,
    "token_usage": {"input_tokens": None, "output_tokens": None, "total_cost_usd": None},
    "automation_level": None,
    "tool_calls_count": None,
}


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


@pytest.fixture
def convert(capsys, tmp_path, monkeypatch):
    """Runs the command in an empty folder: exit status, printed rows, lines on stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str):
        code = main(["research", "convert", *args])
        printed = capsys.readouterr()
        lines = [line.replace(f"{tmp_path}/", "") for line in printed.err.splitlines()]
        return code, [json.loads(line) for line in printed.out.splitlines()], lines

    return call


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def test_queries_become_rows_with_the_topic_of_their_section(convert):
    write(
        "raw_query.md",
        '### **Ports**\n\n#### **Query 3: A * title**\n\n"Which "big" port grew?"\na note\n\n* * * *\n'
        "### 医疗\n#### **Query** **1: 医保**\r\n\r\n“哪些药品在目录中？”\n",
    )
    code, written_files, _ = convert("raw_query.md")
    assert code == 0
    assert written_files == [
        {"id": 3, "topic": "Ports", "language": "en", "prompt": 'Which "big" port grew?'},
        {"id": 1, "topic": "医疗", "language": "zh", "prompt": "哪些药品在目录中？"},
    ]


def test_empty_or_repeated_queries_are_reported_and_left_out(convert):
    write(
        "q.md",
        "#### **Query 1: a**\nOne?\n#### **Query 2: b**\n\n#### **Query 1: c**\nTwo?\n#### **Query 4: d**\nOne?\n",
    )
    code, written_files, errors = convert("q.md")
    assert code == 1
    assert [row["id"] for row in written_files] == [1]
    assert errors == [
        "q.md:3:1: content: query 2 has none; write it below its heading, in quotes",
        "q.md:5:1: found the number 1 of line 1 again, expected a different one",
        "q.md:7:1: found the content of line 1 again, expected a different one",
    ]


def test_a_report_is_joined_by_the_id_in_its_files_name(convert):
    write("query.jsonl", json.dumps(QUERY))
    write("reports/1-gpt-4o.md", "Busan 增长[1][2] twice[1].\n")
    code, written_files, errors = convert("reports", "--query_file", "query.jsonl")
    assert (code, errors) == (0, [])
    assert written_files == [
        {
            "id": 1,
            "prompt": QUERY["prompt"],
            "article": "Busan 增长[1][2] twice[1].\n",
            "execution_metrics": {**NO_RUN, "sources_used": 2, "citation_count": 3, "word_count": 4},
        }
    ]


def test_reports_go_to_a_file_for_each_model_in_the_order_of_their_numbers(convert):
    write("query.jsonl", "".join(json.dumps({"id": n, "prompt": f"Query {n}?"}) + "\n" for n in (1, 2, 10)))
    for name in ("10-gpt", "2-gpt", "1-claude"):
        write(f"reports/{name}.md", name)
    write("reports/2.md", "no model")
    code, written_files, errors = convert("reports", "--query-file", "query.jsonl", "--output-dir", "raw")
    assert (code, written_files) == (0, [])
    assert sorted(errors) == ["raw/claude.jsonl: 1 row", "raw/gpt.jsonl: 2 rows", "raw/reports.jsonl: 1 row"]
    assert [(row["id"], row["article"]) for row in rows("raw/gpt.jsonl")] == [(2, "2-gpt"), (10, "10-gpt")]


def test_the_longest_id_counts(convert):
    write("query.jsonl", '{"id": "a", "prompt": "A?"}\n{"id": "a-b", "prompt": "B?"}\n')
    write("a-b-gpt.md", "Text")
    assert convert("a-b-gpt.md", "--query-file", "query.jsonl")[1][0]["prompt"] == "B?"


def test_front_matter_names_the_query(convert):
    write("r/one.md", "---\nid: 7\nprompt: Why?\nmodel: claude\ntags: [x]\n---\n\nBecause.\n")
    code, [row], _ = convert("r/one.md")
    assert (code, row["id"], row["prompt"], row["article"]) == (0, 7, "Why?", "Because.\n")
    convert("r/one.md", "--output-dir", "out")
    assert rows("out/claude.jsonl") == [row]


@pytest.mark.parametrize("model", ["../../gpt", "/etc/gpt", "openai/gpt", "..", "a\\\\b"])
def test_a_models_name_cannot_lead_elsewhere(convert, tmp_path, model):
    write("in/one.md", f'---\nid: 7\nprompt: Why?\nmodel: "{model}"\n---\nBecause.\n')
    code, _, [errors] = convert("in/one.md", "--output-dir", "in/out")
    assert code == 1
    assert "in/one.md:1:1: model: found" in errors
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == []


def test_front_matter_has_to_agree_with_the_query_file(convert):
    write("query.jsonl", json.dumps(QUERY))
    write("one.md", "---\nid: 1\nprompt: Another?\n---\nText\n")
    write("two.md", "---\nprompt: Which  port grew most?\n---\nText\n")
    write("three.md", "---\nid: 9\n---\nText\n")
    write("four.md", "---\nid: [\n---\nText\n")
    code, written_files, errors = convert("one.md", "two.md", "three.md", "four.md", "--query-file", "query.jsonl")
    assert (code, [row["id"] for row in written_files]) == (1, [1])
    assert errors[:2] == [
        "one.md:1:1: prompt: found another one than query.jsonl has for the id 1",
        "query.jsonl: found no rows with the id 9, expected one",
    ]
    assert errors[2].startswith("four.md:2:5: not valid YAML: '[' begins here")


def test_rules_at_the_beginning_are_no_front_matter(convert):
    write("query.jsonl", json.dumps(QUERY))
    write("1.md", "---\nA summary\n---\nText\n")
    assert convert("1.md", "--query-file", "query.jsonl")[1][0]["article"] == "---\nA summary\n---\nText\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("2-gpt.md", "Text", "2-gpt.md:1:1: found no id of query.jsonl at the beginning of the file's name"),
        ("1.md", " \n", "1.md:1:1: found no text, expected a report"),
        ("5.md", "Text", "query.jsonl: found 2 rows with the id '5', expected one"),
    ],
)
def test_a_report_without_a_query_or_text_is_no_row(convert, name, text, said):
    write(
        "query.jsonl", "\n".join(json.dumps(row) for row in (QUERY, {"id": 5, "prompt": "a"}, {"id": 5, "prompt": "b"}))
    )
    write(name, text)
    code, written_files, lines = convert(name, "--query-file", "query.jsonl")
    assert (code, written_files) == (1, [])
    assert lines[0].startswith(said)


def test_a_report_without_any_query_is_no_row(convert):
    write("1-gpt.md", "Text")
    code, written_files, [errors] = convert("1-gpt.md")
    assert (code, written_files) == (1, [])
    assert "found no known query; name a --query_file" in errors


def test_a_second_report_of_one_query_and_model_is_an_error(convert):
    write("query.jsonl", json.dumps(QUERY))
    write("a/1-gpt.md", "First")
    write("b/1-gpt.md", "Second")
    code, written_files, [errors] = convert("a", "b", "--query-file", "query.jsonl")
    assert (code, [row["article"] for row in written_files]) == (1, ["First"])
    assert errors == "b/1-gpt.md:1:1: found the id 1 of a/1-gpt.md again, expected a different one"


def test_an_unreadable_file_does_not_stop_the_conversion_of_others(convert):
    write("query.jsonl", json.dumps(QUERY) + "\n{bad\n")
    write("1-a.md", "Text")
    Path("1-b.md").write_bytes(b"\xff\xfe")
    Path("empty").mkdir()
    code, written_files, errors = convert("1-a.md", "1-b.md", "empty", "--query-file", "query.jsonl")
    assert (code, len(written_files)) == (1, 1)
    assert errors == [
        "1-b.md:1:1: found text that is not UTF-8 (byte 0); save it as UTF-8",
        "empty: found no file *.md",
        "query.jsonl:2:2: not valid JSON: expecting property name enclosed in double quotes",
    ]


def test_paths_that_do_not_exist_are_errors(convert):
    assert convert("nowhere.md")[::2] == (1, ["nowhere.md: there is no such file or folder"])
