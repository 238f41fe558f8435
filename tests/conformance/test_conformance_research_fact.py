"""FACT on the files that the original wrote: taken up at every stage, with its labels said again by a judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.research_site import FactJudge

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research" / "poet_gpt" / "fact"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")


def row(path: Path) -> dict[str, Any]:
    [line] = path.read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FactJudge]:
    pages = row(DATA / "validated.jsonl")["citations_deduped"].values()
    stored = {
        fact: said["result"] for page in pages for fact, said in zip(page["facts"], page["validate_res"], strict=True)
    }

    def relabelled(reply: dict[str, Any], shown: str) -> dict[str, Any]:
        facts = [json.loads(line) for line in shown.splitlines() if line.startswith('{"idx": ')]
        return {"results": [{"idx": each["idx"], "result": stored[each["fact"]].title()} for each in facts]}

    monkeypatch.chdir(tmp_path)
    with FactJudge(validate=relabelled) as found:
        found.judge_for(monkeypatch)
        yield found


def stage(name: str, source: Path, target: str) -> dict[str, Any]:
    assert main(["research", "fact", name, "--raw_data_path", str(source), "--output_path", target]) == 0
    return row(Path(target))


@pytest.mark.parametrize("compat", [["--compat"], []])
def test_the_statistics_begin_as_the_original_wrote_them(compat: list[str], tmp_path: Path) -> None:
    target = tmp_path / "fact_result.txt"
    files = ["--input_path", str(DATA / "validated.jsonl"), "--output_path", str(target)]
    assert main(["research", "fact", "stat", *files, *compat]) == 0
    expected = (DATA / "fact_result.txt").read_text().splitlines()
    found = target.read_text().splitlines()
    assert found[:3] == expected == ["total_citations: 18.0", "total_valid_citations: 12.0", f"valid_rate: {12 / 18}"]
    assert (found == expected) == bool(compat)


def test_the_report_that_the_original_lost_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, reports = tmp_path / "fact_result.txt", DATA.parent / "raw_data" / "gpt.jsonl"
    files = ["--input_path", DATA / "validated.jsonl", "--raw_data_path", reports, "--output_path", result]
    assert main(["research", "fact", "stat", *map(str, files)]) == 1
    lines = result.read_text().splitlines()
    assert lines[:3] == ["total_citations: 18.0", "total_valid_citations: 12.0", "valid_rate: 0.6666666666666666"]
    assert [line for line in lines if line.startswith("n_")] == [
        "n_total: 2",
        "n_scored: 1",
        "n_failed: 1",
        "n_with_citations: 1",
    ]
    assert f"{reports}:2:1: the report 2 has no row in" in capsys.readouterr().err


def test_extracted_citations_are_deduplicated_as_the_original_did(judge: FactJudge) -> None:
    found = stage("deduplicate", DATA / "extracted.jsonl", "deduplicated.jsonl")
    assert found == row(DATA / "deduplicated.jsonl")
    assert judge.asked == {"deduplicate": 3}  # the pages with more than one statement


def test_stored_contents_are_not_fetched_again(judge: FactJudge) -> None:
    expected = row(DATA / "scraped.jsonl")
    expected["citations_deduped"][""]["url_content"] = "scrape failed: the report gives no address"
    assert stage("scrape", DATA / "scraped.jsonl", "scraped.jsonl") == expected


def test_stored_contents_are_compared_page_by_page(judge: FactJudge) -> None:
    found, expected = stage("validate", DATA / "scraped.jsonl", "validated.jsonl"), row(DATA / "validated.jsonl")
    for page in expected["citations_deduped"].values():
        del page["article_id"]
    assert found == expected
    assert judge.asked == {"validate": 8}  # all pages but the one without an address
