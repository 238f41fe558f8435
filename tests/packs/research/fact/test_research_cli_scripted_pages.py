"""FACT offline: the pages that reports cite are those of a script, and rows that failed before say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.research_project import ResearchProject

from pytest_agentbench.cli import main

PAGE = "Chips cost more, and more of them are sold."
SCRIPT = "reports.demo.yaml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResearchProject:
    monkeypatch.chdir(tmp_path)
    return ResearchProject(tmp_path)


def contents(path: str) -> list[str]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [page["url_content"] for row in rows for page in row["citations_deduped"].values()]


def test_the_script_next_to_the_reports_has_the_pages_too(project: ResearchProject) -> None:
    Path(SCRIPT).rename("raw/gpt.demo.yaml")
    assert main(["research", "fact", "--input_file", "raw/gpt.jsonl", "--judge", "demo"]) == 0
    assert contents("results/fact/gpt/scraped.jsonl") == [PAGE, PAGE]


def test_every_stage_alone_offline(project: ResearchProject) -> None:
    judge = ["--judge", "demo", "--script", SCRIPT]
    source = "raw/gpt.jsonl"
    for stage, options in {
        "extract": judge,
        "deduplicate": judge,
        "scrape": ["--script", SCRIPT],
        "validate": judge,
    }.items():
        files = ["--raw_data_path", source, "--output_path", f"{stage}.jsonl"]
        assert main(["research", "fact", stage, *files, *options]) == 0
        source = f"{stage}.jsonl"
    assert contents("validate.jsonl") == [PAGE, PAGE]


def test_a_single_stage_reports_the_earlier_failure_of_a_row(
    project: ResearchProject, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": 1, "prompt": "?", "article": "", "extract_error": "the reply was cut off"}
    project.rows("extract.jsonl", row)
    files = ["--raw_data_path", "extract.jsonl", "--output_path", "scraped.jsonl"]
    assert main(["research", "fact", "scrape", *files]) == 1
    assert "scrape: 1: failed in extract: the reply was cut off\n" in capsys.readouterr().err
    assert json.loads(Path("scraped.jsonl").read_text()) == row
