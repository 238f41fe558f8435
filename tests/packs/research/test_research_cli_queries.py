"""`agentbench research select-queries` and `criteria` from the command line, with a judge on loopback."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.race_judge import RaceJudge

from pytest_agentbench.cli import main

MARKDOWN = """\
### **Finance**

#### **Query 1: Tea *and* coffee**

"How big is the "tea" market, worth 5?"

A note.

#### **Query** **2: 茶叶**

“中国的茶叶市场有多大？worth 4”

### **Other**

#### **Query 3: Water**

How wet is water, worth 3?
"""
HEADER = [
    "排名",
    "Query编号",
    "Query标题",
    "总分",
    "A. 决策颠覆性",
    "B. 分析复杂性",
    "C. 行动导向性",
    "D. 风险/收益规模",
]
HEADER += ["E. 时效敏感性", "F. 专业壁垒", "G. 可验证性", "Query内容"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("query_analysis").mkdir()
    Path("query_analysis/raw_query.md").write_text(MARKDOWN, encoding="utf-8")
    return tmp_path


def select(*options: str) -> int:
    return main(["research", "select-queries", *options])


def criteria(*options: str) -> int:
    return main(["research", "criteria", *options])


def read(path: Path | str) -> list[dict[str, Any]]:
    text = Path(path).read_text(encoding="utf-8")
    return json.loads(text) if str(path).endswith(".json") else [json.loads(line) for line in text.splitlines()]


def write(path: str, *rows: dict[str, Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_the_files_of_a_selection(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    target = "data/prompt_data/query.jsonl"
    source = ("--input_file", "query_analysis/raw_query.md", "--output_dir", "query_analysis")
    assert select(*source, "--threshold", "4.0", "--export_selected", "--convert_to_jsonl", target) == 0
    scores = read("query_analysis/query_scores.json")
    assert [each["query_number"] for each in scores] == [1, 2, 3]
    assert list(scores[0])[:4] == ["query_number", "query_title", "query_content", "scoring_result"]
    assert (scores[0]["query_title"], scores[0]["query_content"]) == (
        "Tea *and* coffee",
        'How big is the "tea" market, worth 5?',
    )
    assert [each["scoring_result"]["overall_score"] for each in scores] == [5.0, 4.0, 3.0]
    assert scores[0]["scoring_result"]["scores"]["G. 可验证性"] == {"score": 5, "reason": "Read."}

    content = Path("query_analysis/query_scores.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    table = list(csv.reader(content.decode("utf-8-sig").splitlines()))
    assert table[0] == HEADER
    assert table[1] == ["1", "1", "Tea *and* coffee", "5.0", *["5"] * 7, 'How big is the "tea" market, worth 5?']
    assert [row[1] for row in table] == ["Query编号", "1", "2", "3"]

    first, _ = read("query_analysis/selected_queries.jsonl")
    assert list(first) == ["id", "domain", "complexity_level", "prompt", "query_metadata"]
    assert (first["id"], first["domain"], first["complexity_level"]) == (1, "finance", 3)
    metadata = first["query_metadata"]
    assert (metadata["domain_from"], metadata["complexity_level_from"]) == ("judge", "judge")
    assert (metadata["overall_score"], metadata["query_title"], metadata["topic"]) == (
        5.0,
        "Tea *and* coffee",
        "Finance",
    )
    assert read(target) == [
        {"id": 1, "topic": "Finance", "language": "en", "prompt": 'How big is the "tea" market, worth 5?'},
        {"id": 2, "topic": "Finance", "language": "zh", "prompt": "中国的茶叶市场有多大？worth 4"},
    ]
    out = capsys.readouterr().out
    assert "kept at 4.0: 2 of 3 (chosen)\nkept at 4.5: 1 of 3\n" in out
    tasks = {shown["query"][:3]: shown["task"] for _, shown in judge.shown}
    assert "请评估" in tasks["中国的"]
    assert "Rate what" in tasks["How"]


def test_a_new_threshold_asks_no_model_and_a_new_query_is_asked_about_alone(
    judge: RaceJudge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ("--input_file", "query_analysis/raw_query.md")
    assert select(*source) == 0
    assert not Path("query_analysis/selected_queries.jsonl").exists()
    assert select(*source, "--threshold", "4.5", "--export_selected") == 0
    assert len(judge.requests) == 3
    path = Path("query_analysis/raw_query.md")
    path.write_text(path.read_text() + "\n#### **Query 4: Milk**\n\nHow white is milk, worth 5?\n")
    assert select(*source) == 0
    assert len(judge.requests) == 4

    monkeypatch.delenv("OPENAI_MODEL")
    capsys.readouterr()
    scores = ("--from_scores", "query_analysis/query_scores.json")
    assert select(*scores, "--threshold", "4.5", "--convert_to_jsonl", "query.jsonl", "--export_selected") == 0
    assert [each["id"] for each in read("query.jsonl")] == [1, 4]
    assert [each["id"] for each in read("query_analysis/selected_queries.jsonl")] == [1, 4]
    assert read("query_analysis/selected_queries.jsonl")[0]["domain"] == "finance"
    assert "kept at 4.0: 3 of 4\nkept at 4.5: 2 of 4 (chosen)\n" in capsys.readouterr().out
    Path("config.json").write_text('{"query_selection": {"threshold": 3.5}}')
    assert select(*scores, "--config", "config.json") == 0
    assert "kept at 3.5: 3 of 4 (chosen)" in capsys.readouterr().out


def test_domain_and_level_are_the_querys_own_or_the_judges_or_unknown(judge: RaceJudge) -> None:
    judge.says["select"] = lambda reply, shown, before: {
        name: value for name, value in reply.items() if name not in ("domain", "complexity_level")
    }
    rows = [
        {"id": "a", "prompt": "Tea, worth 5?", "domain": "drinks", "complexity_level": 2, "topic": "Tea"},
        {"id": "b", "prompt": "Coffee, worth 5?"},
    ]
    write("queries.jsonl", *rows)
    assert select("--input_file", "queries.jsonl", "--export_selected", "--convert_to_jsonl", "query.jsonl") == 0
    first, second = read("selected_queries.jsonl")
    assert (first["domain"], first["complexity_level"], first["query_metadata"]["domain_from"]) == (
        "drinks",
        2,
        "query",
    )
    assert (second["domain"], second["complexity_level"], second["query_metadata"]["domain_from"]) == (None, None, None)
    assert [each["topic"] for each in read("query.jsonl")] == ["Tea", None]
    again = ("--from_scores", "query_scores.json", "--output_dir", "again", "--export_selected")
    assert select(*again) == 0
    assert read("again/selected_queries.jsonl") == [first, second]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk"])
@pytest.mark.parametrize("header", ["编号,标题,内容", "Query_ID, subject ,QUERY", "num,题目,问题"])
def test_queries_in_csv(judge: RaceJudge, encoding: str, header: str) -> None:
    text = f'{header}\r\n7,茶叶,"中国的茶叶市场有多大，\n值得研究吗？worth 5"\r\n\r\n9,咖啡,咖啡市场有多大？worth 4\r\n'
    Path("queries.csv").write_bytes(text.encode(encoding))
    assert select("--input_file", "queries.csv") == 0
    first, second = read("query_scores.json")
    assert (first["query_number"], first["query_title"]) == (7, "茶叶")
    assert first["query_content"] == "中国的茶叶市场有多大，\n值得研究吗？worth 5"
    assert second["query_number"] == 9
    assert all(shown["query"].isprintable() or "\n" in shown["query"] for _, shown in judge.shown)


def test_the_table_that_is_written_can_be_read_again(judge: RaceJudge) -> None:
    assert select("--input_file", "query_analysis/raw_query.md") == 0
    assert select("--input_file", "query_analysis/query_scores.csv", "--output_dir", "again") == 0
    assert len(judge.requests) == 3
    names = ("query_number", "query_title", "query_content", "scoring_result")
    first, again = (read(f"{folder}/query_scores.json") for folder in ("query_analysis", "again"))
    assert [[each[name] for name in names] for each in again] == [[each[name] for name in names] for each in first]


def test_ids_of_queries_without_a_number_come_from_their_text(judge: RaceJudge) -> None:
    Path("queries.csv").write_text("prompt\nTea worth 5\nCoffee worth 5\n")
    assert select("--input_file", "queries.csv") == 0
    tea, coffee = (each["query_number"] for each in read("query_scores.json"))
    Path("queries.csv").write_text("prompt\nMilk worth 5\nCoffee worth 5\nTea worth 5\n")
    assert select("--input_file", "queries.csv") == 0
    assert [each["query_number"] for each in read("query_scores.json")][1:] == [coffee, tea]


def test_queries_that_are_lost_are_named_and_counted(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        "id,title,prompt",
        "1,Tea,Tea worth 5",
        "2,Coffee, black,Coffee worth 5",
        "3,Nothing,",
        "1,Milk,Milk worth 5",
        "5,Tea again,Tea  worth 5",
        "6,Water",
        "7,Water,Water worth 4",
    ]
    Path("queries.csv").write_text("\n".join(rows))
    assert select("--input_file", "queries.csv", "--export_selected") == 1
    document = read("query_scores.json")
    errors = [each.get("select_error") for each in document]
    assert errors[0] is None
    assert errors[6] is None
    assert errors[1] == (
        "queries.csv:3:1: found 4 fields, expected the 3 of the header; put texts that contain ',' in double quotes"
    )
    assert errors[2] == "queries.csv:4:1: found None as the query's text, expected a text"
    assert errors[3] == "queries.csv:5:1: id: found 1 again, first on line 2"
    assert errors[4].startswith("queries.csv:6:1: prompt: repeats line 2")
    assert errors[5].startswith("queries.csv:7:1: found 2 fields")
    assert document[3]["query_title"] == "Milk"
    out, err = capsys.readouterr()
    assert out.splitlines()[3].split() == ["select", "7", "2", "5"]
    assert all(error in err for error in errors if error)
    assert [each["id"] for each in read("selected_queries.jsonl")] == [1, 7]

    assert select("--from_scores", "query_scores.json", "--export_selected") == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[3].split() == ["select", "7", "2", "5"]
    assert "id: found 1 again, first on line 2" in err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("q.csv", "título,texto\n".encode("latin-1"), "neither UTF-8"),
        ("q.csv", "résumé".encode("latin-1"), "neither UTF-8"),
        ("q.csv", b"a,b\n1,2\n", "q.csv:1:1: found the header 'a,b', expected a column of the queries' texts"),
        ("q.csv", b'prompt\n"open', "q.csv:2:1: not readable as CSV"),
        ("q.csv", b"prompt,Prompt\na,b\n", "found the column 'prompt' more than once"),
        ("q.csv", b"prompt\n", "q.csv:1:1: found no row"),
        ("q.md", b"# Nothing", "q.md:1:1: found no query"),
        ("q.txt", b"prompt", "found the suffix '.txt', expected one of .md, .csv"),
        ("q.jsonl", b"\xff\xfeq", "found UTF-16"),
    ],
)
def test_files_that_hold_no_queries(
    judge: RaceJudge, name: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    assert select("--input_file", name) == 1
    assert said in capsys.readouterr().err
    assert not Path("query_scores.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda reply: {**reply, "C": {"reason": "x", "score": "4"}}, "score"),
        (lambda reply: {**reply, "C": {"reason": "x", "score": 6}}, "score"),
        (lambda reply: {name: value for name, value in reply.items() if name != "G"}, "G: missing"),
        (lambda reply: {**reply, "complexity_level": 9}, "complexity_level"),
        (lambda reply: json.dumps(reply)[:60], "JSON"),
    ],
)
def test_a_score_that_is_none_is_asked_for_again(judge: RaceJudge, changed: Any, reason: str) -> None:
    judge.says["select"] = lambda reply, shown, before: reply if before else changed(reply)
    assert select("--input_file", "query_analysis/raw_query.md", "--limit", "1") == 0
    assert len(judge.requests) == 2
    assert reason in judge.requests[1].body["messages"][-1]["content"]


def test_stored_scores_that_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    full = {letter_key: {"score": 4, "reason": ""} for letter_key in HEADER[4:-1]}
    lacking = {key: value for key, value in full.items() if not key.startswith("G")}
    texts = {**full, "G. 可验证性": {"score": "4", "reason": ""}}
    rows = [
        {"query_number": n, "query_title": "", "query_content": f"Query {n}", "scoring_result": result}
        for n, result in enumerate(
            [{"scores": full, "overall_score": 4.9}, {"scores": lacking, "overall_score": 4.0}, {"scores": texts}], 1
        )
    ]
    Path("query_scores.json").write_text(json.dumps(rows))
    assert select("--from_scores", "query_scores.json", "--convert_to_jsonl", "query.jsonl") == 1
    out, err = capsys.readouterr()
    assert "overall_score: found 4.9, the seven scores give 4.0" in err
    assert "select: 2: found no score of G. 可验证性, expected all seven dimensions" in err
    assert "scoring_result.scores.G. 可验证性.score" in err
    assert "kept at 4.0: 1 of 1 (chosen)" in out
    assert [each["id"] for each in read("query.jsonl")] == [1]


@pytest.mark.parametrize(
    "options", [(), ("--input_file", "x", "--from_scores", "y"), ("--input_file", "x", "--threshold", "6")]
)
def test_wrong_usage(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        select(*options)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_unwritable_files_are_errors_before_any_request(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    write("data/prompt_data/query.jsonl", {"id": 1, "prompt": "What is tea?"})
    Path("folder").mkdir()
    source = ("--input_file", "query_analysis/raw_query.md")
    for call in (
        lambda: select(*source, "--output_dir", "query_analysis/raw_query.md/results"),
        lambda: select(*source, "--convert_to_jsonl", "query_analysis/raw_query.md/query.jsonl"),
        lambda: select(*source, "--convert_to_jsonl", "folder"),
        lambda: criteria("--output_file", "query_analysis/raw_query.md/criteria.jsonl"),
    ):
        assert call() == 1
        assert re.search("cannot be (written|read): ", capsys.readouterr().err)
    assert judge.requests == []


@pytest.mark.slow
def test_the_same_command_continues_after_ctrl_c(judge: RaceJudge) -> None:
    waiting = threading.Event()

    def choose(message: str, nth: int) -> str:
        if "water" in message and not waiting.is_set():
            waiting.set()
            return "hang"
        return "ok"

    judge.choose = choose
    options = ("--input_file", "query_analysis/raw_query.md", "--max_workers", "1", "--export_selected")
    command = [sys.executable, "-m", "pytest_agentbench.cli", "research", "select-queries", *options]
    environ = {**os.environ, **judge.environ}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert waiting.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "1 not reached" in out
    assert [each["query_number"] for each in read("query_analysis/query_scores.json")] == [1, 2]
    assert select(*options) == 0
    assert len(judge.requests) == 3 + 1
    assert len(read("query_analysis/query_scores.json")) == 3
