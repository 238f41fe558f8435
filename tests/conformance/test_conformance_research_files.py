"""`agentbench research convert` and `lint` over the real files of DeepResearch Bench and POET."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")


def lint(capsys, *args: object) -> tuple[int, list[str]]:
    code = main(["research", "lint", *map(str, args)])
    return code, [line.replace(f"{DATA}/", "") for line in capsys.readouterr().out.splitlines()]


def test_report_markdown_gives_the_seeds_rows_but_for_what_a_run_measures(capsys) -> None:
    known = DATA / "poet_gpt/raw_data/gpt.jsonl"
    assert main(["research", "convert", str(DATA / "poet_md_to_jsonl"), "--query_file", str(known)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = ("citation_count", "sources_used", "word_count")
    assert [[row["execution_metrics"][name] for name in counts] for row in found] == [[82, 22, 3819], [113, 43, 4263]]
    expected = [json.loads(line) for line in known.read_text(encoding="utf-8").splitlines()]
    for row, original in zip(found, expected, strict=True):
        assert {**row, "execution_metrics": None} == {**original, "execution_metrics": None}
        measured = {name: original["execution_metrics"][name] for name in counts}
        assert {name: value for name, value in row["execution_metrics"].items() if isinstance(value, int)} == measured


def test_query_markdown_gives_44_rows(capsys) -> None:
    assert main(["research", "convert", str(DATA / "poet_query/raw_query.md")]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({row["id"] for row in found}) == len(found) == 44
    assert all(row["topic"] and row["prompt"] for row in found)
    assert {row["language"] for row in found} == {"zh"}


def test_queries_criteria_and_scores_of_deepresearch_bench(capsys) -> None:
    files = ("--query-file", DATA / "drb_query.jsonl", "--criteria-file", DATA / "drb_criteria_20.jsonl")
    code, lines = lint(capsys, *files, "--results", DATA / "drb_claude37/race/raw_results.jsonl")
    assert code == 0
    assert lines[0].startswith(
        "drb_criteria_20.jsonl:1: warning: prompt: found no row for 80 of 100 prompts of drb_query"
    )
    assert lines[-1] == "3 files, 220 rows: 0 errors, 1 warning, 11 to review"
    assert {line.split(":")[1] for line in lines[1:-1]} == {"4", "12", "22", "61", "74", "84"}


def test_metrics_that_are_the_readmes_own_are_to_be_looked_at(capsys) -> None:
    reports, annotations = DATA / "poet_gpt/raw_data/gpt.jsonl", DATA / "poet_annotation_code_format"
    config = DATA / "poet_config/poet_config.json"
    code, lines = lint(capsys, "--input-file", reports, "--annotation-dir", annotations, "--config", config)
    assert code == 0
    assert lines == [
        "poet_gpt/raw_data/gpt.jsonl:1: warning: domain: found none in 2 rows, expected one in each",
        "poet_gpt/raw_data/gpt.jsonl:1: warning: complexity_level: found none in 2 rows, expected one in each",
        "poet_gpt/raw_data/gpt.jsonl:2: review: execution_metrics: found 1200 seconds and 0.087 USD, as on line 1, "
        "expected the measurements of this run",
        "3 files, 2 rows: 0 errors, 2 warnings, 1 to review",
    ]


@pytest.mark.parametrize("folder", ["poet_annotation_code_format", "poet_annotation_seed_format"])
def test_annotations_in_both_spellings(folder, capsys) -> None:
    assert lint(capsys, "--annotation-dir", DATA / folder) == (0, ["1 file, 0 rows: 0 errors, 0 warnings, 0 to review"])


def test_criteria_of_the_pointwise_set(capsys) -> None:
    code, lines = lint(capsys, "--criteria-file", DATA / "tickr_pointwise/criteria.jsonl")
    assert (code, lines) == (0, ["1 file, 10 rows: 0 errors, 0 warnings, 0 to review"])
