"""What FACT's stages do with large, shared and broken files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.research_site import FactJudge, Site

from pytest_agentbench.cli import main

PAGE_TEXT = "It is told at length by everybody who was there. " * 10_000
ROWS = 40


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    return tmp_path


def row(number: int, **fields: Any) -> dict[str, Any]:
    pages = {"http://a.example/": {"facts": ["A."], "url_content": PAGE_TEXT}}
    return {"id": number, "prompt": f"Q {number}?", "article": "A.", "citations_deduped": pages, **fields}


def write(path: str, *rows: Any) -> None:
    Path(path).write_text("".join(f"{json.dumps(each)}\n" for each in rows))


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def fact(*arguments: str) -> int:
    return main(["research", "fact", *arguments])


@pytest.mark.slow
@pytest.mark.parametrize("failed", [False, True])
def test_memory_does_not_grow_with_the_number_of_pages(failed: bool) -> None:
    label = [] if failed else [{"idx": 0, "result": "supported"}]
    page = {"facts": ["A."], "url_content": PAGE_TEXT, "validate_res": label}
    write("validated.jsonl", *(row(number, citations_deduped={"http://a.example/": page}) for number in range(ROWS)))
    fact("stat", "--input_path", "validated.jsonl", "--output_path", "warm.txt")
    tracemalloc.start()
    files = ("--raw_data_path", "validated.jsonl", "--output_path", "scraped.jsonl", "--max_workers", "1")
    assert fact("scrape", *files) == 0
    assert fact("stat", "--input_path", "scraped.jsonl", "--output_path", "fact_result.txt") == int(failed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read("scraped.jsonl")) == ROWS
    assert peak < ROWS / 2 * len(PAGE_TEXT)


def test_rows_are_written_in_their_order_over_the_file_that_they_came_from(judge: FactJudge) -> None:
    rows = [row(number, citations_deduped={}, further="é\ud800") for number in range(12)]
    write("rows.json", rows)
    assert fact("validate", "--raw_data_path", "rows.json", "--output_path", "rows.json") == 0
    assert [each["id"] for each in read("rows.json")] == list(range(12))
    assert read("rows.json")[0]["further"] == "é\ud800"
    assert [path.name for path in Path().iterdir() if path.name != "outputs"] == ["rows.json"]


def test_rows_that_cannot_be_used_are_passed_on_whole(judge: FactJudge) -> None:
    bad, same = row(1, citations_deduped={}, language="xx", further=1), row(0, citations_deduped={}, further=2)
    Path("rows.jsonl").write_text(json.dumps([row(0, citations_deduped={}), bad, same, 7]))
    assert fact("validate", "--raw_data_path", "rows.jsonl", "--output_path", "out.jsonl") == 1
    _, first, second, third = read("out.jsonl")
    assert first.pop("validate_error").startswith("rows.jsonl:1:")
    assert second.pop("validate_error") == "rows.jsonl:1:1: prompt: repeats line 1, expected one row"
    assert (first, second) == (bad, same)
    assert third == {"line": 1, "validate_error": "rows.jsonl:1:1: found a number, expected an object"}


def test_an_unwritable_folder_is_an_error_before_any_request(
    judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write("rows.jsonl", {"id": 1, "prompt": "Q?", "article": "- A."})
    Path("out").write_text("a file")
    assert fact("extract", "--raw_data_path", "rows.jsonl", "--output_path", "out/extracted.jsonl") == 1
    assert "cannot be written" in capsys.readouterr().err
    assert judge.asked == {}


@pytest.mark.slow
def test_two_processes_on_the_same_files_give_the_files_of_one(judge: FactJudge) -> None:
    with Site({f"/{n}": f"Statement {n} holds." for n in range(8)}) as site:
        articles = ["".join(f"- Statement {n} holds. {site.url}/{(n + k) % 8}\n" for n in range(8)) for k in range(6)]
        write("rows.jsonl", *({"id": n, "prompt": f"Q {n}?", "article": text} for n, text in enumerate(articles)))
        command = [sys.executable, "-m", "pytest_agentbench.cli", "research", "fact", "--raw_data_path", "rows.jsonl"]
        command += ["--output_dir", "out", "--allow_private", "127.0.0.1"]
        both = [subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        printed = [process.communicate(timeout=60)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert all("stat" in text for text in printed)
        assert site.asked == {f"/{n}": 1 for n in range(8)}
        before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
        requests = judge.asked.copy()
        assert fact(*command[5:]) == 0
    assert judge.asked == requests
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert len(read("out/validated.jsonl")) == 6


def test_more_money_goes_on_where_it_was_used_up(judge: FactJudge, capsys: pytest.CaptureFixture[str]) -> None:
    prices = "prices: {input_per_1m: 100000, output_per_1m: 0}"  # a USD for each request
    model = f"{{model_id: paid, base_url: '{judge.base_url}', api_key_env: none, {prices}}}"
    Path("models.yaml").write_text(f"schema_version: 1\nmodels:\n  - {model}\n")
    write("rows.jsonl", *({"id": n, "prompt": f"Q {n}?", "article": f"- A{n}."} for n in range(4)))
    files = ("--raw_data_path", "rows.jsonl", "--output_dir", "out", "--max_workers", "1", "--judge", "paid")
    assert fact(*files, "--max_cost", "2") == 1
    printed = capsys.readouterr()
    used_up = "the budget is used up: 2.0000 of 2.0000 USD (--max-cost)"
    assert [line for line in printed.err.splitlines() if line.startswith("extract: ")] == [
        f"extract: {number}: {used_up}" for number in (2, 3)
    ]
    assert [line.split()[1:4] for line in printed.out.splitlines()[1:6]] == [["4", "2", "2"]] * 5
    assert ["extract_error" in each for each in read("out/validated.jsonl")] == [False, False, True, True]
    assert fact(*files, "--max_cost", "2") == 0
    assert judge.asked == {"extract": 4}
    assert "n_failed: 0" in Path("out/fact_result.txt").read_text()
